"""WebSocket sessions: many responses over one connection.

    async with client.connect() as session:
        first = await session.stream(model="demo", input="I am Ada.", store=False).final()
        async for text in session.stream(input="Who am I?", previous_response_id=first.id).text:
            print(text, end="")

The turns of one lane run one after another, in the order they were requested; lanes run in parallel. A response on a
WebSocket cannot be stopped: if its reader leaves early, the rest of the turn is dropped as it arrives. All lanes share
the connection: when the reader of one is a megabyte behind, the connection is not read, and the others wait too.

TLS is always verified. Redirects to another server are not followed: it would get the credentials.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Unpack
from urllib.parse import urlsplit
from weakref import finalize

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from antiphon.adapters.base import MAX_EVENT_BYTES
from antiphon.adapters.errors import redact, redirect_target
from antiphon.adapters.json_access import parse_json
from antiphon.client import errors
from antiphon.client.http import EventReader
from antiphon.client.params import ResponseParams, build_body, encode_body
from antiphon.client.stream import EventBuffer, EventSource, Stream
from antiphon.protocol.errors import AntiphonError, RequestError, UpstreamError
from antiphon.protocol.events import TERMINAL_EVENTS, Event
from antiphon.protocol.foreign.lenient import EVENT_CLASSES
from antiphon.protocol.response import Response
from antiphon.protocol.struct import as_object, as_string, omit
from antiphon.transport.client import HEADER_NAME, HEADER_VALUE
from antiphon.transport.connection import Timeouts
from antiphon.transport.proxy import is_loopback
from antiphon.transport.response import connect_error, timeout_error, unreachable_error
from antiphon.wire.websocket import IMPLIED_FIELDS, check_foreground, check_lane

TERMINAL_TYPES = frozenset(name for name, kind in EVENT_CLASSES.items() if kind in TERMINAL_EVENTS)
"""Types of the messages that end a response."""

RESERVED_FIELDS = IMPLIED_FIELDS | {"type", "stream_id"}
"""Fields of a message that the caller cannot set."""

MAX_UNREAD_BYTES = 1024 * 1024
"""Unread bytes of one turn at which the connection is not read any further."""

MAX_BATCH_MESSAGES = 256
"""Messages per batch, so that a long backlog does not block the event loop."""

PING_INTERVAL = 20.0
"""Seconds between two pings, and the time limit of their answers."""

CLOSE_TIMEOUT = 2.0
MAX_QUEUED_FRAMES = 64
"""Unread frames that the library buffers."""
MESSAGE_TOO_BIG = 1009

logger = logging.getLogger("antiphon.websocket")
# At DEBUG the library logs headers, and with them the key.
logger.setLevel(logging.INFO)


class TurnParams(ResponseParams, total=False):
    """Parameters of a request for a response on a WebSocket."""

    generate: bool
    """If false, the server only processes the input; the response can be continued."""


class MessageLabel(msgspec.Struct):
    """The fields of a message that are needed to dispatch it."""

    type: str = ""
    stream_id: str | None = None


_decode_label_strictly = msgspec.json.Decoder(MessageLabel).decode


def encode_create(body: Mapping[str, object], lane: str) -> bytes:
    """Encode the message that requests a response; raises RequestError for invalid fields."""
    check_foreground(body)
    stream_id = {"stream_id": lane} if lane else {}
    return encode_body({"type": "response.create"} | omit(body, RESERVED_FIELDS) | stream_id)


def decode_label(message: bytes) -> MessageLabel:
    try:
        # Decodes two fields and skips the rest: most messages are parsed only once, later.
        return _decode_label_strictly(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = as_object(parse_json(message))
        return MessageLabel(as_string(fields.get("type")), as_string(fields.get("stream_id")))


def decode_response_id(message: bytes) -> object:
    """Return the id of the response in a message, if there is one."""
    return as_object(as_object(parse_json(message)).get("response")).get("id")


class TurnBuffer(EventBuffer[bytes]):
    """The unread messages of one turn; it is closed when the turn ends or its reader leaves."""

    def __init__(self, lane: str) -> None:
        super().__init__(MAX_UNREAD_BYTES)
        self.lane = lane
        self.first_message: bytes | None = None
        """The first message, if one has arrived."""
        self.abandoned = False
        """Whether the reader has left."""
        self._failure: UpstreamError | None = None
        self._released = asyncio.Event()
        self._ended = asyncio.Event()

    def put(self, message: bytes) -> None:
        """Add a message; drop it if the reader has left."""
        self.first_message = self.first_message or message
        if not self.abandoned:
            self.write([message], len(message))

    def close(self) -> None:
        super().close()
        self._released.set()

    def end(self, failure: UpstreamError | None = None) -> None:
        """End the turn, with an error if it failed; the lane's next turn may start."""
        self._failure = failure
        self._ended.set()
        self.close()

    def abandon(self) -> None:
        """Stop reading; drop the rest of the turn as it arrives."""
        self.abandoned = True
        self._events.clear()
        self.close()

    async def wait_ended(self, seconds: float) -> None:
        """Wait until the turn ends; raises UpstreamError if it takes too long."""
        # While it has a reader, the reader's own timeout applies.
        await self._released.wait()
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            raise timeout_error(errors.SERVER, f"did not end the previous turn within {seconds:g} seconds.") from None

    async def next_messages(self, seconds: float) -> list[bytes]:
        """Wait for messages and return them; none at the end. Raises UpstreamError."""
        if self._events:
            await asyncio.sleep(0)  # let other tasks run before a reader with a backlog
        elif not self._closed:
            try:
                async with asyncio.timeout(seconds):
                    while not (self._events or self._closed):
                        self._changed.clear()
                        await self._changed.wait()
            except TimeoutError:
                raise timeout_error(errors.SERVER, f"sent nothing for {seconds:g} seconds.") from None
        messages = self._events[:MAX_BATCH_MESSAGES]
        if not messages and self._failure is not None:
            raise self._failure
        del self._events[:MAX_BATCH_MESSAGES]
        self._size -= sum(map(len, messages))
        self._changed.set()
        return messages


