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

from antiphon.server.catalogue import Catalogue
from antiphon.server.chat import CompleteChat
from antiphon.server.compact import CompactConversation
from antiphon.server.conversations import ConversationEndpoints
from antiphon.server.edge import Edge, route_path
from antiphon.server.hashbrown import AnswerHashbrown
from antiphon.server.http import App, Receive, Scope, Send
from antiphon.server.responses import CreateResponse
from antiphon.server.service import Service, stopping
from antiphon.server.settings import Settings
from antiphon.server.socket import ConnectResponses
from antiphon.server.stored import Kept
from antiphon.server.tokens import CountTokens
from antiphon.wire import json
from antiphon.wire.dialects import Dialect, OpenAIDialect

DOORS: dict[str, type[Dialect]] = {
    "/v1": Dialect,
    "/openai/v1": OpenAIDialect,
    "/openai": OpenAIDialect,
}
"""Each prefix, and the dialect that is spoken there."""

HASHBROWN = "/hashbrown/chat"
"""Where Hashbrown's clients ask."""


class Application(Starlette):
    """Starlette without its own two layers for errors: the edge answers for all of them.

    Every layer that a stream passes is paid for once per event.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Put the middleware around the router, the first one outermost."""
        app: ASGIApp = self.router
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


class Shortcut:
    """The core of the router, and a way past it to what is posted to a fixed path, as most is."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._known: dict[str, ASGIApp] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on; there is nothing to wait for here."""
        straight = None
        if scope["type"] == "http" and scope["method"] == "POST":
            path = route_path(scope)
            straight = self._known.get(path) or self._learn(path, scope)
        return (straight or self._router.app)(scope, receive, send)

    def _learn(self, path: str, scope: Scope) -> ASGIApp | None:
        """Find out where the router would lead; remember it if the path is all that it asks."""
        matching = (r for r in self._router.routes if r.matches(scope)[0] is Match.FULL)
        route = next(matching, None)
        if not isinstance(route, Route) or route.param_convertors:
            return None
        self._known[path] = route.app
        return route.app


def create_app(settings: Settings | None = None) -> Starlette:
    """Make the application."""
    settings = settings or Settings()
    service = Service(settings)
    health, models = Health(service), Catalogue(service)
    routes: list[BaseRoute] = []  # they are tried in order, and responses are asked for most
    for prefix, dialect in DOORS.items():
        kept = Kept(service, dialect)
        create = CreateResponse(service, dialect)
        routes += [
            Route(f"{prefix}/responses", create, methods=["POST"]),
            WebSocketRoute(f"{prefix}/responses", ConnectResponses(service, dialect)),
            Route(
                f"{prefix}/responses/compact",
                CompactConversation(service, dialect),
                methods=["POST"],
            ),
            Route(f"{prefix}/responses/input_tokens", CountTokens(service), methods=["POST"]),
            Route(f"{prefix}/responses/{{id}}", raw(kept.one), methods=["GET", "DELETE"]),
            Route(f"{prefix}/responses/{{id}}/cancel", raw(kept.cancel), methods=["POST"]),
            Route(f"{prefix}/responses/{{id}}/input_items", raw(kept.input_items), methods=["GET"]),
            Route(f"{prefix}/chat/completions", CompleteChat(service), methods=["POST"]),
            *conversation_routes(prefix, ConversationEndpoints(service, dialect)),
            Route(f"{prefix}/models", models.list, methods=["GET"]),
            Route(f"{prefix}/models/{{id:path}}", models.one, methods=["GET"]),
        ]
    routes += [
        Route(HASHBROWN, AnswerHashbrown(service), methods=["POST"]),
        Route("/healthz", health.alive, methods=["GET"]),
        Route("/readyz", health.ready, methods=["GET"]),
    ]
    app = Application(
        routes=routes,
        middleware=[Middleware(Edge, settings=settings)],
        lifespan=service.lifespan,
    )
    app.state.service = service
    app.router.redirect_slashes = False
    app.router.middleware_stack = Shortcut(app.router)
    return app


def conversation_routes(prefix: str, conversations: ConversationEndpoints) -> list[BaseRoute]:
    """Return the paths of a door that lead to conversations."""
    path = f"{prefix}/conversations"
    one, item = f"{path}/{{id}}", f"{path}/{{id}}/items/{{item_id}}"
    return [
        Route(path, raw(conversations.create), methods=["POST"]),
        Route(one, raw(conversations.one), methods=["GET", "POST", "DELETE"]),
        Route(f"{one}/items", raw(conversations.items), methods=["GET", "POST"]),
        Route(item, raw(conversations.item), methods=["GET", "DELETE"]),
    ]


class Health:
    """Whether the process is alive, and whether requests are welcome."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def alive(self, request: Request) -> Response:
        """Say that the process is alive."""
        del request
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Say that requests are welcome, or raise what keeps them away."""
        del request
        if self._service.draining:
            raise stopping()
        await self._service.engine()
        return _json({"status": "ready"})


class raw:  # noqa: N801 - used as a function
    """An endpoint that speaks ASGI itself; Starlette takes a function for one that does not."""

    def __init__(self, endpoint: App) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        await self._endpoint(scope, receive, send)


def _json(value: object) -> Response:
    return Response(json.encode(value), media_type="application/json")
