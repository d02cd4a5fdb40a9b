"""A drop-in for Xaibo's own adapter of the Responses API, with the same constructor, routes and handlers.

    OpenAiResponsesApiAdapter(xaibo, streaming_timeout=30, responses_dir="./data/responses").adapt(app)

or, without a line of code:

    python -m xaibo.server.web --adapter antiphon.server.xaibo.OpenAiResponsesApiAdapter
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from xaibo import AgentConfig, Xaibo
from xaibo.core.protocols import ConversationHistoryProtocol

from antiphon.bridges.xaibo import wrap_agents
from antiphon.bridges.xaibo_messages import convert_to_items
from antiphon.protocol.struct import encode
from antiphon.server.asgi import AsgiApp, Message, Receive, Scope, Send
from antiphon.server.mounting import Antiphon, ApplicationResponse
from antiphon.server.service import Service

PREFIX = "/openai"

ANSWERED_FIELDS = frozenset(
    "id object created_at status error incomplete_details output usage previous_response_id".split()
)
"""The fields of a response that are no fields of its request, and the one that a whole conversation replaces."""


class OpenAiResponsesApiAdapter:
    """Serves all agents of a Xaibo under `/openai/responses`.

    `streaming_timeout` is how many seconds an agent may send nothing before its response fails; 0 means for ever.
    """

    def __init__(self, xaibo: Xaibo, streaming_timeout: float = 10, responses_dir: Path | str = "./responses") -> None:
        self.xaibo = xaibo
        self.streaming_timeout = streaming_timeout
        self.responses_dir = responses_dir
        self._configs: list[AgentConfig] = []
        self._app = Antiphon(demo=False, chunk_timeout=streaming_timeout, responses_dir=responses_dir)
        self.router = APIRouter(lifespan=self._lifespan)
        self.router.add_api_route("/responses", self.create_response, methods=["POST"])
        self.router.add_api_route("/responses/{response_id}", self.get_response, methods=["GET"])
        self.router.add_api_route("/responses/{response_id}", self.delete_response, methods=["DELETE"])
        self.router.add_api_route("/responses/{response_id}/cancel", self.cancel_response, methods=["POST"])
        self.router.add_api_route("/responses/{response_id}/input_items", self.get_input_items, methods=["GET"])

    def adapt(self, app: FastAPI) -> None:
        """Add the routes to an application; at its shutdown, running responses are drained."""
        app.include_router(self.router, prefix=PREFIX)

    async def create_response(self, request: Request) -> Response:
        """Create a response: as JSON, as a stream or in the background."""
        del request
        self._update_agents()
        return ApplicationResponse(self._app)

    async def get_response(self, response_id: str) -> Response:
        """Return a stored response."""
        del response_id
        return ApplicationResponse(self._app)

    async def delete_response(self, response_id: str) -> Response:
        """Delete a response and all that belongs to it."""
        del response_id
        return ApplicationResponse(self._app)

    async def cancel_response(self, response_id: str) -> Response:
        """Cancel a background response."""
        del response_id
        return ApplicationResponse(self._app)

    async def get_input_items(self, response_id: str) -> Response:
        """List a page of the input items of a response."""
        del response_id
        return ApplicationResponse(self._app)

    async def _handle_streaming_response(
        self, response_data: Mapping[str, object], last_user_message: str, conversation: ConversationHistoryProtocol
    ) -> Response:
        """Stream a response to a conversation that an overridden `create_response` has prepared."""
        return await self._respond(response_data, last_user_message, conversation, stream=True)

    async def _handle_non_streaming_response(
        self, response_data: Mapping[str, object], last_user_message: str, conversation: ConversationHistoryProtocol
    ) -> Response:
        """Return a response to a conversation that an overridden `create_response` has prepared."""
        return await self._respond(response_data, last_user_message, conversation, stream=False)

    async def _respond(
        self,
        response_data: Mapping[str, object],
        last_user_message: str,
        conversation: ConversationHistoryProtocol,
        *,
        stream: bool,
    ) -> Response:
        self._update_agents()
        kept = {key: value for key, value in response_data.items() if key not in ANSWERED_FIELDS}
        items = convert_to_items(await conversation.get_history(), last_user_message)
        body = encode({**kept, "input": items, "stream": stream})
        return ApplicationResponse(BodyReplacement(self._app, body))

    def _update_agents(self) -> None:
        """Serve the agents that Xaibo knows now: its web server reloads them."""
        configs = [self.xaibo.get_agent_config(name) for name in self.xaibo.list_agents()]
        if [*map(id, configs)] != [*map(id, self._configs)]:
            service: Service = self._app.state.service
            service.models.set_agents(wrap_agents(self.xaibo))
            self._configs = configs

    @asynccontextmanager
    async def _lifespan(self, app: object) -> AsyncGenerator[None]:
        # Responses that were queued when the last process ended need the agents.
        self._update_agents()
        async with self._app.lifespan(app):
            yield


class BodyReplacement:
    """An application that reads another body than the one that the client has sent."""

    def __init__(self, app: AsgiApp, body: bytes) -> None:
        self._app = app
        self._body: bytes | None = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._body or b""

        async def receive_body() -> Message:
            if self._body is None:
                return await receive()
            self._body = None
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [header for header in scope["headers"] if header[0] not in (b"content-length", b"transfer-encoding")]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._app({**scope, "headers": headers}, receive_body, send)
