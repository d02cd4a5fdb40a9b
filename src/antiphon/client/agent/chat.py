"""Servers that only speak chat completions, heard as if they spoke Open Responses.

The request goes through the chat adapter and the answer through the engine, as in the gateway; so
whoever reads the stream cannot tell the difference, and nothing here knows the chat dialect.
"""

import asyncio
import time
from collections.abc import Sequence

from antiphon.adapters.base import Provider
from antiphon.agents.turn import Turn
from antiphon.client.event_buffer import EventBuffer
from antiphon.client.http import HttpApi
from antiphon.engine.interfaces import EventSink
from antiphon.engine.persistence import new_id
from antiphon.engine.provider_model import ProviderClient, ProviderModel
from antiphon.engine.run import Run
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.transport.retry import RetryPolicy

MAX_BUFFERED_EVENTS = 1024
"""How many events may wait for their reader before the server is held back."""


async def open_chat_source(
    http: HttpApi, request: Request, items: Sequence[Item]
) -> "ChatEventSource":
    """Ask for a completion; returns when the answer begins. Raises UpstreamError."""
    id = new_id("resp")
    made = Response.new(request, id=id, created_at=int(time.time()))
    provider = Provider(
        name=http.server_name, adapter="openai", base_url=http.base_url, headers=http.headers
    )
    link = ProviderClient(provider, http.api_key, http.transport(), RetryPolicy(retries=0))
    model = ProviderModel(link, request.model or "")
    turn = Turn(request=request, input=items, response_id=id)
    channel = ChatEventBuffer(MAX_BUFFERED_EVENTS)
    synth = Synth(made, ids=new_id, clock=time.time)
    source = ChatEventSource(Run(model.answer, turn, synth, channel), channel)
    await source.wait_started()
    return source


class ChatEventBuffer(EventBuffer[Event], EventSink):
    """What has been told of a completion."""


class ChatEventSource:
    """One completion, as the events of a response."""

    def __init__(self, run: Run, buffer: ChatEventBuffer) -> None:
        self._run = run
        self._buffer = buffer
        self._task = asyncio.create_task(run.execute())
        self._task.add_done_callback(lambda _: buffer.close())

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._run.response

    async def wait_started(self) -> None:
        """Wait until the model begins to answer; raises UpstreamError."""
        try:
            await self._run.started.wait()
            if not self._run.answering:
                await self._task
        except BaseException:
            await self.close()
            raise

    async def next_batch(self) -> list[Event]:
        """Return what has come; nothing at the end."""
        return await self._buffer.next_batch()

    async def close(self) -> None:
        """Stop listening; the connection is closed if the answer is not over."""
        self._task.cancel()
        await asyncio.wait([self._task])
