"""A session: one WebSocket to a server, and the lanes on it.

    async with client.connect() as session:
        first = await session.stream(model="demo", input="I am Ada.", store=False).final()
        async for text in session.stream(input="Who am I?", previous_response_id=first.id).text:
            print(text, end="")

On each lane one turn follows the other, in the order they were asked for; named lanes go side by
side. A reader that leaves early has the rest of its turn dropped, since nothing on a socket stops a
response. All lanes share one connection: if the reader of one is a megabyte behind, the socket is
not read, and the others wait with it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Unpack

from antiphon.client.errors import websocket_closed_error, websocket_message_error
from antiphon.client.fields import build_body
from antiphon.client.inbox import TurnBuffer, WebSocketEventSource
from antiphon.client.messages import (
    ERROR_TYPE,
    TERMINAL_TYPES,
    TurnParams,
    encode_create,
    decode_label,
    decode_response_id,
)
from antiphon.client.stream import Stream
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.transport.connection import Timeouts
from antiphon.wire.socket import check_lane

if TYPE_CHECKING:
    from antiphon.client.dial import WebSocketConnection

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
        from antiphon.client.dial import open_websocket  # start-up time

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
                self._failed_response_ids[lane] = decode_response_id(turn.first_message) if turn.first_message else None
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
