"""The transports of an agent run: WebSocket, the Responses API over HTTP, or chat completions.

All three give the same stream of events. The first two continue a response that the server remembers; a chat is sent
the whole conversation in every round. `Recovery` decides what to do when a round fails, from the least intrusive
measure to none: send the whole context, switch to another transport, retry, ask the next model.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from antiphon.adapters.base import Provider
from antiphon.adapters.open_responses.adapter import encode_items, is_missing_endpoint, is_reasoning_unsupported
from antiphon.adapters.openai_chat.servers import is_openai
from antiphon.agents.turn import Turn
from antiphon.client.agent.context_window import RunHistory
from antiphon.client.agent.conversation import build_request
from antiphon.client.agent.events import ConnectionUpdate, ContextAction, ContextManagement, EmitEvent
from antiphon.client.http import HttpApi
from antiphon.client.stream import EventBuffer, EventSource, Stream
from antiphon.engine.models import EventSink
from antiphon.engine.provider_model import ProviderClient, ProviderModel
from antiphon.engine.run import Run
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING, Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import as_array
from antiphon.protocol.synth import Synth
from antiphon.store.ids import new_id
from antiphon.transport.retry import RetryPolicy, retry_delay

if TYPE_CHECKING:
    from antiphon.client.agent.loop import RunSpec
    from antiphon.client.agent.run import AgentOptions
    from antiphon.client.async_client import AsyncClient
    from antiphon.client.websocket import Session

TransportKind = Literal["websocket", "http", "chat"]

WEBSOCKET_REFUSED = "websocket_refused"
RESPONSE_NOT_FOUND = "previous_response_not_found"
TIMEOUT_CODE = "timeout"

DISCONNECT_CODES = frozenset({"websocket_closed", "websocket_connection_limit_reached"})
"""Error codes after which a WebSocket is closed and its remembered responses are lost."""

LOST_STATE_STATUSES = frozenset({400, 404, 422})
"""Statuses with which servers reject an unknown `previous_response_id` if not with the code."""

MAX_RETRY_DELAY = 30.0
JITTER = 0.1

MAX_BUFFERED_CHAT_EVENTS = 1024
"""Number of unread events of a chat completion at which its connection is paused."""


class AgentTransport:
    """The transport of one run, and the ones it may switch to."""

    def __init__(self, client: "AsyncClient", options: "AgentOptions") -> None:
        self._client = client
        self._is_undecided = options.use_responses_api is None
        """Whether the server may still turn out to have chat completions only."""
        self._wants_encrypted_reasoning = True
        """Whether encrypted reasoning is requested, so that it can be sent back."""
        self._is_openai = is_openai(client.base_url)
        self._session: Session | None = None
        self.kind: TransportKind = "http"
        if options.use_responses_websocket:
            self.kind = "websocket"
        elif options.use_responses_api is False or (self._is_undecided and client.is_chat_only):
            self.kind = "chat"

    def stream(self, fields: dict[str, object], history: RunHistory) -> Stream:
        """Send the next round."""
        if self.kind == "chat":
            request = build_request(fields | {"stream": True, "store": False})
            return Stream(partial(open_chat_source, self._client.http, request, history.items))
        previous = history.previous_id
        new_items = history.items if previous is None else history.new_items
        encrypted = self._wants_encrypted_reasoning
        items = encode_items(new_items, reasoning=encrypted, is_openai=self._is_openai)
        # The client keeps the conversation itself, so the server need not store the responses.
        body = fields | {"input": items, "store": False}
        if encrypted:
            include = as_array(fields.get("include"))
            missing = {INCLUDE_ENCRYPTED_REASONING}.difference(include)
            body["include"] = [*include, *missing]
        if previous is not None:
            body["previous_response_id"] = previous
        if self.kind == "websocket":
            return Stream(partial(self._open_websocket_source, body))
        return self._client.stream_without_retries(body)

    def check_continuation(self, response: Response, history: RunHistory) -> None:
        """Raise UpstreamError if a response does not continue the one it was asked to.

        A server that stores nothing may ignore `previous_response_id` without an error, but then
        its response does not repeat it.
        """
        if self.kind != "chat" and history.previous_id and response.previous_response_id is None:
            message = "The server does not continue the response that it was asked to."
            raise UpstreamError(message, status=400, code=RESPONSE_NOT_FOUND)

    def record_success(self) -> None:
        """Keep the current transport for the rest of the run."""
        # Remembered for later runs of this client, which need not try /responses again.
        if self._is_undecided and self.kind == "chat":
            self._client.is_chat_only = True
        self._is_undecided = False

    def drop_encrypted_reasoning(self, error: UpstreamError) -> bool:
        """Stop requesting encrypted reasoning if the error rejects it; return whether it does."""
        rejected = self._wants_encrypted_reasoning and is_reasoning_unsupported(error)
        self._wants_encrypted_reasoning = self._wants_encrypted_reasoning and not rejected
        return rejected

    def fall_back(self, error: UpstreamError) -> TransportKind | None:
        """Switch to another transport if the server lacks this one; return its name."""
        if self.kind == "websocket" and error.payload.code == WEBSOCKET_REFUSED:
            self.kind = "http"
        # Only before the first success: a 404 later means something else.
        elif self.kind == "http" and self._is_undecided and is_missing_endpoint(error):
            self.kind = "chat"
        else:
            return None
        return self.kind

    async def disconnect(self) -> None:
        """Close the WebSocket, if one is open; the next round opens another."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _open_websocket_source(self, body: dict[str, object]) -> EventSource:
        # A server remembers responses per connection, so the run keeps one open.
        if self._session is None or self._session.closed:
            session = self._client.connect()
            await session.open()
            self._session = session
        return await self._session.lane("").open_source(body)


