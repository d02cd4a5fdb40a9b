"""A store in dictionaries: for tests, and for serving where nothing may touch a disk."""

import time
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from antiphon.protocol.errors import StoreError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import (
    TERMINAL_STATUSES,
    ConversationBusyError,
    History,
    IdempotencyRecord,
    ItemPage,
    LoggedEvents,
    PageCursor,
    StoredResponse,
)
from antiphon.store.notify import Notifier, wait_for_notification
from antiphon.store.pagination import paginate
from antiphon.store.talks import MemoryConversations, TenantKey


class _ResponseRecord(Struct):
    """A response, and everything of it."""

    tenant: str
    response: Response
    input: list[Item]
    request: bytes
    conversation: str | None
    key: str | None
    has_parent: bool
    """Whether the parent was here when the response began."""
    ended_at: int | None = None
    epoch: int = 0
    events: list[bytes] = field(default_factory=list[bytes])
    swept: int = 0

    @property
    def stored(self) -> StoredResponse:
        """The response as the store gives it out."""
        last = self.swept + len(self.events) - 1
        return StoredResponse(self.response, self.request, self.conversation, self.epoch, last)


class MemoryStore(MemoryConversations):
    """Responses, events and conversations, for as long as the process lives."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._clock = clock
        self._records: dict[str, _ResponseRecord] = {}
        self._unfinished: dict[str, _ResponseRecord] = {}
        self._idempotency: dict[TenantKey, IdempotencyRecord] = {}
        self._running: dict[TenantKey, str] = {}
        self._threads: dict[TenantKey, tuple[bytes, int]] = {}
        self.notifier = Notifier()

    def __repr__(self) -> str:
        return f"<MemoryStore of {len(self._records)} responses>"

    # --- responses ---------------------------------------------------------------------------

    async def begin(
        self,
        response: Response,
        input: Sequence[Item],
        *,
        tenant: str = "",
        request: bytes = b"",
        conversation: str | None = None,
        key: tuple[str, str] | None = None,
    ) -> IdempotencyRecord | None:
        """Keep a response that has just begun."""
        if key and (claim := self._idempotency.get((tenant, key[0]))):
            return claim
        if conversation is not None and (tenant, conversation) in self._running:
            raise ConversationBusyError(
                f"Conversation '{conversation}' has a response in progress."
            )
        if response.id in self._records:
            raise StoreError(f"There is a response '{response.id}' already.")
        record = _ResponseRecord(
            tenant=tenant,
            response=response,
            input=list(input),
            request=request,
            conversation=conversation,
            key=key[0] if key else None,
            has_parent=self._find_record(response.previous_response_id or "", tenant) is not None,
        )
        self._records[response.id] = self._unfinished[response.id] = record
        self.index_items(tenant, record.input)
        if conversation is not None:
            self._running[tenant, conversation] = response.id
        if key:
            self._idempotency[tenant, key[0]] = IdempotencyRecord(key[1], response.id)
        if response.status in TERMINAL_STATUSES:
            self._end_record(record, response)
        return None

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        """Keep how a response ended."""
        record = self._find_record(response.id, tenant)
        if record and record.ended_at is None:
            self._end_record(record, response)
        return record and record.response

    def _end_record(self, record: _ResponseRecord, response: Response) -> None:
        now = int(self._clock())
        record.response = response
        record.ended_at = now if response.completed_at is None else response.completed_at
        self.index_items(record.tenant, response.output)
        self._release(record)
        talk = self.conversations.get((record.tenant, record.conversation or ""))
        if talk and response.status in ("completed", "incomplete"):
            self.append_items(record.tenant, talk, [*record.input, *response.output])
        self.notifier.notify(response.id)

    def _release(self, record: _ResponseRecord) -> None:
        self._unfinished.pop(record.response.id, None)
        place = (record.tenant, record.conversation or "")
        if self._running.get(place) == record.response.id:
            del self._running[place]

    async def find(self, id: str, *, tenant: str = "") -> StoredResponse | None:
        """Return a response."""
        record = self._find_record(id, tenant)
        return record and record.stored

    async def read_history(self, id: str, *, tenant: str = "") -> History | None:
        """Return a chain."""
        records: list[_ResponseRecord] = []
        record = self._find_record(id, tenant)
        while record:
            records.append(record)
            if not record.has_parent:
                records.reverse()
                items = [item for r in records for item in (*r.input, *r.response.output)]
                responses = [r.response.id for r in records]
                return History(items, responses, record.response.previous_response_id)
            record = self._find_record(record.response.previous_response_id or "", tenant)
        return None

    async def list_input_items(
        self, id: str, cursor: PageCursor, *, tenant: str = ""
    ) -> ItemPage | None:
        """Return a page of a response's own input."""
        record = self._find_record(id, tenant)
        return record and paginate(record.input, cursor)

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        """Return one item."""
        return self.find_indexed_item(id, tenant)

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        """Remove a response and everything of it."""
        record = self._find_record(id, tenant)
        if record:
            self._remove(record)
        return record is not None

    def _remove(self, record: _ResponseRecord) -> None:
        del self._records[record.response.id]
        self._release(record)
        if record.key is not None:
            del self._idempotency[record.tenant, record.key]
        self.unindex_items(record.tenant, [*record.input, *record.response.output])
        self.notifier.notify(record.response.id)

    async def list_unfinished(self) -> list[tuple[str, StoredResponse]]:
        """Return every response that has not ended."""
        oldest = sorted(self._unfinished.values(), key=lambda record: record.response.created_at)
        return [(record.tenant, record.stored) for record in oldest]

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        """Remove what ended before given times, a chunk at a time."""
        went = 0
        ended = [record for record in self._records.values() if record.ended_at is not None]
        for record in sorted(ended, key=lambda record: record.ended_at or 0):
            when = record.ended_at or 0
            if record.events and when < max(events_before, responses_before):
                count = len(record.events[: limit - went])
                del record.events[:count]
                record.swept += count
                went += count
            if not record.events and when < responses_before and went < limit:
                self._remove(record)
                went += 1
        old = [key for key, (_, when) in self._threads.items() if when < responses_before]
        for key in old[: limit - went]:
            del self._threads[key]
            went += 1
        return went

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    # --- the feed ----------------------------------------------------------------------------

    async def claim(self, id: str, *, tenant: str = "") -> int | None:
        """Become the one who makes a response."""
        record = self._find_record(id, tenant)
        if record is None or record.ended_at is not None:
            return None
        record.epoch += 1
        return record.epoch

    async def append(
        self,
        id: str,
        epoch: int,
        after: int,
        events: Sequence[bytes],
        *,
        final: Response | None = None,
        tenant: str = "",
    ) -> bool:
        """Add events, if it is the caller's turn."""
        record = self._find_record(id, tenant)
        if record is None or record.ended_at is not None:
            return False
        if (epoch, after) != (record.epoch, len(record.events) - 1):
            return False
        record.events += events
        if final:
            self._end_record(record, final)
        self.notifier.notify(id)
        return True

    async def read(
        self, id: str, after: int, *, limit: int = 512, tenant: str = ""
    ) -> LoggedEvents | None:
        """Return events of the log."""
        record = self._find_record(id, tenant)
        if record is None or record.swept:
            return None
        end = max(after + 1, 0) + limit
        ended = record.ended_at is not None and end >= len(record.events)
        return LoggedEvents(record.events[max(after + 1, 0) : end], ended)

    async def wait(self, id: str, after: int) -> None:
        """Return when there may be something new."""
        with self.notifier.subscribe(id) as listener:
            record = self._unfinished.get(id)
            if record and len(record.events) - 1 <= after:
                await wait_for_notification(listener)

    # --- threads -----------------------------------------------------------------------------

    async def save_thread(self, id: str, messages: bytes, *, tenant: str = "") -> None:
        """Keep a thread, new or changed."""
        self._threads[tenant, id] = (messages, int(self._clock()))

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        """Return a thread."""
        kept = self._threads.get((tenant, id))
        return kept and kept[0]

    # --- what they share ---------------------------------------------------------------------

    def _find_record(self, id: str, tenant: str) -> _ResponseRecord | None:
        record = self._records.get(id)
        return record if record and record.tenant == tenant else None
