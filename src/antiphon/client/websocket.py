"""Messages on a socket: how a response is asked for, and whose each answer is."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Unpack
from weakref import finalize

import msgspec

from antiphon.adapters.json_access import as_object, as_string, omit, parse_json
from antiphon.client.errors import SERVER, websocket_closed_error, websocket_message_error
from antiphon.client.event_reader import EventReader
from antiphon.client.params import ResponseParams, build_body, encode_body
from antiphon.client.stream import Stream
from antiphon.protocol.errors import (
    AntiphonError,
    RemoteProtocolError,
    RequestError,
    UpstreamError,
)
from antiphon.protocol.events import TERMINAL_EVENTS, Event
from antiphon.protocol.foreign.reader import EVENT_CLASSES
from antiphon.protocol.response import Response
from antiphon.transport.connection import Timeouts
from antiphon.transport.response import timeout_error
from antiphon.wire.websocket import IMPLIED_FIELDS, check_foreground, check_lane

CREATE_TYPE = "response.create"
ERROR_TYPE = "error"
TERMINAL_TYPES = frozenset(name for name, kind in EVENT_CLASSES.items() if kind in TERMINAL_EVENTS)
"""The types of messages that a response ends with."""

RESERVED_FIELDS = IMPLIED_FIELDS | {"type", "stream_id"}
"""The fields of a message that are not the caller's."""


class TurnParams(ResponseParams, total=False):
    """The fields of a request for a response on a socket."""

    generate: bool
    """False only has the server read; the response can be continued."""


class MessageLabel(msgspec.Struct):
    """What must be known of a message to pass it on."""

    type: str = ""
    stream_id: str | None = None


_decode_label_strictly = msgspec.json.Decoder(MessageLabel).decode


def encode_create(body: Mapping[str, object], lane: str) -> bytes:
    """Write the message that asks for a response; raises RequestError for what cannot be asked."""
    check_foreground(body)
    named = {"stream_id": lane} if lane else {}
    return encode_body({"type": CREATE_TYPE} | omit(body, RESERVED_FIELDS) | named)


