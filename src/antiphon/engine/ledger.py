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
from antiphon.engine.recent import Context, Recent
from antiphon.store.base import Claim, Store


class Ledger(Struct, frozen=True):
    """Where one response is kept: `store` is None for one that is not to be stored."""

    store: Store | None
    recent: Recent
    tenant: str
    before: Context
    said: Sequence[Item]

    async def begin(
        self, response: Response, request: Request, key: tuple[str, str] | None
    ) -> Claim | None:
        """Keep the beginning; return the claim of a key that is taken."""
        if self.store is None:
            return None
        return await self.store.begin(
            response,
            self.said,
            tenant=self.tenant,
            request=encode(replace(request, input=list(self.said))) if request.background else b"",
            conversation=request.conversation.id if request.conversation else None,
            key=key,
        )

    def end(
        self, events: list[Event], response: Response
    ) -> Coroutine[object, object, list[Event]] | None:
        """Keep the end; return what to wait for before the events are told, if it is stored."""
        if self.store is not None:
            return self._commit(self.store, events, response)
        self.remember(response)
        return None

    async def _commit(self, store: Store, events: list[Event], response: Response) -> list[Event]:
        if await store.end(response, tenant=self.tenant):
            self.remember(response)
        return events

    def remember(self, response: Response) -> None:
        """Keep what was said at hand for those who go on from here.

        A response in a conversation goes on there, and what it left may change in the meantime.
        """
        if response.conversation:
            return
        context = self.before.then([*self.said, *response.output], response.id)
        self.recent.add(response.id, context, tenant=self.tenant)
