"""The common shape of all endpoints, and the checks of query and path parameters."""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from typing import TypedDict, TypeVar, cast, get_args
from urllib.parse import parse_qsl

from starlette.routing import BaseRoute, Route

from antiphon.protocol.errors import RequestError
from antiphon.protocol.struct import ProtocolStruct, encode
from antiphon.server.asgi import AsgiApp, Receive, Scope, Send
from antiphon.server.service import Service
from antiphon.store.pagination import ItemPage, Order, PageCursor
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


MAX_SEARCH_LENGTH = 200


class ListConditions(TypedDict):
    """The conditions that every list of stored objects knows."""

    created_after: int | None
    created_before: int | None
    metadata: dict[str, str] | None
    search: str | None


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

    def choice(self, name: str, values: Collection[str]) -> str | None:
        """Return one of some values, or None; raises RequestError for any other."""
        value = self.text(name) or None
        if value is not None and value not in values:
            *others, last = map(repr, values)
            raise invalid_query_error(name, f"{', '.join(others)} or {last}")
        return value

    def entries(self, name: str) -> dict[str, str] | None:
        """Return the object that is written `name[key]=value`, or None; raises RequestError for `name=value`."""
        if name in self._values:
            raise invalid_query_error(name, f"written '{name}[key]=value'")
        found = {key[len(name) + 1 : -1]: values[-1] for key, values in self._values.items() if is_entry(key, name)}
        return found or None

    def conditions(self) -> ListConditions:
        """Return the conditions that every list of stored objects knows; raises RequestError."""
        search = self.text("search") or None
        if search and len(search) > MAX_SEARCH_LENGTH:
            raise invalid_query_error("search", f"at most {MAX_SEARCH_LENGTH} characters")
        return {
            "created_after": self.integer("created_after", 0, MAX_INT64),
            "created_before": self.integer("created_before", 0, MAX_INT64),
            "metadata": self.entries("metadata"),
            "search": search,
        }

    def cursor(self) -> PageCursor:
        """Return the page of a list that is requested."""
        order = self.choice("order", get_args(Order)) or "desc"
        return PageCursor(
            limit=self.integer("limit", 1, 100) or 20,
            order=cast("Order", order),
            after=self.text("after"),
            before=self.text("before"),
        )


def is_entry(key: str, name: str) -> bool:
    """Return whether a key is written `name[…]`."""
    return key.startswith(f"{name}[") and key.endswith("]")


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


def encode_list(
    rows: Sequence[ProtocolStruct], dialect: Dialect, ids: tuple[object, object], *, has_more: bool
) -> bytes:
    """Encode a page as a list object; `ids` are the cursors of the previous and of the next page."""
    data = b",".join(map(dialect.encode, rows))
    rest = encode({"first_id": ids[0], "last_id": ids[1], "has_more": has_more})
    # The rows are encoded by the dialect, the rest is not: `rest[1:]` is without its brace.
    return b'{"object":"list","data":[' + data + b"]," + rest[1:]


def encode_items(page: ItemPage, dialect: Dialect) -> bytes:
    """Encode a page of items."""
    ids = [item.id for item in page.items] or [None]
    return encode_list(page.items, dialect, (ids[0], ids[-1]), has_more=page.has_more)
