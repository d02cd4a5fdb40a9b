"""The common shape of all endpoints, and the checks of query and path parameters."""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TypeVar, cast, get_args
from urllib.parse import parse_qsl

from starlette.routing import BaseRoute, Route

from antiphon.protocol.errors import RequestError
from antiphon.server.asgi import AsgiApp, Receive, Scope, Send
from antiphon.server.service import Service
from antiphon.store.base import Order, PageCursor
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


def route(path: str, **endpoints: AsgiApp) -> Route:
    """Return the route of a path; the keywords are its methods."""

    # Not a coroutine itself, which would be one more frame per event.
    def call_endpoint(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return endpoints["GET" if scope["method"] == "HEAD" else scope["method"]](scope, receive, send)

    # One route for all methods, because Starlette's 405 lists the methods of a single route only.
    found = Route(path, call_endpoint, methods=list(endpoints))
    found.app = call_endpoint  # Starlette itself would call a function with a `Request`
    return found


# Our ids are a prefix and random characters. Anything else is not looked up at all.
RESOURCE_ID = re.compile(r"[a-z]{2,8}_[A-Za-z0-9]{32,64}")
MAX_INT64 = 2**63 - 1
"""The largest sequence number that SQLite can hold."""


class Query:
    """The query parameters of one request; an array is `include[]=a` or `include=a`, repeated."""

    def __init__(self, scope: Scope) -> None:
        text = cast("bytes", scope.get("query_string", b"")).decode("latin-1")
        # Clients write arrays in both ways.
        self._values: dict[str, list[str]] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            self._values.setdefault(name.removesuffix("[]"), []).append(value)

    def text(self, name: str) -> str | None:
        """Return the last value of a name, or None."""
        return self._values.get(name, [None])[-1]

    def texts(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """Return a boolean; raises RequestError for anything else."""
        value = self.text(name) or "false"
        if value.lower() not in ("true", "false", "1", "0"):
            raise invalid_query_error(name, "true or false")
        return value.lower() in ("true", "1")

    def integer(self, name: str, minimum: int, maximum: int) -> int | None:
        """Return an integer within bounds, or None; raises RequestError."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,20}", value) or not minimum <= int(value) <= maximum:
            raise invalid_query_error(name, f"a whole number from {minimum} to {maximum}")
        return int(value)

    def cursor(self) -> PageCursor:
        """Return the page of a list that is requested."""
        order = self.text("order") or "desc"
        if order not in get_args(Order):
            raise invalid_query_error("order", "'asc' or 'desc'")
        return PageCursor(
            limit=self.integer("limit", 1, 100) or 20,
            order=cast("Order", order),
            after=self.text("after"),
            before=self.text("before"),
        )


def invalid_query_error(name: str, expected: str) -> RequestError:
    return RequestError(f"'{name}' must be {expected}.", param=name, code="invalid_value")


def path_id(scope: Scope, name: str, resource: str) -> str:
    """Return an id from the path; raises a 404 for a malformed one, without a look-up."""
    id = str(scope["path_params"][name])
    if not RESOURCE_ID.fullmatch(id):
        raise not_found_error(resource, id)
    return id


def check_found(found: T | None, resource: str, id: str) -> T:
    """Return what a look-up found; raises a 404 for None and False."""
    if not found:
        raise not_found_error(resource, id)
    return found


def not_found_error(resource: str, id: str) -> RequestError:
    """Return a 404. Deleted, foreign and malformed ids must be indistinguishable."""
    name = resource.lower()
    message = f"{resource} '{id[:80]}' not found."
    return RequestError(message, type="not_found", code=f"{name}_not_found", param=f"{name}_id")
