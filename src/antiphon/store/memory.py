"""A store in dictionaries, for tests and for servers that must not write to a disk."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from antiphon.protocol.errors import StoreError
from antiphon.protocol.items import Item, ItemReference
from antiphon.protocol.response import Response
from antiphon.store import base, lists, pagination
from antiphon.store.pagination import ItemPage, PageCursor

R = TypeVar("R")
S = TypeVar("S", lists.ResponseSummary, lists.ConversationSummary)

TenantKey = tuple[str, str]
"""A tenant, and an id or key that is unique within it."""


class _ConversationRecord(Struct):
    conversation: base.StoredConversation
    items: list[Item] = field(default_factory=list[Item])


class _ResponseRecord(Struct):
    """A response and everything stored with it."""

    tenant: str
    response: Response
    input: list[Item]
    request: bytes
    conversation: str | None
    key: str | None
    has_parent: bool
    """Whether the parent was in the store when the response began."""
    ended_at: int | None = None
    is_queued: bool = False
    epoch: int = 0
    attempts: int = 0
    events: list[bytes] = field(default_factory=list[bytes])
    swept: int = 0
    """How many events retention has deleted, from the front."""

    def as_stored(self) -> base.StoredResponse:
        last = self.swept + len(self.events) - 1
        return base.StoredResponse(self.response, self.request, self.conversation, self.epoch, last, self.attempts)


class _ThreadRecord(Struct, frozen=True):
    messages: bytes
    title: str
    saved_at: int
    own_title: str | None = None
    """The title that was set by hand."""


class MemoryStore:
    """A store that lasts as long as the process; `base` documents the methods."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._conversations: dict[TenantKey, _ConversationRecord] = {}
        self._items_by_id: dict[TenantKey, list[Item]] = {}
        """The items of all responses and conversations."""
        self._records: dict[str, _ResponseRecord] = {}
        self._unfinished: dict[str, _ResponseRecord] = {}
        self._idempotency: dict[TenantKey, base.IdempotencyRecord] = {}
        self._running: dict[TenantKey, str] = {}
        """The response in progress of each conversation."""
        self._threads: dict[TenantKey, _ThreadRecord] = {}
        """In the order of their last save."""
        self.notifier = base.Notifier()

    def __repr__(self) -> str:
        return f"<MemoryStore of {len(self._records)} responses>"

    async def begin(
        self,
        response: Response,
        input: Sequence[Item],
        *,
        tenant: str = "",
        request: bytes = b"",
        conversation: str | None = None,
        key: tuple[str, str] | None = None,
    ) -> base.IdempotencyRecord | None:
        # The key comes first: a repeated request must get its own response, not "busy".
        if key and (used := self._idempotency.get((tenant, key[0]))):
            return used
        if conversation is not None and (tenant, conversation) in self._running:
            raise base.ConversationBusyError(conversation)
        if response.id in self._records:
            raise StoreError(f"There is a response '{response.id}' already.")
        record = _ResponseRecord(
            tenant=tenant,
            response=response,
            input=base.make_ids_unique(input),
            request=request,
            conversation=conversation,
            key=key[0] if key else None,
            has_parent=self._find_record(response.previous_response_id or "", tenant) is not None,
            is_queued=response.status == "queued",
        )
        # Nothing is awaited from here on, so other tasks see all of it or nothing.
        self._records[response.id] = self._unfinished[response.id] = record
        self._index_items(tenant, record.input)
        if conversation is not None:
            self._running[tenant, conversation] = response.id
        if key:
            self._idempotency[tenant, key[0]] = base.IdempotencyRecord(key[1], response.id)
        if response.status in base.TERMINAL_STATUSES:
            self._end_record(record, response)
        return None

    async def save_output(self, response: Response, *, tenant: str = "") -> None:
        record = self._find_record(response.id, tenant)
        if record and record.ended_at is None:
            record.response = replace(record.response, output=response.output)

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        record = self._find_record(response.id, tenant)
        if record and record.ended_at is None:
            self._end_record(record, response)
        return record and record.response

    def _end_record(self, record: _ResponseRecord, response: Response) -> None:
        record.response = response
        record.ended_at = int(self._clock()) if response.completed_at is None else response.completed_at
        self._index_items(record.tenant, response.output)
        self._release(record)
        joined = self._conversations.get((record.tenant, record.conversation or ""))
        if joined and response.status in ("completed", "incomplete"):
            self._append_items(joined, [*record.input, *response.output], record.tenant)
        self.notifier.notify(response.id)

    def _release(self, record: _ResponseRecord) -> None:
        """Remove a response from the unfinished ones, and free its conversation."""
        self._unfinished.pop(record.response.id, None)
        key = (record.tenant, record.conversation or "")
        if self._running.get(key) == record.response.id:
            del self._running[key]

    async def find(self, id: str, *, tenant: str = "") -> base.StoredResponse | None:
        record = self._find_record(id, tenant)
        return record and record.as_stored()

    async def read_history(self, id: str, *, tenant: str = "") -> base.History | None:
        records: list[_ResponseRecord] = []
        record = self._find_record(id, tenant)
        while record:
            records.append(record)
            # A parent that was never here is reported; a deleted one ends the loop with None.
            if not record.has_parent:
                records.reverse()
                items = [item for r in records for item in (*r.input, *r.response.output)]
                responses = [r.response.id for r in records]
                return base.History(items, responses, record.response.previous_response_id)
            record = self._find_record(record.response.previous_response_id or "", tenant)
        return None

    async def list_input_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        record = self._find_record(id, tenant)
        return record and pagination.paginate(record.input, cursor)

    async def list_responses(
        self, cursor: PageCursor, filter: lists.ResponseFilter, *, tenant: str = ""
    ) -> lists.SummaryPage[lists.ResponseSummary]:
        def summarize(record: _ResponseRecord) -> lists.ResponseSummary | None:
            summary = lists.summarize_response(record.response, record.conversation, record.input)
            items = chain(record.input, record.response.output)
            return summary if filter.matches(summary) and filter.matches_text(items) else None

        records = [record for record in self._records.values() if record.tenant == tenant]
        keys = [(record.response.created_at, record.response.id) for record in records]
        return _list_page(records, keys, cursor, filter, summarize)

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        record = self._find_record(id, tenant)
        if record:
            self._remove(record)
        return record is not None

    def _remove(self, record: _ResponseRecord) -> None:
        del self._records[record.response.id]
        self._release(record)
        self._free_key(record)
        self._unindex_items(record.tenant, [*record.input, *record.response.output])
        self.notifier.notify(record.response.id)

    async def release_key(self, id: str, *, tenant: str = "") -> None:
        if record := self._find_record(id, tenant):
            self._free_key(record)

    def _free_key(self, record: _ResponseRecord) -> None:
        if record.key is not None:
            del self._idempotency[record.tenant, record.key]
            record.key = None

    async def list_unfinished(self) -> list[tuple[str, base.StoredResponse]]:
        oldest = sorted(self._unfinished.values(), key=lambda record: record.response.created_at)
        return [(record.tenant, record.as_stored()) for record in oldest]

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        deleted = 0
        ended = [record for record in self._records.values() if record.ended_at is not None]
        for record in sorted(ended, key=lambda record: record.ended_at or 0):
            ended_at = record.ended_at or 0
            if record.events and ended_at < max(events_before, responses_before):
                count = len(record.events[: limit - deleted])
                del record.events[:count]
                record.swept += count
                deleted += count
        deleted += self._sweep_responses(responses_before, limit - deleted)
        expired = [key for key, thread in self._threads.items() if thread.saved_at < responses_before]
        for key in expired[: limit - deleted]:
            del self._threads[key]
            deleted += 1
        return deleted

    def _sweep_responses(self, before: int, limit: int) -> int:
        """Delete at most `limit` expired responses that no other one continues."""
        children: dict[TenantKey, list[_ResponseRecord]] = {}
        for record in self._records.values():
            if record.has_parent:
                children.setdefault((record.tenant, record.response.previous_response_id or ""), []).append(record)
        deleted, is_done = 0, False
        while not is_done:
            is_done = True
            # Newest first, and so children before their parents; `sorted` keeps the order of equal ones.
            newest = reversed(self._records.values())
            expired = [r for r in newest if r.ended_at is not None and r.ended_at < before]
            for record in sorted(expired, key=lambda r: -(r.ended_at or 0)):
                key = (record.tenant, record.response.id)
                ends = [before if c.ended_at is None else c.ended_at for c in children.get(key, []) if self._has(c)]
                if record.events or (not ends and deleted == limit):
                    continue
                is_done = is_done and ends != [] and max(ends) == record.ended_at
                if ends:
                    record.ended_at = max(ends)
                else:
                    self._remove(record)
                    deleted += 1
        return deleted

    def _has(self, record: _ResponseRecord) -> bool:
        return self._records.get(record.response.id) is record

    async def close(self) -> None:
        pass

    async def take_abandoned(self, running: Collection[str]) -> list[tuple[str, base.StoredResponse]]:
        abandoned = {id for id, record in self._unfinished.items() if not record.is_queued}.difference(running)
        return [found for found in await self.list_unfinished() if found[1].response.id in abandoned]

    async def claim_queued(self, limit: int) -> list[tuple[str, base.StoredResponse]]:
        queued = [record for record in self._unfinished.values() if record.is_queued]
        oldest = sorted(queued, key=lambda record: record.response.created_at)[:limit]
        for record in oldest:
            self._take(record)
        return [(record.tenant, record.as_stored()) for record in oldest]

    def _take(self, record: _ResponseRecord) -> int:
        record.attempts += record.is_queued
        record.is_queued = False
        record.epoch += 1
        return record.epoch

    async def requeue(self, id: str, epoch: int, *, tenant: str = "") -> bool:
        record = self._find_record(id, tenant)
        if record is None or record.ended_at is not None or record.epoch != epoch:
            return False
        record.is_queued = True
        return True

    async def find_lost(self, claims: Sequence[tuple[str, int]]) -> list[str]:
        return [id for id, epoch in claims if (record := self._unfinished.get(id)) is None or record.epoch != epoch]

    async def claim(
        self, id: str, *, tenant: str = "", queued: bool = False, expected: int | None = None
    ) -> int | None:
        record = self._find_record(id, tenant)
        if record is None or record.ended_at is not None or (queued and not record.is_queued):
            return None
        if expected is not None and record.epoch != expected:
            return None
        return self._take(record)

    async def append(
        self, id: str, epoch: int, after: int, events: list[bytes], *, final: Response | None = None, tenant: str = ""
    ) -> bool:
        record = self._find_record(id, tenant)
        # The fence: an older worker, or one that has missed an append, must not write.
        if record is None or record.ended_at is not None or (epoch, after) != (record.epoch, len(record.events) - 1):
            return False
        record.events += events
        if final:
            self._end_record(record, final)
        self.notifier.notify(id)
        return True

    async def read(self, id: str, after: int, *, limit: int = 512, tenant: str = "") -> base.LoggedEvents | None:
        record = self._find_record(id, tenant)
        # A log with a part missing would look complete to its reader.
        if record is None or record.swept:
            return None
        end = max(after + 1, 0) + limit
        ended = record.ended_at is not None and end >= len(record.events)
        return base.LoggedEvents(record.events[max(after + 1, 0) : end], ended)

    async def wait(self, id: str, after: int) -> None:
        with self.notifier.subscribe(id) as notification:
            record = self._unfinished.get(id)
            if record and len(record.events) - 1 <= after:
                await asyncio.wait([notification], timeout=base.POLL_SECONDS)

    async def save_conversation(self, conversation: base.StoredConversation, *, tenant: str = "") -> None:
        key = (tenant, conversation.id)
        record = self._conversations.setdefault(key, _ConversationRecord(conversation))
        record.conversation = conversation

    async def find_conversation(self, id: str, *, tenant: str = "") -> base.StoredConversation | None:
        record = self._conversations.get((tenant, id))
        return record and record.conversation

    async def list_conversations(
        self, cursor: PageCursor, filter: lists.ListFilter, *, tenant: str = ""
    ) -> lists.SummaryPage[lists.ConversationSummary]:
        def summarize(record: _ConversationRecord) -> lists.ConversationSummary | None:
            found = record.conversation
            items = record.items[-lists.SEARCHED_ITEMS :]
            if not (filter.matches_metadata(found.metadata) and filter.matches_text(items)):
                return None
            title = lists.make_title(record.items)
            return lists.ConversationSummary(
                id=found.id, created_at=found.created_at, title=title, metadata=found.metadata
            )

        records = [record for (owner, _), record in self._conversations.items() if owner == tenant]
        keys = [(record.conversation.created_at, record.conversation.id) for record in records]
        return _list_page(records, keys, cursor, filter, summarize)

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        record = self._conversations.pop((tenant, id), None)
        if record:
            self._unindex_items(tenant, record.items)
        return record is not None

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> list[Item] | None:
        record = self._conversations.get((tenant, id))
        return record and self._append_items(record, items, tenant)

    def _append_items(self, record: _ConversationRecord, items: Sequence[Item], tenant: str) -> list[Item]:
        stored = base.make_ids_unique(items, [item.id for item in record.items])
        record.items += stored
        self._index_items(tenant, stored)
        return stored

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        record = self._conversations.get((tenant, id))
        return record and pagination.paginate(record.items, cursor)

    async def find_conversation_item(self, id: str, item_id: str, *, tenant: str = "") -> Item | None:
        record = self._conversations.get((tenant, id))
        return next((item for item in record.items if item.id == item_id), None) if record else None

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        record = self._conversations.get((tenant, id))
        deleted = [item for item in record.items if item.id == item_id] if record else []
        if record and deleted:
            record.items = [item for item in record.items if item.id != item_id]
            self._unindex_items(tenant, deleted)
        return bool(deleted)

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        found = self._items_by_id.get((tenant, id))
        return found[-1] if found else None

    def _index_items(self, tenant: str, items: Iterable[Item]) -> None:
        for item in items:
            # A reference only names another item: finding it by id would find nothing useful.
            if isinstance(item.id, str) and not isinstance(item, ItemReference):
                self._items_by_id.setdefault((tenant, item.id), []).append(item)

    def _unindex_items(self, tenant: str, items: Iterable[Item]) -> None:
        for item in items:
            found = self._items_by_id.get((tenant, str(item.id)))
            if found and item in found:
                found.remove(item)
                if not found:
                    del self._items_by_id[tenant, str(item.id)]

    async def create_thread(self, id: str, messages: bytes, title: str, *, tenant: str = "") -> None:
        self._threads[tenant, id] = _ThreadRecord(messages, title, int(self._clock()))

    async def replace_thread(self, id: str, before: bytes, messages: bytes, *, tenant: str = "") -> bool:
        found = self._threads.get((tenant, id))
        if found is None or found.messages != before:
            return False
        del self._threads[tenant, id]
        self._threads[tenant, id] = replace(found, messages=messages, saved_at=int(self._clock()))
        return True

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        found = self._threads.get((tenant, id))
        return found and found.messages

    async def list_threads(self, limit: int, after: str | None = None, *, tenant: str = "") -> list[base.ThreadSummary]:
        found = [
            base.ThreadSummary(id, thread.own_title or thread.title, thread.saved_at)
            for (owner, id), thread in reversed(self._threads.items())
            if owner == tenant
        ]
        if after is None:
            return found[:limit]
        position = next((number for number, thread in enumerate(found, 1) if thread.id == after), None)
        if position is None:
            raise pagination.not_listed_error(after)
        return found[position : position + limit]

    async def rename_thread(self, id: str, title: str | None, *, tenant: str = "") -> bool:
        found = self._threads.get((tenant, id))
        if found is not None:
            self._threads[tenant, id] = replace(found, own_title=title)
        return found is not None

    async def delete_thread(self, id: str, *, tenant: str = "") -> bool:
        return self._threads.pop((tenant, id), None) is not None

    def _find_record(self, id: str, tenant: str) -> _ResponseRecord | None:
        record = self._records.get(id)
        return record if record and record.tenant == tenant else None


def _list_page(
    records: list[R],
    keys: list[tuple[int, str]],
    cursor: PageCursor,
    filter: lists.ListFilter,
    summarize: Callable[[R], S | None],
) -> lists.SummaryPage[S]:
    """Return a page of records; `keys` are their creation times and ids."""
    positions = {id: (created_at, number) for number, (created_at, id) in enumerate(keys)}
    page = lists.PageBuilder[S](cursor, filter, positions.get)
    selected = sorted((position, id) for id, position in positions.items() if page.low < position < page.high)
    for (_, number), id in selected if page.ascending else reversed(selected):
        if not page.add(id, summarize(records[number])):
            break
    return page.page()
