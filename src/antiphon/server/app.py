"""The application: routes and middleware.

`create_app` returns a Starlette application. It needs no lifespan: the first request creates the
engine. With a lifespan, running responses are drained at shutdown.
"""

from collections.abc import Awaitable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp

from antiphon.server.asgi import Receive, Scope, Send
from antiphon.server.endpoints.base import Endpoints
from antiphon.server.endpoints.conversations import ConversationEndpoints
from antiphon.server.endpoints.hashbrown import HashbrownEndpoints
from antiphon.server.endpoints.models import HealthEndpoints, ModelEndpoints
from antiphon.server.endpoints.openapi import OpenApiEndpoints
from antiphon.server.endpoints.responses import ChatCompletionsEndpoint, ResponseEndpoints
from antiphon.server.endpoints.websocket import WebSocketEndpoint
from antiphon.server.middleware import GatewayMiddleware, route_path
from antiphon.server.service import Service
from antiphon.server.settings import Settings
from antiphon.wire.openresponses import Dialect, OpenAIDialect

DOORS: dict[str, type[Dialect]] = {"/v1": Dialect, "/openai/v1": OpenAIDialect, "/openai": OpenAIDialect}
"""The dialect of each prefix."""

# Starlette tries routes in order: responses, which are requested most, come first.
DOOR_ENDPOINTS: tuple[type[Endpoints], ...] = (
    ResponseEndpoints,
    WebSocketEndpoint,
    ChatCompletionsEndpoint,
    ConversationEndpoints,
    ModelEndpoints,
)
"""The endpoints of every door."""

ROOT_ENDPOINTS: tuple[type[Endpoints], ...] = (HashbrownEndpoints, HealthEndpoints, OpenApiEndpoints)
"""The endpoints that exist once, without a prefix."""


class GatewayApplication(Starlette):
    """Starlette without its two error middlewares: ours reports all errors.

    Every layer costs a stream one call per event.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Return the router wrapped by the middleware, the first one outermost."""
        app: ASGIApp = self.router
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


class PostRouteCache:
    """Calls the endpoint of a POST to a fixed path without trying the routes in order."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._apps_by_path: dict[str, ASGIApp] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Call the endpoint or the router; not a coroutine itself."""
        app = None
        if scope["type"] == "http" and scope["method"] == "POST":
            path = route_path(scope)
            app = self._apps_by_path.get(path) or self._find_app(path, scope)
        return (app or self._router.app)(scope, receive, send)

    def _find_app(self, path: str, scope: Scope) -> ASGIApp | None:
        """Return the router's endpoint, and cache it; None for a path with parameters."""
        route = next((route for route in self._router.routes if route.matches(scope)[0] is Match.FULL), None)
        if not isinstance(route, Route) or route.param_convertors:
            return None
        self._apps_by_path[path] = route.app
        return route.app


def create_app(settings: Settings | None = None) -> Starlette:
    """Return an application."""
    settings = settings or Settings()
    service = Service(settings)
    routes: list[BaseRoute] = []
    for prefix, dialect in DOORS.items():
        for endpoints in DOOR_ENDPOINTS:
            routes += endpoints(service, dialect).routes(prefix)
    for endpoints in ROOT_ENDPOINTS:
        routes += endpoints(service).routes("")
    app = GatewayApplication(
        routes=routes, middleware=[Middleware(GatewayMiddleware, settings=settings)], lifespan=service.lifespan
    )
    app.state.service = service
    # A redirected POST loses its body in many clients; an unknown path is a 404.
    app.router.redirect_slashes = False
    app.router.middleware_stack = PostRouteCache(app.router)
    return app
