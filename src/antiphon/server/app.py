"""The application: which path leads where.

`create_app` makes a Starlette application that can be served as it is, or mounted under a prefix
in anyone's Starlette or FastAPI application. It needs no lifespan: what it needs is made when the
first request comes. With one, what runs is given time to end.
"""

from collections.abc import Awaitable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router, WebSocketRoute
from starlette.types import ASGIApp

from antiphon.server.asgi import (
    AsgiApp,
    Receive,
    Scope,
    Send,
)
from antiphon.server.endpoints.chat_completions import ChatCompletionsEndpoint
from antiphon.server.endpoints.compact import CompactEndpoint
from antiphon.server.endpoints.conversations import ConversationEndpoints
from antiphon.server.endpoints.hashbrown import HashbrownEndpoint
from antiphon.server.endpoints.input_tokens import InputTokensEndpoint
from antiphon.server.endpoints.models import ModelEndpoints
from antiphon.server.endpoints.responses import CreateResponse
from antiphon.server.endpoints.stored_responses import StoredResponseEndpoints
from antiphon.server.endpoints.websocket import WebSocketEndpoint
from antiphon.server.middleware import GatewayMiddleware, route_path
from antiphon.server.service import Service, server_stopping_error
from antiphon.server.settings import Settings
from antiphon.wire import json
from antiphon.wire.openresponses import Dialect, OpenAIDialect

DOORS: dict[str, type[Dialect]] = {
    "/v1": Dialect,
    "/openai/v1": OpenAIDialect,
    "/openai": OpenAIDialect,
}
"""Each prefix, and the dialect that is spoken there."""

HASHBROWN_PATH = "/hashbrown/chat"
"""Where Hashbrown's clients ask."""


class GatewayApplication(Starlette):
    """Starlette without its own two layers for errors: the edge answers for all of them.

    Every layer that a stream passes is paid for once per event.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Put the middleware around the router, the first one outermost."""
        app: ASGIApp = self.router
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


class PostRouteCache:
    """The core of the router, and a way past it to what is posted to a fixed path, as most is."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._apps_by_path: dict[str, ASGIApp] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on; there is nothing to wait for here."""
        straight = None
        if scope["type"] == "http" and scope["method"] == "POST":
            path = route_path(scope)
            straight = self._apps_by_path.get(path) or self._find_app(path, scope)
        return (straight or self._router.app)(scope, receive, send)

    def _find_app(self, path: str, scope: Scope) -> ASGIApp | None:
        """Find out where the router would lead; remember it if the path is all that it asks."""
        matching = (r for r in self._router.routes if r.matches(scope)[0] is Match.FULL)
        route = next(matching, None)
        if not isinstance(route, Route) or route.param_convertors:
            return None
        self._apps_by_path[path] = route.app
        return route.app


def create_app(settings: Settings | None = None) -> Starlette:
    """Make the application."""
    settings = settings or Settings()
    service = Service(settings)
    health, models = HealthEndpoints(service), ModelEndpoints(service)
    routes: list[BaseRoute] = []  # they are tried in order, and responses are asked for most
    for prefix, dialect in DOORS.items():
        kept = StoredResponseEndpoints(service, dialect)
        create = CreateResponse(service, dialect)
        routes += [
            Route(f"{prefix}/responses", create, methods=["POST"]),
            WebSocketRoute(f"{prefix}/responses", WebSocketEndpoint(service, dialect)),
            Route(
                f"{prefix}/responses/compact",
                CompactEndpoint(service, dialect),
                methods=["POST"],
            ),
            Route(
                f"{prefix}/responses/input_tokens", InputTokensEndpoint(service), methods=["POST"]
            ),
            Route(
                f"{prefix}/responses/{{id}}",
                AsgiEndpoint(kept.get_or_delete),
                methods=["GET", "DELETE"],
            ),
            Route(f"{prefix}/responses/{{id}}/cancel", AsgiEndpoint(kept.cancel), methods=["POST"]),
            Route(
                f"{prefix}/responses/{{id}}/input_items",
                AsgiEndpoint(kept.input_items),
                methods=["GET"],
            ),
            Route(f"{prefix}/chat/completions", ChatCompletionsEndpoint(service), methods=["POST"]),
            *conversation_routes(prefix, ConversationEndpoints(service, dialect)),
            Route(f"{prefix}/models", models.list_models, methods=["GET"]),
            Route(f"{prefix}/models/{{id:path}}", models.get_model, methods=["GET"]),
        ]
    routes += [
        Route(HASHBROWN_PATH, HashbrownEndpoint(service), methods=["POST"]),
        Route("/healthz", health.healthz, methods=["GET"]),
        Route("/readyz", health.readyz, methods=["GET"]),
    ]
    app = GatewayApplication(
        routes=routes,
        middleware=[Middleware(GatewayMiddleware, settings=settings)],
        lifespan=service.lifespan,
    )
    app.state.service = service
    app.router.redirect_slashes = False
    app.router.middleware_stack = PostRouteCache(app.router)
    return app


def conversation_routes(prefix: str, conversations: ConversationEndpoints) -> list[BaseRoute]:
    """Return the paths of a door that lead to conversations."""
    path = f"{prefix}/conversations"
    one, item = f"{path}/{{id}}", f"{path}/{{id}}/items/{{item_id}}"
    return [
        Route(path, AsgiEndpoint(conversations.create), methods=["POST"]),
        Route(
            one, AsgiEndpoint(conversations.get_update_or_delete), methods=["GET", "POST", "DELETE"]
        ),
        Route(
            f"{one}/items", AsgiEndpoint(conversations.list_or_add_items), methods=["GET", "POST"]
        ),
        Route(item, AsgiEndpoint(conversations.get_or_delete_item), methods=["GET", "DELETE"]),
    ]


class HealthEndpoints:
    """Whether the process is alive, and whether requests are welcome."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def healthz(self, request: Request) -> Response:
        """Say that the process is alive."""
        del request
        return _json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Say that requests are welcome, or raise what keeps them away."""
        del request
        if self._service.draining:
            raise server_stopping_error()
        await self._service.engine()
        return _json_response({"status": "ready"})


class AsgiEndpoint:
    """An endpoint that speaks ASGI itself; Starlette takes a function for one that does not."""

    def __init__(self, endpoint: AsgiApp) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        await self._endpoint(scope, receive, send)


def _json_response(value: object) -> Response:
    return Response(json.encode(value), media_type="application/json")
