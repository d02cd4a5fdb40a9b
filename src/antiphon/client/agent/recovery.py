"""What to do when a round has failed, from the gentlest remedy to none.

A server that lost its place is sent everything; one without sockets, or without the Responses API,
is asked in another way; trouble that passes is waited out; then the next model is asked.
"""

import asyncio
import random
import time

from antiphon.client.agent.brief import RunSpec
from antiphon.client.agent.events import ConnectionUpdate, ContextAction, ContextManagement
from antiphon.client.agent.history import RunHistory
from antiphon.client.agent.tool_events import EmitEvent
from antiphon.client.agent.transports import RESPONSE_NOT_FOUND, AgentTransport
from antiphon.protocol.errors import UpstreamError
from antiphon.transport.retry import RetryPolicy, retry_delay

MAX_RETRY_DELAY = 30.0
JITTER = 0.1

DISCONNECT_CODES = frozenset({"websocket_closed", "websocket_connection_limit_reached"})
"""How a socket says that it has come to its end, and what was remembered with it."""

TIMEOUT_CODE = "timeout"
"""How it is said that a server says nothing; a turn on the same socket would wait for its end."""

LOST_STATE_STATUSES = frozenset({400, 404, 422})
"""How a server that remembers nothing refuses to go on, if it has no words for that."""


class Recovery:
    """The remedies of one run; `model` is the one to ask."""

    def __init__(self, spec: RunSpec, transport: AgentTransport, emit: EmitEvent) -> None:
        self.model = spec.model
        self._conversation_id = spec.conversation.id
        self._transport = transport
        self._emit = emit
        self._fallbacks = list(spec.options.fallbacks)
        self._retry_policy = RetryPolicy(
            retries=spec.options.max_retries,
            first_delay=spec.options.retry_delay / 1000,
            max_delay=MAX_RETRY_DELAY,
        )
        self._attempts = 0

    def record_success(self) -> None:
        """Take note that a round went well."""
        self._transport.record_success()
        self._attempts = 0

    async def recover(self, error: UpstreamError, history: RunHistory) -> None:
        """Make ready to ask a round again; raises the error if nothing helps."""
        code = error.payload.code or ""
        left = code in DISCONNECT_CODES or (
            code == TIMEOUT_CODE and self._transport.kind == "websocket"
        )
        if left:
            await self._transport.disconnect()
        lost = left or code == RESPONSE_NOT_FOUND or error.status in LOST_STATE_STATUSES
        if self._transport.drop_encrypted_reasoning(error):
            return
        if self._transport.is_stateful and history.continues and lost:
            history.resend_always()
            action = ContextAction(type="resent_context", reason=code or str(error))
            await self._emit(ContextManagement(action=action))
        elif way := self._transport.fall_back(error):
            id = self._conversation_id
            update = ConnectionUpdate(conversation_id=id, transport=way, reason=str(error))
            await self._emit(update)
        elif (wait := self._retry_delay(error)) is not None:
            self._attempts += 1
            await asyncio.sleep(wait)
        elif self._fallbacks:
            self.model = self._fallbacks.pop(0)
            self._attempts = 0
            history.resend_once()
        else:
            raise error

    def _retry_delay(self, error: UpstreamError) -> float | None:
        def chance(_: float, most: float) -> float:
            return min(MAX_RETRY_DELAY, most * random.uniform(1, 1 + JITTER))  # noqa: S311

        return retry_delay(
            error, self._attempts, self._retry_policy, now=time.time(), uniform=chance
        )
