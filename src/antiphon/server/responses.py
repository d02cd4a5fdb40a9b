"""`POST /responses`: a request in, a response out, whole or as a stream."""

import asyncio
from collections.abc import Coroutine

from antiphon.core.errors import AntiphonError, RequestError
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.value import ShapeError
from antiphon.engine.engine import Engine
from antiphon.engine.run import Run
from antiphon.server.http import (
    ClientGone,
    Receive,
    Scope,
    Send,
    disconnected,
    read_body,
    send_json,
)
from antiphon.server.settings import Settings
from antiphon.server.stream import EventStream
from antiphon.wire import json
from antiphon.wire.dialects import Dialect, failure_of, read_request


class CreateResponse:
    """The endpoint, at one door."""

    def __init__(self, engine: Engine, settings: Settings, dialect: type[Dialect]) -> None:
        self._engine = engine
        self._settings = settings
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = await self._read(scope, receive)
        dialect = self._dialect(frozenset(request.include))
        if request.stream:
            await self._stream(request, dialect, receive, send)
        else:
            await self._whole(request, dialect, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> Request:
        body = await read_body(scope, receive, self._settings.body_limit)
        try:
            return read_request(json.decode(body))
        except json.JSONError as error:
            raise RequestError(
                f"The body is not valid JSON: {error}", code="invalid_json"
            ) from None
        except ShapeError as error:
            raise RequestError.of_shape(error) from None

    async def _whole(
        self, request: Request, dialect: Dialect, receive: Receive, send: Send
    ) -> None:
        run = self._engine.open(request)
        async with Making(run.drive(), receive) as making:
            response = await making.result()
        if response.error is not None:
            await send_json(send, dialect.error(failure_of(response)), 500)
        else:
            await send_json(send, dialect.response(response))

    async def _stream(
        self, request: Request, dialect: Dialect, receive: Receive, send: Send
    ) -> None:
        stream = EventStream(dialect, self._settings.outlet_bytes)
        run = self._engine.open(request, stream)
        async with Making(run.drive(), receive, stream) as making:
            if await making.begun(run, self._settings.commit_seconds):
                await stream.send(send, self._settings.heartbeat_seconds)
            await making.result()


class Making:
    """A response being made for a client that may leave: then the model is stopped at once."""

    def __init__(
        self,
        work: Coroutine[object, object, Response],
        receive: Receive,
        stream: EventStream | None = None,
    ) -> None:
        self._work = asyncio.create_task(work)
        self._watch = asyncio.create_task(disconnected(receive))
        self._watch.add_done_callback(lambda _: self._work.cancel())
        if stream:
            self._work.add_done_callback(lambda _: stream.close())

    async def __aenter__(self) -> "Making":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        self._work.cancel()
        await asyncio.gather(self._watch, self._work, return_exceptions=True)

    async def result(self) -> Response:
        """Return the finished response; raises what it was refused with, or ClientGone."""
        try:
            return await self._work
        except asyncio.CancelledError:
            if self._watch.done():
                raise ClientGone from None
            raise

    async def begun(self, run: Run, seconds: float) -> bool:
        """Wait for the model's first sign; tell whether there is a stream to send.

        A model that fails before it has begun to answer has no stream, if its error has a status.
        """
        try:
            async with asyncio.timeout(seconds):
                await run.begun.wait()
        except TimeoutError:
            run.answering = run.answering or not run.begun.is_set()
        return run.answering or not self._refused()

    def _refused(self) -> bool:
        return self._work.cancelled() or isinstance(self._work.exception(), AntiphonError)
