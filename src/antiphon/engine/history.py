"""The context of the response that a request continues, from memory or from the store.

The cache is bounded by bytes and age. A conversation that goes on while it is cached never touches
the disk, and a response with `store: false` can be continued for a while. Nothing of the cache is
ever written to disk.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec import Struct

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item
from antiphon.protocol.struct import encode
from antiphon.store.base import TERMINAL_STATUSES, ResponseStore

ITEM_OVERHEAD_BYTES = 512
"""About how much memory an item takes beyond its text."""

# A run that is under way when its parent is deleted must not bring the parent's items back.
MAX_DELETED = 10_000
"""How many deleted responses are remembered."""


class Context(Struct, frozen=True):
    """All items up to the end of one response, the responses they belong to, and their size."""

    items: tuple[Item, ...] = ()
    responses: tuple[str, ...] = ()
    size: int = 0

    def extend(self, items: Iterable[Item], *responses: str) -> "Context":
        """Return the context with more items, of further responses."""
        more = tuple(items)
        size = self.size + sum(map(len, map(encode, more))) + ITEM_OVERHEAD_BYTES * len(more)
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
        if self._deleted and any((tenant, one) in self._deleted for one in context.responses):
            return
        if context.size > self._max_bytes:
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
