"""Antiphon as a part of another application: `Antiphon(…).adapt(app)`."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from antiphon.protocol.struct import InvalidValueError
from antiphon.server.app import create_app
from antiphon.server.asgi import AsgiApp, Message, Receive, Scope, Send
from antiphon.server.middleware import PUBLIC_PATHS
from antiphon.server.service import Service
from antiphon.server.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Antiphon(Settings):
    """Settings, and the ASGI application that they make.

    It can be served, mounted in another application, or add its endpoints to one:

        Antiphon(agents=[my_agent]).adapt(app)                  # app has POST /v1/responses
        Antiphon(agents=[my_agent]).adapt(app, prefix="/ai")    # app has POST /ai/v1/responses
    """

    @cached_property
    def app(self) -> Starlette:
        """The application."""
        return create_app(self)

    @property
    def state(self) -> State:
        """The state of the application."""
        return self.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, a WebSocket or a lifespan."""
        await self.app(scope, receive, send)

    def lifespan(self, app: object) -> AbstractAsyncContextManager[None]:
        """Start before the first request and drain after the last: for an application in which this one is mounted."""
        service: Service = self.state.service
        return service.lifespan(app)

    def adapt(self, app: Starlette, prefix: str = "") -> None:
        """Add the endpoints to a FastAPI or Starlette application, below a prefix.

        Other paths are left to the application, and so are the health checks. Its middleware applies to the endpoints,
        and so do the `dependencies` of a FastAPI application. At its shutdown, running responses are drained before its
        own lifespan ends.
        """
        prefix = prefix.rstrip("/")
        if prefix and not prefix.startswith("/"):
            raise InvalidValueError("prefix", f"'{prefix}' does not begin with a slash. Write '/{prefix}'.")
        below = BelowPrefix(self.app, prefix)
        # The methods of FastAPI, which is no dependency, apply its dependencies.
        add_route: Callable[..., None] = getattr(app, "add_api_route", app.router.add_route)
        add_websocket_route = getattr(app, "add_api_websocket_route", app.router.add_websocket_route)
        for route in self.app.routes:
            if isinstance(route, WebSocketRoute):
                add_websocket_route(prefix + route.path, below.run_websocket)
            elif isinstance(route, Route) and route.path not in PUBLIC_PATHS:
                methods = sorted(route.methods or ())
                add_route(prefix + route.path, below.respond, methods=methods, include_in_schema=False)
                if self.allowed_origins:
                    # Without FastAPI's dependencies: a browser's preflight has no credentials.
                    app.router.add_route(prefix + route.path, below.respond, ["OPTIONS"], include_in_schema=False)
        app.state.antiphon = self.state.service
        own_lifespan: Callable[[object], AbstractAsyncContextManager[Any]] = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(outer: object) -> AsyncGenerator[Any]:
            # The innermost, because agents may use what the application's own lifespan opens.
            async with own_lifespan(outer) as state, self.lifespan(outer):
                yield state

        app.router.lifespan_context = lifespan


class BelowPrefix:
    """An application whose routes are routes of another one, below a prefix."""

    def __init__(self, app: Starlette, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def respond(self, request: Request) -> Response:
        """Return the application's response."""
        del request
        return ApplicationResponse(self)

    async def run_websocket(self, websocket: WebSocket) -> None:
        """Run a WebSocket in the application."""

        async def send(message: Message) -> None:
            try:
                await websocket.send(message)
            except WebSocketDisconnect as error:
                raise OSError from error  # what it was before Starlette converted it

        await self(websocket.scope, websocket.receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "")
        # FastAPI(root_path=…) is the prefix of a proxy, which ASGI has in both and which the proxy has removed.
        if not scope["path"].startswith(root):
            scope["path"] = root + scope["path"]
        # As `Mount` does: the application's own paths begin after the prefix.
        scope["root_path"] = root + self._prefix
        await self._app(scope, receive, send)


class ApplicationResponse(Response):
    """A response that an application sends, followed by the background tasks of a route's dependencies."""

    def __init__(self, app: AsgiApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        if self.background is not None:
            await self.background()