class Recovery:
    """Decides how a failed round is repeated; `model` is the one to ask."""

    def __init__(self, spec: "RunSpec", transport: AgentTransport, emit: EmitEvent) -> None:
        self.model = spec.model
        self._conversation_id = spec.conversation.id
        self._transport = transport
        self._emit = emit
        self._fallbacks = list(spec.options.fallbacks)
        self._retry_policy = RetryPolicy(
            retries=spec.options.max_retries, first_delay=spec.options.retry_delay / 1000, max_delay=MAX_RETRY_DELAY
        )
        self._attempts = 0

    def record_success(self) -> None:
        """Reset the count of attempts after a successful round."""
        self._transport.record_success()
        self._attempts = 0

    async def recover(self, error: UpstreamError, history: RunHistory) -> None:
        """Prepare to repeat a round; raises the error if nothing can help."""
        code = error.payload.code or ""
        # After a timeout the server still owes the old turn: a new one on the same socket would wait for it.
        timed_out = code == TIMEOUT_CODE and self._transport.kind == "websocket"
        disconnected = code in DISCONNECT_CODES or timed_out
        if disconnected:
            await self._transport.disconnect()
        lost_state = disconnected or code == RESPONSE_NOT_FOUND or error.status in LOST_STATE_STATUSES
        if self._transport.drop_encrypted_reasoning(error):
            return
        if self._transport.kind != "chat" and history.previous_id and lost_state:
            history.resend_always()
            action = ContextAction(type="resent_context", reason=code or str(error))
            await self._emit(ContextManagement(action=action))
        elif kind := self._transport.fall_back(error):
            id = self._conversation_id
            await self._emit(ConnectionUpdate(conversation_id=id, transport=kind, reason=str(error)))
        elif (delay := self._retry_delay(error)) is not None:
            self._attempts += 1
            await asyncio.sleep(delay)
        elif self._fallbacks:
            self.model = self._fallbacks.pop(0)
            self._attempts = 0
            history.previous_id = None  # that response is another model's: send all items
        else:
            raise error

    def _retry_delay(self, error: UpstreamError) -> float | None:
        # At least the documented delay, plus a little: full jitter would start below it.
        def add_jitter(_: float, delay: float) -> float:
            return min(MAX_RETRY_DELAY, delay * random.uniform(1, 1 + JITTER))  # noqa: S311

        return retry_delay(error, self._attempts, self._retry_policy, now=time.time(), uniform=add_jitter)


async def open_chat_source(http: HttpApi, request: Request, items: Sequence[Item]) -> "ChatEventSource":
    """Request a chat completion; return when the answer begins. Raises UpstreamError.

    The request goes through the chat adapter and the answer through the engine, as in the
    gateway. So nothing here knows the chat dialect.
    """
    id = new_id("resp")
    response = Response.new(request, id=id, created_at=int(time.time()))
    provider = Provider(name=http.server_name, adapter="openai", base_url=http.base_url, headers=http.headers)
    client = ProviderClient(provider, http.api_key, http.transport(), RetryPolicy(retries=0))
    model = ProviderModel(client, request.model or "")
    turn = Turn(request=request, input=items, response_id=id)
    buffer = ChatEventBuffer(MAX_BUFFERED_CHAT_EVENTS)
    run = Run(model.answer, turn, Synth(response, ids=new_id, clock=time.time), buffer)
    source = ChatEventSource(run, buffer)
    await source.wait_started()
    return source


class ChatEventBuffer(EventBuffer[Event], EventSink):
    """The events of a chat completion, on their way from the engine to the stream."""


class ChatEventSource(EventSource):
    """A chat completion as the events of a response."""

    def __init__(self, run: Run, buffer: ChatEventBuffer) -> None:
        self._run = run
        self._buffer = buffer
        self._task = asyncio.create_task(run.execute())
        self._task.add_done_callback(lambda _: buffer.close())

    @property
    def response(self) -> Response:
        return self._run.response

    async def wait_started(self) -> None:
        """Wait until the answer begins; raises UpstreamError."""
        try:
            await self._run.started.wait()
            # The task failed before the first token; awaiting it raises its error.
            if not self._run.answering:
                await self._task
        except BaseException:
            await self.close()
            raise

    async def next_batch(self) -> list[Event]:
        return await self._buffer.next_batch()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
