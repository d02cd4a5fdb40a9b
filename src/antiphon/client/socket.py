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

from antiphon.client.errors import closed, enveloped
from antiphon.client.fields import body_of
from antiphon.client.inbox import Inbox, SocketSource
from antiphon.client.messages import (
    ERROR,
    LAST,
    TurnFields,
    asked,
    labelled,
    response_id,
)
from antiphon.client.stream import Stream
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.transport.connection import Timeouts
from antiphon.wire.socket import lane_of

if TYPE_CHECKING:
    from antiphon.client.dial import Line

PING_SECONDS = 20.0
"""How often the server is asked whether it is there, and how soon it has to say so."""


class Lane:
    """A named sequence of turns on a session; the name of the default lane is empty."""

    def __init__(self, session: "Session", name: str) -> None:
        self.name = name
        self._session = session
        self._order = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Lane {self.name!r} of {self._session!r}>"

    def stream(self, **fields: Unpack[TurnFields]) -> Stream:
        """Ask for a response when the turns before it are over; raises RequestError."""
        if "extra_headers" in fields:
            message = "A turn on a WebSocket has no headers of its own. Give them to the client."
            raise RequestError(message, param="extra_headers", code="unsupported_parameter")
        return Stream(partial(self.source, body_of(fields, TurnFields)))

    async def source(self, body: Mapping[str, object]) -> SocketSource:
        """Ask for a response, and return where its events come from."""
        message = asked(body, self.name)
        async with self._order:
            return await self._session.begin(self.name, message)


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
        self._turns: dict[str, Inbox] = {}
        """What is being answered, by its lane, in the order it was asked for."""
        self._broken: dict[str, object] = {}
        """The response that an error ended on a lane, by its id: its own end may follow."""
        self._named = False
        """Whether the server has ever named a lane."""
        self._line: Line | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        self._room.set()
        self._heard = 0
        self._warning: UpstreamError | None = None
        self._end: UpstreamError | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._line else "not open"
        return f"<Session: {state}, {len(self._turns)} turns>"

    @property
    def closed(self) -> bool:
        """Whether it has come to its end, by whomever."""
        return self._end is not None

    # --- open and closed ---

    async def open(self) -> None:
        """Connect, unless that has happened; raises UpstreamError."""
        from antiphon.client.dial import dial  # start-up time

        if self._end is not None:
            raise self._end
        if self._line is not None:
            return
        line = await dial(self._url, self._headers, self._timeouts.connect)
        if self._end is not None:
            line.cut()
            raise self._end
        self._line = line
        self._tasks = [
            asyncio.create_task(self._listen(line)),
            asyncio.create_task(self._watch(line)),
        ]

    async def __aenter__(self) -> "Session":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; whoever still waits is told so."""
        self._finish(closed("this side closed it."))
        try:
            if self._line is not None:
                await self._line.close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- turns ---

    def lane(self, name: str) -> Lane:
        """Return a lane by its name; raises RequestError for what is no name."""
        name = name and lane_of(name)
        return self._lanes.setdefault(name, Lane(self, name))

    def stream(self, *, lane: str | None = None, **fields: Unpack[TurnFields]) -> Stream:
        """Ask for a response, on the default lane if none is named."""
        return self.lane(lane or "").stream(**fields)

    async def begin(self, lane: str, message: bytes) -> SocketSource:
        """Send what a lane asks for when its last turn is over; raises UpstreamError."""
        if before := self._turns.get(lane):
            await before.ended(self._timeouts.idle)
        if self._end is not None:
            raise self._end
        if self._line is None:
            raise RequestError("The session is not open. Use 'async with', or await open().")
        turn = self._turns[lane] = Inbox(lane, self._drained)
        try:
            await self._line.send(message)
        except BaseException:
            turn.leave()  # it may have been sent all the same
            raise
        return SocketSource(turn, self._timeouts, strict=self._strict)

    # --- what comes ---

    async def _listen(self, line: "Line") -> None:
        try:
            while True:
                message = await line.receive()
                self._heard += 1
                turn = self._hear(message)
                while turn is not None and turn.full:
                    self._room.clear()
                    await self._room.wait()
        except UpstreamError as end:
            self._finish(self._warning or end)
        finally:
            self._finish(closed("it is not read any more."))

    def _hear(self, message: bytes) -> Inbox | None:
        """Give a message to its turn; what belongs to none is dropped."""
        label = labelled(message)
        lane = label.stream_id or ""
        turn = self._turn(lane)
        self._warning = None
        if label.type == ERROR:
            failure = enveloped(message)
            if turn is not None:
                self._broken[lane] = response_id(turn.first) if turn.first else None
                self._over(turn, failure)
            elif not lane:
                self._warning = failure  # about the connection, which may close now
        elif turn is not None and label.type not in LAST:
            turn.put(message)
        elif turn is not None and not self._is_late(lane, message):
            turn.put(message)
            self._over(turn)
        return turn

    def _turn(self, lane: str) -> Inbox | None:
        """Find the turn that a message is about.

        A server that knows no lanes names none, and answers in the order it was asked.
        """
        self._named = self._named or lane != ""
        turn = self._turns.get(lane)
        if turn is None and not self._named:
            turn = next(iter(self._turns.values()), None)
        return turn

    def _is_late(self, lane: str, message: bytes) -> bool:
        """Tell whether the end of a response comes after the error that ended its turn."""
        broken = self._broken.pop(lane, None)
        return broken is not None and broken == response_id(message)

    def _over(self, turn: Inbox, failure: UpstreamError | None = None) -> None:
        del self._turns[turn.lane]
        turn.end(failure)

    def _drained(self) -> None:
        """Read on, if a slow reader was waited for."""
        if not self._room.is_set():
            self._heard += 1  # as good as a word: it was we who did not listen
            self._room.set()

    async def _watch(self, line: "Line") -> None:
        """Notice a server that is not there any more."""
        with suppress(UpstreamError):
            while True:
                await asyncio.sleep(PING_SECONDS)
                before = self._heard
                there = await line.answers(PING_SECONDS)
                if not there and self._heard == before and self._room.is_set():
                    self._finish(closed("the server answers no ping."))
                    line.cut()
                    return

    def _finish(self, end: UpstreamError) -> None:
        """End every turn, unless that has happened."""
        self._end = self._end or end
        for turn in self._turns.values():
            turn.end(self._end)
        self._turns.clear()
        self._room.set()
