"""What came before: the context of the response that a request continues."""

from antiphon.core.errors import RequestError
from antiphon.engine.recent import Context, Recent
from antiphon.store.base import TERMINAL, Responses


class Chain:
    """Finds contexts: the hot ones in memory, the stored ones in the store."""

    def __init__(self, store: Responses | None, recent: Recent) -> None:
        self._store = store
        self.recent = recent

    async def context(self, id: str, *, tenant: str, local: Recent | None, stored: bool) -> Context:
        """Return the context that a response left; raises RequestError.

        `local` is a connection's own memory; on a connection, only what is stored can come from
        elsewhere, and only into a response that is stored itself.
        """
        if local is not None:
            if found := local.find(id, tenant=tenant):
                return found
            if not stored:
                raise not_found(id)
        elif found := self.recent.find(id, tenant=tenant):
            return found
        return await self._stored(id, tenant)

    async def _stored(self, id: str, tenant: str) -> Context:
        if self._store is None:
            raise not_found(id)
        parent = await self._store.find(id, tenant=tenant)
        if parent is None:
            raise not_found(id)
        if parent.response.status not in TERMINAL:
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
        history = await self._store.history(id, tenant=tenant)
        if history is None:
            raise not_found(id)
        before: Context | None = Context()
        if history.beyond is not None:
            before = self.recent.find(history.beyond, tenant=tenant)
        if before is None:
            raise not_found(id)
        context = before.then(history.items, *history.responses)
        self.recent.add(id, context, tenant=tenant)
        return context


def not_found(id: str) -> RequestError:
    """Say that a response cannot be continued because it is not here."""
    return RequestError(
        f"Previous response with id '{id}' not found. Send the whole context in 'input' instead.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
