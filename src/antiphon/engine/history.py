"""What was said a moment ago: contexts kept in memory, bounded by bytes and age.

A chain that goes on while it is hot never touches the disk, and a response that is not to be stored
can be continued for a while all the same. Nothing here is ever written anywhere.
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
"""About what an item takes in memory beyond its text."""
MAX_DELETED = 10_000
"""How many forgotten responses are known as such, for what is being made when they are."""


class Context(Struct, frozen=True):
    """Everything said up to the end of one response, in which responses, and how many bytes."""

    items: tuple[Item, ...] = ()
    responses: tuple[str, ...] = ()
    size: int = 0

    def extend(self, items: Iterable[Item], *responses: str) -> "Context":
        """Return the context after more was said, in some responses."""
        more = tuple(items)
        size = self.size + sum(map(len, map(encode, more))) + ITEM_OVERHEAD_BYTES * len(more)
        return Context((*self.items, *more), (*self.responses, *responses), size)


class ContextCache:
    """The latest contexts, by tenant and response id; the least used go first."""

    def __init__(
        self, max_bytes: int, max_age_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._contexts: OrderedDict[tuple[str, str], tuple[Context, float]] = OrderedDict()
        self._deleted: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._total_bytes = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def add(self, id: str, context: Context, *, tenant: str = "") -> None:
        """Keep the context of a response, unless a response in it has been forgotten meanwhile.

        Items that contexts share count in each of them: too much, never too little, whichever of
        the contexts goes first.
        """
        self.evict(id, tenant=tenant)
        if self._deleted and any((tenant, one) in self._deleted for one in context.responses):
            return
        if context.size > self._max_bytes:
            return  # there would be room for nothing else, nor for it
        self._contexts[tenant, id] = (context, self._clock())
        self._total_bytes += context.size
        while self._total_bytes > self._max_bytes and self._contexts:
            self._remove(next(iter(self._contexts)))

    def find(self, id: str, *, tenant: str = "") -> Context | None:
        """Return a context, if it is still here."""
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
        """Forget a context."""
        if (tenant, id) in self._contexts:
            self._remove((tenant, id))

    def invalidate(self, id: str, *, tenant: str = "") -> None:
        """Forget every context that a response is part of, and those that are still to come."""
        self._deleted[tenant, id] = None
        if len(self._deleted) > MAX_DELETED:
            self._deleted.popitem(last=False)
        for key, (context, _) in list(self._contexts.items()):
            if key[0] == tenant and id in context.responses:
                self._remove(key)

    def remove_expired(self) -> None:
        """Forget every context that is too old."""
        now = self._clock()
        old = [
            key for key, (_, since) in self._contexts.items() if now - since > self._max_age_seconds
        ]
        for key in old:
            self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        self._total_bytes -= self._contexts.pop(key)[0].size


class HistoryLoader:
    """Finds contexts: the hot ones in memory, the stored ones in the store."""

    def __init__(self, store: ResponseStore | None, cache: ContextCache) -> None:
        self._store = store
        self.cache = cache

    async def load(
        self, id: str, *, tenant: str, connection_cache: ContextCache | None, will_store: bool
    ) -> Context:
        """Return the context that a response left; raises RequestError.

        `local` is a connection's own memory; on a connection, only what is stored can come from
        elsewhere, and only into a response that is stored itself.
        """
        if connection_cache is not None:
            if found := connection_cache.find(id, tenant=tenant):
                return found
            if not will_store:
                raise previous_response_not_found_error(id)
        elif found := self.cache.find(id, tenant=tenant):
            return found
        return await self._load_stored(id, tenant)

    async def _load_stored(self, id: str, tenant: str) -> Context:
        if self._store is None:
            raise previous_response_not_found_error(id)
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
        if history is None:
            raise previous_response_not_found_error(id)
        before: Context | None = Context()
        if history.missing_parent is not None:
            before = self.cache.find(history.missing_parent, tenant=tenant)
        if before is None:
            raise previous_response_not_found_error(id)
        context = before.extend(history.items, *history.responses)
        self.cache.add(id, context, tenant=tenant)
        return context


def previous_response_not_found_error(id: str) -> RequestError:
    """Say that a response cannot be continued because it is not here."""
    return RequestError(
        f"Previous response with id '{id}' not found. Send the whole context in 'input' instead.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
