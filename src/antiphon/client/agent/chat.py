"""Servers that only speak chat completions, heard as if they spoke Open Responses.

The request goes through the chat adapter and the answer through the engine, as in the gateway; so
whoever reads the stream cannot tell the difference, and nothing here knows the chat dialect.
"""

import asyncio
import time
from collections.abc import Sequence

from antiphon.adapters.base import Provider
from antiphon.agents.turn import Turn
from antiphon.client.channel import Channel
from antiphon.client.peer import Peer
from antiphon.core.events import Event
from antiphon.core.items import Item
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.engine.ids import new_id
from antiphon.engine.outlet import Outlet
from antiphon.engine.run import Run
from antiphon.engine.upstream import Link, UpstreamModel
from antiphon.transport.retry import Patience

ENOUGH = 1024
"""How many events may wait for their reader before the server is held back."""


async def ask_in_chat(peer: Peer, request: Request, items: Sequence[Item]) -> "ChatSource":
    """Ask for a completion; returns when the answer begins. Raises UpstreamError."""
    id = new_id("resp")
    made = Response.new(request, id=id, created_at=int(time.time()))
    provider = Provider(
        name=peer.who, adapter="openai", base_url=peer.base_url, headers=peer.headers
    )
    link = Link(provider, peer.key, peer.transport(), Patience(retries=0))
    model = UpstreamModel(link, request.model or "")
    turn = Turn(request=request, input=items, response_id=id)
    channel = Told(ENOUGH)
    synth = Synth(made, ids=new_id, clock=time.time)
    source = ChatSource(Run(model.answer, turn, synth, channel), channel)
    await source.begun()
    return source


class Told(Channel[Event], Outlet):
    """What has been told of a completion."""


class ChatSource:
    """One completion, as the events of a response."""

    def __init__(self, run: Run, channel: Told) -> None:
        self._run = run
        self._channel = channel
        self._task = asyncio.create_task(run.drive())
        self._task.add_done_callback(lambda _: channel.close())

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._run.response

    async def begun(self) -> None:
        """Wait until the model begins to answer; raises UpstreamError."""
        try:
            await self._run.begun.wait()
            if not self._run.answering:
                await self._task
        except BaseException:
            await self.close()
            raise

    async def batch(self) -> list[Event]:
        """Return what has come; nothing at the end."""
        return await self._channel.batch()

    async def close(self) -> None:
        """Stop listening; the connection is closed if the answer is not over."""
        self._task.cancel()
        await asyncio.wait([self._task])
