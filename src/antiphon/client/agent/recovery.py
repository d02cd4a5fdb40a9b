"""What to do when a round has failed, from the gentlest remedy to none.

A server that lost its place is sent everything; one without sockets, or without the Responses API,
is asked in another way; trouble that passes is waited out; then the next model is asked.
"""

import asyncio
import random
import time

from antiphon.client.agent.brief import Brief
from antiphon.client.agent.calling import Tell
from antiphon.client.agent.events import ConnectionUpdate, ContextAction, ContextManagement
from antiphon.client.agent.rounds import Rounds
from antiphon.client.agent.routes import FORGOTTEN, Routes
from antiphon.core.errors import UpstreamError
from antiphon.transport.retry import Patience, delay

LONGEST_WAIT = 30.0
JITTER = 0.1

DISCONNECTED = frozenset({"websocket_closed", "websocket_connection_limit_reached"})
"""How a socket says that it has come to its end, and what was remembered with it."""

LATE = "timeout"
"""How it is said that a server says nothing; a turn on the same socket would wait for its end."""

REFUSING = frozenset({400, 404, 422})
"""How a server that remembers nothing refuses to go on, if it has no words for that."""


class Recovery:
    """The remedies of one run; `model` is the one to ask."""

    def __init__(self, brief: Brief, routes: Routes, tell: Tell) -> None:
        self.model = brief.model
        self._conversation_id = brief.conversation.id
        self._routes = routes
        self._tell = tell
        self._fallbacks = list(brief.options.fallbacks)
        self._patience = Patience(
            retries=brief.options.max_retries,
            first=brief.options.retry_delay / 1000,
            longest=LONGEST_WAIT,
        )
        self._tried = 0

    def succeeded(self) -> None:
        """Take note that a round went well."""
        self._routes.answered()
        self._tried = 0

    async def after(self, error: UpstreamError, rounds: Rounds) -> None:
        """Make ready to ask a round again; raises the error if nothing helps."""
        code = error.payload.code or ""
        left = code in DISCONNECTED or (code == LATE and self._routes.way == "websocket")
        if left:
            await self._routes.disconnect()
        lost = left or code == FORGOTTEN or error.status in REFUSING
        if self._routes.unsealed(error):
            return
        if self._routes.remembers and rounds.continues and lost:
            rounds.stay_whole()
            action = ContextAction(type="resent_context", reason=code or str(error))
            await self._tell(ContextManagement(action=action))
        elif way := self._routes.instead(error):
            id = self._conversation_id
            update = ConnectionUpdate(conversation_id=id, transport=way, reason=str(error))
            await self._tell(update)
        elif (wait := self._wait(error)) is not None:
            self._tried += 1
            await asyncio.sleep(wait)
        elif self._fallbacks:
            self.model = self._fallbacks.pop(0)
            self._tried = 0
            rounds.start_over()
        else:
            raise error

    def _wait(self, error: UpstreamError) -> float | None:
        def chance(_: float, most: float) -> float:
            return min(LONGEST_WAIT, most * random.uniform(1, 1 + JITTER))  # noqa: S311

        return delay(error, self._tried, self._patience, now=time.time(), chance=chance)