class WebSocketEventSource(EventSource):
    """The events of one turn."""

    def __init__(self, turn: TurnBuffer, timeouts: Timeouts, *, strict: bool) -> None:
        self._turn = turn
        self._timeouts = timeouts
        self._reader = EventReader(strict=strict)
        self._error: AntiphonError | None = None
        # A stream that is garbage-collected without close() must not block its lane.
        finalize(self, _abandon_threadsafe, turn, asyncio.get_running_loop()).atexit = False

    @property
    def response(self) -> Response | None:
        return self._reader.response

    async def next_batch(self) -> list[Event]:
        turn, limits, events = self._turn, self._timeouts, list[Event]()
        try:
            if self._error is not None:
                raise self._error
            while not events:
                messages = await turn.next_messages(limits.idle if turn.first_message else limits.first_byte)
                if not messages:
                    if not turn.abandoned:
                        self._reader.close()
                    break
                for message in messages:
                    events += self._reader.feed_frame(message)
        except AntiphonError as error:
            self._error = error  # raised by the next call, if there are events before it
            if not events:
                turn.abandon()  # the error ends the stream, so nobody else would
                raise
        return events

    async def close(self) -> None:
        """Stop reading; the rest of the turn is dropped as it arrives."""
        self._turn.abandon()


def _abandon_threadsafe(turn: TurnBuffer, loop: asyncio.AbstractEventLoop) -> None:
    # The garbage collector may run in any thread.
    if not loop.is_closed():
        loop.call_soon_threadsafe(turn.abandon)


class Lane:
    """A named sequence of turns in a session; the name of the default lane is empty."""

    def __init__(self, session: "Session", name: str) -> None:
        self.name = name
        self._session = session
        # asyncio.Lock is fair: turns are sent in the order in which they were requested.
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Lane {self.name!r} of {self._session!r}>"

    def stream(self, **params: Unpack[TurnParams]) -> Stream:
        """Create a response after the lane's earlier turns; raises RequestError."""
        if "extra_headers" in params:
            message = "A turn on a WebSocket has no headers. Pass them to the client."
            raise RequestError(message, param="extra_headers", code="unsupported_parameter")
        return Stream(partial(self.open_source, build_body(params, TurnParams)))

    async def open_source(self, body: Mapping[str, object]) -> WebSocketEventSource:
        """Request a response; return the source of its events."""
        message = encode_create(body, self.name)
        async with self._lock:
            return await self._session.start_turn(self.name, message)