def decode_label(message: bytes) -> MessageLabel:
    """Read what must be known of a message, whatever it is."""
    try:
        return _decode_label_strictly(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = as_object(parse_json(message))
        return MessageLabel(as_string(fields.get("type")), as_string(fields.get("stream_id")))


def decode_response_id(message: bytes) -> object:
    """Return the id of the response that a message tells of, if it does."""
    return as_object(as_object(parse_json(message)).get("response")).get("id")


MAX_UNREAD_BYTES = 1024 * 1024
"""How many bytes may wait for a reader before the socket is not read any further."""
MAX_BATCH_MESSAGES = 256
"""How many messages are handed over at once, so that others get their turn."""


class TurnBuffer:
    """What has come of one turn. It ends with its last message; its reader may leave before."""

    def __init__(self, lane: str, on_drain: Callable[[], None]) -> None:
        self.lane = lane
        self.first_message: bytes | None = None
        """The message that it began with, if it has begun."""
        self.abandoned = False
        """Whether its reader has left."""
        self._on_drain = on_drain
        self._unread: list[bytes] = []
        self._size = 0
        self._failure: UpstreamError | None = None
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()
        self._ended = asyncio.Event()

    # --- for the socket ---

    @property
    def full(self) -> bool:
        """Whether its reader is so far behind that nothing more should come."""
        return self._size > MAX_UNREAD_BYTES and not self._ended.is_set()

    def put(self, message: bytes) -> None:
        """Keep a message for the reader, or drop it if there is none."""
        self.first_message = self.first_message or message
        if not self.abandoned:
            self._unread.append(message)
            self._size += len(message)
            self._arrived.set()

    def end(self, failure: UpstreamError | None = None) -> None:
        """Take note that nothing more will come, and why that is wrong if it is."""
        self._failure = failure
        for event in (self._arrived, self._released, self._ended):
            event.set()

    async def wait_ended(self, seconds: float) -> None:
        """Return when it is over; raises UpstreamError if that takes long without a reader."""
        await self._released.wait()
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            reason = f"did not end the turn before within {seconds:g} seconds."
            raise timeout_error(SERVER, reason) from None

    # --- for the reader ---

    async def next_messages(self, seconds: float) -> list[bytes]:
        """Return what has come, waiting for it; nothing at the end. Raises UpstreamError."""
        if self._unread:
            await asyncio.sleep(0)  # a reader that is behind lets others go first
        elif not self._released.is_set():
            await self._wait_for_message(seconds)
        taken = self._unread[:MAX_BATCH_MESSAGES]
        if not taken and self._failure is not None:
            raise self._failure
        del self._unread[:MAX_BATCH_MESSAGES]
        self._size -= sum(map(len, taken))
        self._on_drain()
        return taken

    def abandon(self) -> None:
        """Read no further: what is still to come is dropped."""
        self.abandoned = True
        self._unread.clear()
        self._size = 0
        self._arrived.set()
        self._released.set()
        self._on_drain()

    async def _wait_for_message(self, seconds: float) -> None:
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            raise timeout_error(SERVER, f"sent nothing for {seconds:g} seconds.") from None


class WebSocketEventSource:
    """The reader of a turn: the source of one stream."""

    def __init__(self, turn: TurnBuffer, timeouts: Timeouts, *, strict: bool) -> None:
        self._turn = turn
        self._timeouts = timeouts
        self._reader = EventReader(strict=strict)
        self._error: RemoteProtocolError | None = None
        # A stream that is dropped and never closed must not hold up its lane.
        finalize(self, _abandon_threadsafe, turn, asyncio.get_running_loop()).atexit = False

    @property
    def response(self) -> Response | None:
        """The response as far as it was read."""
        return self._reader.response

    async def next_batch(self) -> list[Event]:
        """Return the events of all that has come; nothing at the end."""
        events: list[Event] = []
        try:
            while not events and (taken := await self._next_messages()):
                events = self._decode_events(taken)
        except AntiphonError:
            self._turn.abandon()  # whoever holds on to the error does not hold up the lane
            raise
        return events

    async def _next_messages(self) -> list[bytes]:
        if self._error is not None:
            raise self._error
        turn, limits = self._turn, self._timeouts
        taken = await turn.next_messages(limits.idle if turn.first_message else limits.first_byte)
        if not taken and not turn.abandoned:
            self._reader.close()
        return taken

    def _decode_events(self, messages: list[bytes]) -> list[Event]:
        events: list[Event] = []
        try:
            for message in messages:
                events += self._reader.feed_frame(message)
        except RemoteProtocolError as error:  # raised when what came before it has been read
            self._error = error
        return events

    async def close(self) -> None:
        """Leave the turn; what is left of it is dropped as it comes."""
        self._turn.abandon()


def _abandon_threadsafe(turn: TurnBuffer, loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(turn.abandon)


if TYPE_CHECKING:
    from antiphon.client.websocket_connection import WebSocketConnection

PING_INTERVAL = 20.0
"""How often the server is asked whether it is there, and how soon it has to say so."""


class Lane:
    """A named sequence of turns on a session; the name of the default lane is empty."""

    def __init__(self, session: "Session", name: str) -> None:
        self.name = name
        self._session = session
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Lane {self.name!r} of {self._session!r}>"

    def stream(self, **fields: Unpack[TurnParams]) -> Stream:
        """Ask for a response when the turns before it are over; raises RequestError."""
        if "extra_headers" in fields:
            message = "A turn on a WebSocket has no headers of its own. Give them to the client."
            raise RequestError(message, param="extra_headers", code="unsupported_parameter")
        return Stream(partial(self.open_source, build_body(fields, TurnParams)))

    async def open_source(self, body: Mapping[str, object]) -> WebSocketEventSource:
        """Ask for a response, and return where its events come from."""
        message = encode_create(body, self.name)
        async with self._lock:
            return await self._session.start_turn(self.name, message)


class Session:
    """One WebSocket, and the lanes on it."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        strict: bool = False,
        timeout: Timeouts | None = None,
    ) -> None:
        self._url = url.replace("http", "ws", 1) if url.startswith("http") else url
        self._headers = headers or {}
        self._strict = strict
        self._timeouts = timeout or Timeouts()
        self._lanes: dict[str, Lane] = {}
        self._turns: dict[str, TurnBuffer] = {}
        """What is being answered, by its lane, in the order it was asked for."""
        self._failed_response_ids: dict[str, object] = {}
        """The response that an error ended on a lane, by its id: its own end may follow."""
        self._server_names_lanes = False
        """Whether the server has ever named a lane."""
        self._connection: WebSocketConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._activity = 0
        self._connection_error: UpstreamError | None = None
        self._closed_error: UpstreamError | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._connection else "not open"
        return f"<Session: {state}, {len(self._turns)} turns>"

    @property
    def closed(self) -> bool:
        """Whether it has come to its end, by whomever."""
        return self._closed_error is not None

    # --- open and closed ---

    async def open(self) -> None:
        """Connect, unless that has happened; raises UpstreamError."""
        from antiphon.client.websocket_connection import open_websocket

        if self._closed_error is not None:
            raise self._closed_error
        if self._connection is not None:
            return
        line = await open_websocket(self._url, self._headers, self._timeouts.connect)
        if self._closed_error is not None:
            line.abort()
            raise self._closed_error
        self._connection = line
        self._tasks = [
            asyncio.create_task(self._receive_all(line)),
            asyncio.create_task(self._monitor_connection(line)),
        ]

    async def __aenter__(self) -> "Session":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; whoever still waits is told so."""
        self._end_all_turns(websocket_closed_error("this side closed it."))
        try:
            if self._connection is not None:
                await self._connection.close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- turns ---

    def lane(self, name: str) -> Lane:
        """Return a lane by its name; raises RequestError for what is no name."""
        name = name and check_lane(name)
        return self._lanes.setdefault(name, Lane(self, name))

    def stream(self, *, lane: str | None = None, **fields: Unpack[TurnParams]) -> Stream:
        """Ask for a response, on the default lane if none is named."""
        return self.lane(lane or "").stream(**fields)

    async def start_turn(self, lane: str, message: bytes) -> WebSocketEventSource:
        """Send what a lane asks for when its last turn is over; raises UpstreamError."""
        if before := self._turns.get(lane):
            await before.wait_ended(self._timeouts.idle)
        if self._closed_error is not None:
            raise self._closed_error
        if self._connection is None:
            raise RequestError("The session is not open. Use 'async with', or await open().")
        turn = self._turns[lane] = TurnBuffer(lane, self._resume_reading)
        try:
            await self._connection.send(message)
        except BaseException:
            turn.abandon()  # it may have been sent all the same
            raise
        return WebSocketEventSource(turn, self._timeouts, strict=self._strict)

    # --- what comes ---

    async def _receive_all(self, connection: "WebSocketConnection") -> None:
        try:
            while True:
                message = await connection.receive()
                self._activity += 1
                turn = self._dispatch(message)
                while turn is not None and turn.full:
                    self._may_read.clear()
                    await self._may_read.wait()
        except UpstreamError as end:
            self._end_all_turns(self._connection_error or end)
        finally:
            self._end_all_turns(websocket_closed_error("it is not read any more."))

    def _dispatch(self, message: bytes) -> TurnBuffer | None:
        """Give a message to its turn; what belongs to none is dropped."""
        label = decode_label(message)
        lane = label.stream_id or ""
        turn = self._find_turn(lane)
        self._connection_error = None
        if label.type == ERROR_TYPE:
            failure = websocket_message_error(message)
            if turn is not None:
                self._failed_response_ids[lane] = (
                    decode_response_id(turn.first_message) if turn.first_message else None
                )
                self._end_turn(turn, failure)
            elif not lane:
                self._connection_error = failure  # about the connection, which may close now
        elif turn is not None and label.type not in TERMINAL_TYPES:
            turn.put(message)
        elif turn is not None and not self._is_late(lane, message):
            turn.put(message)
            self._end_turn(turn)
        return turn

    def _find_turn(self, lane: str) -> TurnBuffer | None:
        """Find the turn that a message is about.

        A server that knows no lanes names none, and answers in the order it was asked.
        """
        self._server_names_lanes = self._server_names_lanes or lane != ""
        turn = self._turns.get(lane)
        if turn is None and not self._server_names_lanes:
            turn = next(iter(self._turns.values()), None)
        return turn

    def _is_late(self, lane: str, message: bytes) -> bool:
        """Tell whether the end of a response comes after the error that ended its turn."""
        broken = self._failed_response_ids.pop(lane, None)
        return broken is not None and broken == decode_response_id(message)

    def _end_turn(self, turn: TurnBuffer, failure: UpstreamError | None = None) -> None:
        del self._turns[turn.lane]
        turn.end(failure)

    def _resume_reading(self) -> None:
        """Read on, if a slow reader was waited for."""
        if not self._may_read.is_set():
            self._activity += 1  # as good as a word: it was we who did not listen
            self._may_read.set()

    async def _monitor_connection(self, connection: "WebSocketConnection") -> None:
        """Notice a server that is not there any more."""
        with suppress(UpstreamError):
            while True:
                await asyncio.sleep(PING_INTERVAL)
                before = self._activity
                there = await connection.responds_to_ping(PING_INTERVAL)
                if not there and self._activity == before and self._may_read.is_set():
                    self._end_all_turns(websocket_closed_error("the server answers no ping."))
                    connection.abort()
                    return

    def _end_all_turns(self, error: UpstreamError) -> None:
        """End every turn, unless that has happened."""
        self._closed_error = self._closed_error or error
        for turn in self._turns.values():
            turn.end(self._closed_error)
        self._turns.clear()
        self._may_read.set()
