"""One response's place in memory and in the store.

A response is kept before anything is made of it, and kept again, with its end, before anybody
hears that it has ended: so a follow-up always finds it. One that is not to be stored lives in
memory only.
"""

from collections.abc import Coroutine, Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.events import Event
from antiphon.core.items import Item
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.value import encode
from antiphon.engine.recent import Context, ContextCache
from antiphon.store.base import IdempotencyRecord, Store


class ResponsePersistence(Struct, frozen=True):
    """Where one response is kept: `store` is None for one that is not to be stored."""

    store: Store | None
    cache: ContextCache
    tenant: str
    history: Context
    new_items: Sequence[Item]

    async def begin(
        self, response: Response, request: Request, key: tuple[str, str] | None
    ) -> IdempotencyRecord | None:
        """Keep the beginning; return the claim of a key that is taken."""
        if self.store is None:
            return None
        return await self.store.begin(
            response,
            self.new_items,
            tenant=self.tenant,
            request=encode(replace(request, input=list(self.new_items))) if request.background else b"",
            conversation=request.conversation.id if request.conversation else None,
            key=key,
        )

    def end(
        self, events: list[Event], response: Response
    ) -> Coroutine[object, object, list[Event]] | None:
        """Keep the end; return what to wait for before the events are told, if it is stored."""
        if self.store is not None:
            return self._commit(self.store, events, response)
        self.cache_context(response)
        return None

    async def _commit(self, store: Store, events: list[Event], response: Response) -> list[Event]:
        if await store.end(response, tenant=self.tenant):
            self.cache_context(response)
        return events

    def cache_context(self, response: Response) -> None:
        """Keep what was said at hand for those who go on from here.

        A response in a conversation goes on there, and what it left may change in the meantime.
        """
        if response.conversation:
            return
        context = self.history.extend([*self.new_items, *response.output], response.id)
        self.cache.add(response.id, context, tenant=self.tenant)