class Session:
    """One WebSocket and its lanes."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        strict: bool = False,
        timeout: Timeouts | None = None,
    ) -> None:
        # https becomes wss.
        self._url = url.replace("http", "ws", 1) if url.startswith("http") else url
        self._headers = headers or {}
        self._strict = strict
        self._timeouts = timeout or Timeouts()
        self._lanes: dict[str, Lane] = {}
        self._turns: dict[str, TurnBuffer] = {}
        """Unfinished turns by lane, in the order they were requested."""
        self._failed_response_ids: dict[str, object] = {}
        """Ids of responses that ended with an error, by lane: a terminal event may follow."""
        self._server_names_lanes = False
        """Whether the server has ever sent a `stream_id`."""
        self._connection: ClientConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_paused = False
        """Whether the connection is not read, because a reader is behind."""
        self._activity = 0
        """Counts signs of life, so that a slow answer to a ping does not close the connection."""
        self._connection_error: UpstreamError | None = None
        self._closed_error: UpstreamError | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._connection else "not open"
        return f"<Session: {state}, {len(self._turns)} turns>"

    @property
    def closed(self) -> bool:
        """Whether either side has closed it."""
        return self._closed_error is not None

    async def open(self) -> None:
        """Connect, unless connected; raises UpstreamError."""
        if self._closed_error is not None:
            raise self._closed_error
        if self._connection is not None:
            return
        connection = await open_websocket(self._url, self._headers, self._timeouts.connect)
        if self._closed_error is not None:  # closed while it was connecting
            connection.transport.abort()
            raise self._closed_error
        self._connection = connection
        self._tasks = [
            asyncio.create_task(self._receive_all(connection)),
            asyncio.create_task(self._monitor_connection(connection)),
        ]

    async def __aenter__(self) -> "Session":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; unfinished turns raise UpstreamError."""
        # First, so that readers get this error and not that of the closing connection.
        self._end_all_turns(errors.websocket_closed_error("this side closed it."))
        try:
            if self._connection is not None:
                await close_websocket(self._connection)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def lane(self, name: str) -> Lane:
        """Return a lane by its name; raises RequestError for an invalid name."""
        name = name and check_lane(name)
        return self._lanes.setdefault(name, Lane(self, name))

    def stream(self, *, lane: str | None = None, **params: Unpack[TurnParams]) -> Stream:
        """Create a response, on the default lane unless one is named."""
        return self.lane(lane or "").stream(**params)

    async def start_turn(self, lane: str, message: bytes) -> WebSocketEventSource:
        """Send a request when the lane's last turn has ended; raises UpstreamError."""
        if previous := self._turns.get(lane):
            await previous.wait_ended(self._timeouts.idle)
        if self._closed_error is not None:
            raise self._closed_error
        if self._connection is None:
            raise RequestError("The session is not open. Use 'async with', or await open().")
        turn = self._turns[lane] = TurnBuffer(lane)
        try:
            await self._connection.send(message, text=True)
        except BaseException as error:
            turn.abandon()  # it may have been sent: the answer is then dropped
            if isinstance(error, ConnectionClosed):
                raise connection_closed_error(error) from None
            raise
        return WebSocketEventSource(turn, self._timeouts, strict=self._strict)

    async def _receive_all(self, connection: ClientConnection) -> None:
        try:
            while True:
                message = await connection.recv(decode=False)
                self._activity += 1
                turn = self._dispatch(message)
                # Not reading makes TCP slow down the server.
                if turn is not None and turn.full:
                    self._is_paused = True
                    await turn.drain()
                    self._is_paused = False
                    self._activity += 1  # the pause was ours: it must not count as a missed ping
        except ConnectionClosed as error:
            self._end_all_turns(self._connection_error or connection_closed_error(error))
        finally:
            self._end_all_turns(errors.websocket_closed_error("it is no longer read."))

    def _dispatch(self, message: bytes) -> TurnBuffer | None:
        """Add a message to its turn; drop it if there is none."""
        label = decode_label(message)
        lane = label.stream_id or ""
        turn = self._turns.get(lane)
        # A server without lanes never sends a stream_id, and answers in the order of requests.
        self._server_names_lanes = self._server_names_lanes or lane != ""
        if turn is None and not self._server_names_lanes:
            turn = next(iter(self._turns.values()), None)
        self._connection_error = None
        # An error ends its turn at once; whatever the server still sends for it is dropped.
        if label.type == "error":
            failure = errors.websocket_message_error(message)
            if turn is not None:
                self._failed_response_ids[lane] = decode_response_id(turn.first_message or b"")
                self._end_turn(turn, failure)
            elif not lane:
                # About the connection: if it closes next, this is the reason.
                self._connection_error = failure
        elif turn is not None and label.type not in TERMINAL_TYPES:
            turn.put(message)
        elif turn is not None and not self._is_late(lane, message):
            turn.put(message)
            self._end_turn(turn)
        return turn

    def _is_late(self, lane: str, message: bytes) -> bool:
        """Return whether a terminal event belongs to a response that an error has ended."""
        failed_id = self._failed_response_ids.pop(lane, None)
        return failed_id is not None and failed_id == decode_response_id(message)

    def _end_turn(self, turn: TurnBuffer, failure: UpstreamError | None = None) -> None:
        del self._turns[turn.lane]
        turn.end(failure)

    async def _monitor_connection(self, connection: ClientConnection) -> None:
        """Send pings; end the session if the server stops answering."""
        with suppress(ConnectionClosed):
            # A turn may be silent for minutes while the model reasons: only pings tell whether
            # the server is still there.
            while True:
                await asyncio.sleep(PING_INTERVAL)
                before = self._activity
                try:
                    async with asyncio.timeout(PING_INTERVAL):
                        await (await connection.ping())
                except TimeoutError:
                    if self._activity == before and not self._is_paused:
                        self._end_all_turns(errors.websocket_closed_error("the server does not answer pings."))
                        connection.transport.abort()
                        return

    def _end_all_turns(self, error: UpstreamError) -> None:
        """End every turn with an error; the first error is kept."""
        self._closed_error = self._closed_error or error
        for turn in self._turns.values():
            turn.end(self._closed_error)
        self._turns.clear()


