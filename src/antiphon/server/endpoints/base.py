"""The common shape of all endpoints."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.routing import BaseRoute, Route

from antiphon.protocol.errors import RequestError
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.asgi import AsgiApp, Receive, Scope, Send
from antiphon.server.service import Service
from antiphon.wire.openresponses import Dialect

T = TypeVar("T")


class Endpoints(ABC):
    """The endpoints of one resource at one door."""

    def __init__(self, service: Service, dialect: type[Dialect] = Dialect) -> None:
        self._service = service
        self._settings = service.settings
        self._dialect = dialect

    @abstractmethod
    def routes(self, prefix: str) -> list[BaseRoute]:
        """Return the routes below a door's prefix."""


class MethodDispatcher:
    """Calls the ASGI endpoint of a request's method.

    An object, because Starlette calls plain functions with a `Request`. One route for all methods
    of a path, because Starlette's 405 lists the methods of a single route only.
    """

    def __init__(self, endpoints: Mapping[str, AsgiApp]) -> None:
        self._endpoints = endpoints

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Call the endpoint; not a coroutine itself, which would be one more frame per event."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        return self._endpoints[method](scope, receive, send)


def route(path: str, **endpoints: AsgiApp) -> Route:
    """Return the route of a path; the keywords are its methods."""
    return Route(path, MethodDispatcher(endpoints), methods=list(endpoints))


def parse_body(decode: Callable[[object], T], body: object) -> T:
    """Decode a JSON body; raises RequestError with the path of an invalid value."""
    try:
        return decode(body)
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None
