"""What is kept of a response: in the store, in the context cache, under its idempotency key.

A response is stored before its model is called, and stored again, with its end, before anybody receives the terminal
event: a follow-up request always finds it. In between, `maintenance.py` stores its output about once a second. The
context of the latest ones is cached, within bounds of bytes and age: a conversation that goes on meanwhile never
touches the disk, and a response with `store: false`, which is kept in memory only, can be continued for a while.
"""

import secrets
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import cast

from msgspec import UNSET, Struct
from msgspec.structs import astuple, replace

from antiphon.protocol.errors import RequestError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Whole
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import ID_PREFIXES
from antiphon.store.base import TERMINAL_STATUSES, IdempotencyRecord, ResponseStore, Store
from antiphon.store.ids import new_id

ITEM_OVERHEAD_BYTES = 512
"""About how much memory an item takes beyond its text."""

# A run that is under way when its parent is deleted must not bring the parent's items back.
MAX_DELETED = 10_000
"""How many deleted responses are remembered."""


def estimate_size(item: Item) -> int:
    """Estimate the size of an item in bytes, without a copy: it may hold megabytes of text."""
    size = 0
    values: list[object] = [item]
    for value in values:  # the list grows meanwhile
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Struct):
            values += filter(None, astuple(value))  # most fields are UNSET
        elif isinstance(value, dict):
            values += [*cast("dict[object, object]", value), *cast("dict[object, object]", value).values()]
        elif isinstance(value, list):
            values += cast("list[object]", value)
        else:
            size += 8
    return size


class Context(Struct, frozen=True):
    """All items up to the end of one response, the responses they belong to, and their size."""

    items: tuple[Item, ...] = ()
    responses: tuple[str, ...] = ()
    size: int = 0

    def extend(self, items: Iterable[Item], *responses: str) -> "Context":
        """Return the context with more items, of further responses."""
        more = tuple(items)
        size = self.size + sum(map(estimate_size, more)) + ITEM_OVERHEAD_BYTES * len(more)
        return Context((*self.items, *more), (*self.responses, *responses), size)


