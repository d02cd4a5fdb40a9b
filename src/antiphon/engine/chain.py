"""What came before: the context of the response that a request continues."""

from antiphon.core.errors import RequestError
from antiphon.engine.recent import Context, ContextCache
from antiphon.store.base import TERMINAL_STATUSES, ResponseStore


class HistoryLoader:
    """Finds contexts: the hot ones in memory, the stored ones in the store."""

    def __init__(self, store: ResponseStore | None, cache: ContextCache) -> None:
        self._store = store
        self.cache = cache

    async def load(self, id: str, *, tenant: str, connection_cache: ContextCache | None, will_store: bool) -> Context:
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
