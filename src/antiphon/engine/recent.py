"""What was said a moment ago: contexts kept in memory, bounded by bytes and age.

A chain that goes on while it is hot never touches the disk, and a response that is not to be stored
can be continued for a while all the same. Nothing here is ever written anywhere.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec import Struct

from antiphon.core.items import Item
from antiphon.core.value import encode

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
        old = [key for key, (_, since) in self._contexts.items() if now - since > self._max_age_seconds]
        for key in old:
            self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        self._total_bytes -= self._contexts.pop(key)[0].size
