"""`/hashbrown`: responses as frames for Hashbrown's clients, and the list of their threads.

`POST /hashbrown/chat` is always a stream that starts at once. Any error after the body was read is sent as a
frame, because Hashbrown's clients look for errors there.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta
from starlette.routing import BaseRoute

from antiphon.engine.engine import Engine
from antiphon.hashbrown.answer import Described, HashbrownAnswer, decode_or_error
from antiphon.hashbrown.threads import MAX_TITLE_LENGTH, StoredThreads, ThreadDirectory, ThreadError, ThreadStorage
from antiphon.protocol.errors import RequestError
from antiphon.protocol.struct import ProtocolStruct, decode, encode
from antiphon.server.asgi import Receive, Scope, Send, WriteChunk, read_json, send_json
from antiphon.server.endpoints.base import Endpoints, Query, route
from antiphon.server.middleware import direct_write, report_error
from antiphon.server.streaming.event_stream import EventStream, StreamTask
from antiphon.wire.hashbrown import frames
from antiphon.wire.hashbrown.frames import HashbrownDialect
from antiphon.wire.json import replace_lone_surrogates

TENANT = ""
"""The server has one tenant: whoever may send requests."""


class FrameStream(EventStream):
    """A stream of length-prefixed frames.

    The format has no comments, but its clients ignore frames of unknown types.
    """

    response_headers: ClassVar[Sequence[tuple[bytes, bytes]]] = [
        (b"content-type", b"application/octet-stream"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    heartbeat: ClassVar[bytes] = frames.encode_frame({"type": frames.HEARTBEAT})
    end_marker: ClassVar[bytes] = b""

    def __init__(self, dialect: HashbrownDialect, limit: int, direct: WriteChunk | None) -> None:
        super().__init__(dialect, limit, direct)
        self._encode = dialect.encode_frames


class TitleBody(ProtocolStruct):
    """The body of `POST /hashbrown/threads/{id}`; null stands for a title made from the messages."""

    title: Annotated[str, Meta(min_length=1, max_length=MAX_TITLE_LENGTH)] | None


class HashbrownEndpoints(Endpoints):
    """The endpoints of Hashbrown's clients."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [
            route(f"{prefix}/hashbrown/chat", POST=self.chat),
            route(f"{prefix}/hashbrown/threads", GET=self.list_threads),
            # A storage of the user's own may have slashes in its ids.
            route(f"{prefix}/hashbrown/threads/{{id:path}}", POST=self.rename_thread, DELETE=self.delete_thread),
        ]

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings, request_id = self._settings, scope["antiphon.request_id"]
        body = await read_json(scope, receive, settings.body_limit, decode_or_error, replace_lone_surrogates)
        engine = await self._service.engine()
        self._service.reject_when_draining()
        dialect = HashbrownDialect()
        stream = FrameStream(dialect, settings.outlet_bytes, direct_write(scope, send))

        def describe_error(error: Exception) -> Described:
            reported = report_error(error, dialect, request_id)
            return reported.payload, reported.headers

        answer = HashbrownAnswer(engine, dialect, stream, self._storage(engine), describe_error, request_id)
        task = self._service.start_task(answer.write(body))
        async with StreamTask(task, receive, stream) as producer:
            await stream.send(send, settings.heartbeat_seconds)
            producer.check_connected()

    async def list_threads(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`GET /hashbrown/threads`: the last saved first."""
        if not self._settings.list_threads:
            message = (
                "Threads are not listed, because whoever may chat could read all of them. Set list_threads = true."
            )
            raise RequestError(message, type="permission_denied", code="list_not_allowed")
        query = Query(scope)
        limit = query.integer("limit", 1, 100) or 20
        directory = await self._directory()
        # One more than wanted shows whether there are more.
        found = await directory.list(limit + 1, query.text("after"), tenant=TENANT)
        shown = found[:limit]
        ends = {"first_id": shown[0].id if shown else None, "last_id": shown[-1].id if shown else None}
        await send_json(send, encode({"object": "list", "data": shown, **ends, "has_more": len(found) > limit}))

    async def rename_thread(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /hashbrown/threads/{id}`."""
        id = str(scope["path_params"]["id"])
        body = await read_json(scope, receive, self._settings.body_limit, lambda raw: decode(TitleBody, raw))
        directory = await self._directory()
        try:
            await directory.rename(id, body.title, tenant=TENANT)
        except ThreadError as error:
            raise missing_thread_error(error) from None
        await send_json(send, encode({"id": id, "title": body.title}))

    async def delete_thread(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`DELETE /hashbrown/threads/{id}`."""
        id = str(scope["path_params"]["id"])
        directory = await self._directory()
        try:
            await directory.delete(id, tenant=TENANT)
        except ThreadError as error:
            raise missing_thread_error(error) from None
        await send_json(send, encode({"id": id, "object": "thread.deleted", "deleted": True}))

    def _storage(self, engine: Engine) -> ThreadStorage | None:
        threads = self._settings.threads
        if isinstance(threads, bool):
            return StoredThreads(engine.store, engine.ids) if threads else None
        return threads

    async def _directory(self) -> ThreadDirectory:
        """Return the storage if it can list threads; raises RequestError."""
        storage = self._storage(await self._service.engine())
        if isinstance(storage, ThreadDirectory):
            return storage
        reason = (
            "stores no threads" if storage is None else "has a thread storage without 'list', 'rename' and 'delete'"
        )
        raise RequestError(f"This server {reason}.", type="not_found", code="not_found")


def missing_thread_error(error: ThreadError) -> RequestError:
    return RequestError(str(error), type="not_found", param="thread_id", code="thread_not_found")
