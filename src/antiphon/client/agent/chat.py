"""Servers that only speak chat completions, heard as if they spoke Open Responses.

The request goes through the chat adapter and the answer through the engine, as in the gateway; so
whoever reads the stream cannot tell the difference, and nothing here knows the chat dialect.
"""

import asyncio
import time
from collections.abc import Sequence

from antiphon.adapters.base import Provider
from antiphon.agents.turn import Turn
from antiphon.client.link import Link
from antiphon.core.events import Event
from antiphon.core.items import Item
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.engine.ids import new_id
from antiphon.engine.run import Run
from antiphon.engine.upstream import Link as Upstream
from antiphon.engine.upstream import UpstreamModel
from antiphon.transport.retry import Patience

ENOUGH = 1024
"""How many events may wait for their reader before the server is held back."""


async def ask_in_chat(link: Link, request: Request, items: Sequence[Item]) -> "ChatSource":
    """Ask for a completion; returns when the answer begins. Raises UpstreamError."""
    id = new_id("resp")
    made = Response.new(request, id=id, created_at=int(time.time()))
    provider = Provider(
        name=link.who, adapter="openai", base_url=link.base_url, headers=link.headers
    )
    upstream = Upstream(provider, None, link.transport(), Patience(retries=0))
    model = UpstreamModel(upstream, request.model or "")
    turn = Turn(request=request, input=items, response_id=id)
    source = ChatSource()
    await source.hear(Run(model.answer, turn, Synth(made, ids=new_id, clock=time.time), source))
    return source


class ChatSource:
    """One completion, as the events of a response: the outlet of its run."""

    def __init__(self) -> None:
        self._waiting: list[Event] = []
        self._moved = asyncio.Event()
        self._run: Run | None = None
        self._task: asyncio.Task[Response] | None = None

    # --- for its reader ---

    @property
    def response(self) -> Response | None:
        """The response as far as it is known."""
        return self._run.response if self._run else None

    async def hear(self, run: Run) -> None:
        """Drive a run in the background, and wait until its model begins to answer."""
        task = self._task = asyncio.create_task(run.drive())
        task.add_done_callback(lambda _: self._moved.set())
        try:
            await run.begun.wait()
            if not run.answering:
                await task
        except BaseException:
            await self.close()
            raise
        self._run = run

    async def batch(self) -> list[Event]:
        """Return what has come; nothing at the end."""
        while not (self._waiting or self._task is None or self._task.done()):
            self._moved.clear()
            await self._moved.wait()
        batch, self._waiting = self._waiting, []
        self._moved.set()
        return batch

    async def close(self) -> None:
        """Stop listening; the connection is closed if the answer is not over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # --- for the run ---

    @property
    def full(self) -> bool:
        """Whether more than enough waits to be read."""
        return len(self._waiting) > ENOUGH

    def write(self, events: Sequence[Event]) -> None:
        """Take events."""
        self._waiting += events
        self._moved.set()

    async def drained(self) -> None:
        """Return when more may be given."""
        while self.full:
            self._moved.clear()
            await self._moved.wait()