class ContextCache:
    """The latest contexts, by tenant and response id; the least recently used are removed first."""

    def __init__(self, max_bytes: int, max_age_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._contexts: OrderedDict[tuple[str, str], tuple[Context, float]] = OrderedDict()
        self._deleted: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._total_bytes = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def add(self, id: str, context: Context, *, tenant: str = "") -> None:
        """Add the context of a response, unless a response in it was deleted meanwhile."""
        self.evict(id, tenant=tenant)
        is_deleted = self._deleted and any((tenant, one) in self._deleted for one in context.responses)
        if is_deleted or context.size > self._max_bytes:
            return
        self._contexts[tenant, id] = (context, self._clock())
        # Items that contexts share count in each: an overestimate whichever is removed first.
        self._total_bytes += context.size
        while self._total_bytes > self._max_bytes and self._contexts:
            self._remove(next(iter(self._contexts)))

    def find(self, id: str, *, tenant: str = "") -> Context | None:
        """Return a context, if it is still cached."""
        key = (tenant, id)
        if key not in self._contexts:
            return None
        context, since = self._contexts[key]
        if self._clock() - since > self._max_age_seconds:
            self._remove(key)
            return None
        self._contexts.move_to_end(key)
        return context

    def evict(self, id: str, *, tenant: str = "") -> None:
        """Remove a context."""
        if (tenant, id) in self._contexts:
            self._remove((tenant, id))

    def invalidate(self, id: str, *, tenant: str = "") -> None:
        """Remove every context that contains a response, and reject those still to come."""
        self._deleted[tenant, id] = None
        if len(self._deleted) > MAX_DELETED:
            self._deleted.popitem(last=False)
        for key, (context, _) in list(self._contexts.items()):
            if key[0] == tenant and id in context.responses:
                self._remove(key)

    def remove_expired(self) -> None:
        """Remove the contexts that are too old."""
        now = self._clock()
        old = [key for key, (_, since) in self._contexts.items() if now - since > self._max_age_seconds]
        for key in old:
            self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        self._total_bytes -= self._contexts.pop(key)[0].size


class HistoryLoader:
    """Loads contexts from the cache or the store."""

    def __init__(self, store: ResponseStore, cache: ContextCache) -> None:
        self._store = store
        self.cache = cache

    async def load(self, id: str, *, tenant: str, connection_cache: ContextCache | None, will_store: bool) -> Context:
        """Return the context after a response; raises RequestError."""
        # On a WebSocket connection, a response with `store: false` continues only responses of the
        # same connection; a stored one continues any stored response.
        if connection_cache is not None:
            if found := connection_cache.find(id, tenant=tenant):
                return found
            if not will_store:
                raise previous_response_not_found_error(id)
        elif found := self.cache.find(id, tenant=tenant):
            return found
        return await self._load_stored(id, tenant)

    async def _load_stored(self, id: str, tenant: str) -> Context:
        parent = await self._store.find(id, tenant=tenant)
        if parent is None:
            raise previous_response_not_found_error(id)
        if parent.response.status not in TERMINAL_STATUSES:
            raise RequestError(
                f"Response '{id}' is still being made. Continue it when it has ended.",
                param="previous_response_id",
                code="previous_response_in_progress",
            )
        if parent.conversation is not None:
            raise RequestError(
                f"Response '{id}' belongs to a conversation. Go on with 'conversation' instead.",
                param="previous_response_id",
                code="previous_response_in_conversation",
            )
        history = await self._store.read_history(id, tenant=tenant)
        before: Context | None = Context()
        # The first stored response may continue one with `store: false`, which only the cache has.
        if history and history.missing_parent is not None:
            before = self.cache.find(history.missing_parent, tenant=tenant)
        if history is None or before is None:
            raise previous_response_not_found_error(id)
        context = before.extend(history.items, *history.responses)
        self.cache.add(id, context, tenant=tenant)
        return context


def previous_response_not_found_error(id: str) -> RequestError:
    """Return the error for a previous response that does not exist."""
    return RequestError(
        f"Previous response with id '{id}' not found. Send the whole context in 'input' instead.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


# The keys of stored responses are in the store. These are the others, lost at a restart.
MAX_KEYS = 1_000
KEY_SECONDS = 24 * 3600


class ResponsePersistence(Struct, frozen=True):
    """Where one response is kept, from its beginning; `store` is None with `store: false`."""

    response: Response
    store: Store | None
    cache: ContextCache
    tenant: str
    history: Context
    new_items: Sequence[Item]

    async def begin(self, request: Request, key: tuple[str, str] | None) -> IdempotencyRecord | None:
        """Store the beginning; return the record of an idempotency key that is already taken."""
        if self.store is None:
            return None
        # Only a background response may have to be started again, by another process.
        kept = encode(replace(request, input=list(self.new_items))) if request.background else b""
        return await self.store.begin(
            self.response,
            self.new_items,
            tenant=self.tenant,
            request=kept,
            conversation=request.conversation.id if request.conversation else None,
            key=key,
        )

    def end(self, events: list[Event], response: Response) -> Coroutine[object, object, list[Event]] | None:
        """Store the end; return what to await before the events are sent, if it is stored."""
        if self.store is not None:
            return self._commit(self.store, events, response)
        self.cache_context(response)
        return None

    async def _commit(self, store: Store, events: list[Event], response: Response) -> list[Event]:
        # None if the response was deleted meanwhile: it must not come back through the cache.
        if await store.end(response, tenant=self.tenant):
            self.cache_context(response)
        return events

    def cache_context(self, response: Response) -> None:
        """Cache the context for requests that continue this response."""
        if response.conversation:
            return  # its items may change in the meantime
        context = self.history.extend([*self.new_items, *response.output], response.id)
        self.cache.add(response.id, context, tenant=self.tenant)


class IdempotencyKeys:
    """Idempotency keys of responses that are not stored, by tenant; the oldest are removed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: OrderedDict[tuple[str, str], tuple[IdempotencyRecord, float]] = OrderedDict()
        self._responses: dict[str, Response | None] = {}

    def claim(self, key: tuple[str, str], response_id: str, *, tenant: str) -> IdempotencyRecord | None:
        """Take a key for a response; return the record of a key that is already taken."""
        name, fingerprint = key
        self._remove_expired()
        if taken := self._claims.get((tenant, name)):
            return taken[0]
        self._claims[tenant, name] = (IdempotencyRecord(fingerprint, response_id), self._clock())
        self._responses[response_id] = None
        return None

    def record_response(self, response: Response) -> None:
        """Keep a finished response if it has a key."""
        if response.id in self._responses:
            self._responses[response.id] = response

    def find_response(self, id: str) -> Response | None:
        """Return a response that has a key and has ended."""
        return self._responses.get(id)

    def release(self, id: str) -> None:
        """Release the key of a response that was discarded, if it had one."""
        if id in self._responses:
            del self._responses[id]
            del self._claims[next(key for key, (claim, _) in self._claims.items() if claim.response_id == id)]

    def _remove_expired(self) -> None:
        oldest = self._clock() - KEY_SECONDS
        while self._claims:
            key, (claim, since) = next(iter(self._claims.items()))
            if since > oldest and len(self._claims) <= MAX_KEYS:
                return
            del self._claims[key]
            self._responses.pop(claim.response_id, None)


def replay_response(response: Response) -> list[Event]:
    """Return a valid stream of events that ends with exactly this response."""
    ids = iter([str(item.id) for item in response.output])
    initial = replace(response, status="in_progress", output=[], usage=None, completed_at=None, error=None)
    initial = replace(initial, incomplete_details=None)
    synth = Synth(initial, ids=lambda _: next(ids), clock=lambda: 0)
    events = synth.start()
    for item in response.output:
        events += synth.feed(Whole(item))
    return events + synth.end_as(response)


def new_uuid(prefix: str) -> str:
    """Return a random UUID; the prefix is ignored."""
    del prefix
    return str(uuid.uuid4())


def ensure_id(item: Item, ids: Callable[[str], str] = new_id) -> Item:
    """Give an item an id if the client sent none."""
    if item.id is not UNSET:
        return item
    return replace(item, id=ids(ID_PREFIXES.get(item.type, "item")))


def random_padding(text: str) -> str:
    """Return random text that hides a delta's length: together they fill a multiple of 16 bytes."""
    missing = 16 - len(encode(text)) % 16
    return secrets.token_urlsafe(missing)[:missing]