class SameServerConnect(connect):
    """Follows redirects only within the same server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the redirect's target if scheme and host stay the same."""
        with suppress(InvalidURI):  # many servers redirect to https instead of wss
            target = super().process_redirect(exc)
            if isinstance(target, str) and urlsplit(target)[:2] == urlsplit(self.uri)[:2]:
                return target
        return exc


async def open_websocket(url: str, headers: Mapping[str, str], seconds: float) -> ClientConnection:
    """Open a WebSocket; raises UpstreamError, and RequestError for invalid headers."""
    for name, value in headers.items():
        # A line break would inject another header. The value may be a secret, so it is not quoted.
        if not HEADER_NAME.fullmatch(name.lower()) or not HEADER_VALUE.fullmatch(value):
            message = f"The header {name[:64]!r} contains an invalid character, such as a line break."
            raise RequestError(message, param="headers")
    try:
        return await SameServerConnect(
            url,
            additional_headers=headers,
            user_agent_header="antiphon",
            # Deltas are too small to be worth compressing.
            compression=None,
            # A proxy cannot reach this machine's own loopback address.
            proxy=None if is_loopback(urlsplit(url).hostname or "") else True,
            open_timeout=seconds,
            ping_interval=None,  # Session sends pings: it knows when it does not read the answers
            close_timeout=CLOSE_TIMEOUT,
            max_size=MAX_EVENT_BYTES,
            max_queue=MAX_QUEUED_FRAMES,
            logger=logger,
        )
    except InvalidStatus as error:
        response, status = error.response, error.response.status_code
        received = {name.lower(): value for name, value in response.headers.raw_items()}
        body = errors.redact_credentials(bytes(response.body or b"").decode(errors="replace"), headers)
        location = redirect_target(status, received, url, url.rpartition("/")[0])
        location = location and errors.redact_credentials(location, headers)
        raise errors.websocket_refused_error(status, received, body.encode(), location) from None
    except TimeoutError:
        raise timeout_error(errors.SERVER, f"opened no WebSocket within {seconds:g} seconds.") from None
    except OSError as error:
        raise connect_error(errors.SERVER, error, f" at {urlsplit(url).netloc.rpartition('@')[2]}") from None
    except (WebSocketException, ValueError, ImportError) as error:
        raise unreachable_error(errors.SERVER, f"opened no WebSocket ({type(error).__name__}).") from None


async def close_websocket(connection: ClientConnection) -> None:
    """Send a close frame and close the connection."""
    # The server's close frame is not waited for: that would take another round trip.
    closing = asyncio.ensure_future(connection.close())
    try:
        await asyncio.sleep(0)  # the close frame is sent now
        # Flushes what is written, then closes.
        connection.transport.close()
        await closing
    finally:
        connection.transport.abort()


def connection_closed_error(error: ConnectionClosed) -> UpstreamError:
    # The library closes the connection itself when a message exceeds max_size.
    if error.sent and error.sent.code == MESSAGE_TOO_BIG:
        return errors.websocket_closed_error(f"it sent more than {MAX_EVENT_BYTES} bytes in one message.")
    if error.rcvd is None:
        return errors.websocket_closed_error("the connection was lost.")
    return errors.websocket_closed_error(f"{error.rcvd.code} {redact(error.rcvd.reason, 200)}".strip())
