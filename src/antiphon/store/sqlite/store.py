"""A store in one SQLite file: nothing to install, nothing to set up, nothing acknowledged lost.

The verbs are here. What they look up is in `looks.py`, what they change in `changes.py`, the SQL
of both in `queries.py`, and the threads that run it behind `database.py`.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.store.base import (
    History,
    IdempotencyRecord,
    ItemPage,
    LoggedEvents,
    PageCursor,
    StoredConversation,
    StoredResponse,
)
from antiphon.store.notify import Notifier, wait_for_notification
from antiphon.store.sqlite import reads, sql, writes
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.rows import (
    Row,
    input_to_rows,
    item_to_row,
    response_to_row,
)

logger = logging.getLogger("antiphon.store")

DATABASE_FILE = "responses.db"


class SqliteStore:
    """Responses, events and conversations in `{folder}/responses.db`."""

    def __init__(self, folder: Path | str, clock: Callable[[], float] = time.time) -> None:
        self.database = Database(Path(folder) / DATABASE_FILE)
        self.notifier = Notifier()
        self._clock = clock

    def __repr__(self) -> str:
        return f"<SqliteStore at {self.database.path}>"

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
        """Keep a response that has just begun, and its own input."""
        start = writes.NewResponse(
            response=response,
            row=response_to_row(response, int(self._clock())),
            input=input_to_rows(response, input),
            tenant=tenant,
            request=request,
            conversation=conversation,
            key=key,
        )
        return await self.database.write(partial(writes.begin_response, start=start))

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        """Keep how a response ended, unless it had ended before; return what is kept."""
        change = partial(writes.end_response, ending=self._ended_response(response, tenant))
        return await self.database.write(change, partial(self.notifier.notify, response.id))

    async def find(self, id: str, *, tenant: str = "") -> StoredResponse | None:
        """Return a response."""
        return await self.database.read(partial(reads.find_response, id=id, tenant=tenant))

    async def read_history(self, id: str, *, tenant: str = "") -> History | None:
        """Return a chain."""
        return await self.database.read(partial(reads.read_history, id=id, tenant=tenant))

    async def list_input_items(
        self, id: str, cursor: PageCursor, *, tenant: str = ""
    ) -> ItemPage | None:
        """Return a page of a response's own input."""
        look = partial(
            reads.list_items, listing=reads.INPUT_ITEMS, id=id, tenant=tenant, cursor=cursor
        )
        return await self.database.read(look)

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        """Return one item, of any response or conversation."""
        return await self.database.read(partial(reads.find_item, id=id, tenant=tenant))

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        """Remove a response and everything of it."""
        change = _single_statement(sql.DELETE_RESPONSE, {"id": id, "tenant": tenant})
        return await self.database.write(change, partial(self.notifier.notify, id))

    async def list_unfinished(self) -> list[tuple[str, StoredResponse]]:
        """Return every response that has not ended, oldest first.

        One whose row cannot be read is set aside: it is ended as failed, so that it keeps neither
        the server from starting nor its conversation busy, and goes as any that has ended.
        """
        found, unreadable = await self.database.read(reads.list_unfinished)
        for one in unreadable:
            logger.error("%s cannot be read and is ended as failed: %s", one.id, one.reason)
            values: Row = {"id": one.id, "tenant": one.tenant, "ended_at": int(self._clock())}
            await self.database.write(_single_statement(sql.FAIL_UNREADABLE, values))
        return found

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        """Remove what ended before given times, a chunk at a time."""
        before = {"responses_before": responses_before, "events_before": events_before}
        return await self.database.write(partial(writes.sweep_expired, **before, limit=limit))

    async def close(self) -> None:
        """Finish what was begun, and let go of everything."""
        await self.database.close()

    # --- the feed ----------------------------------------------------------------------------

    async def claim(self, id: str, *, tenant: str = "") -> int | None:
        """Become the one who makes a response."""
        return await self.database.write(partial(writes.claim_response, id=id, tenant=tenant))

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
        """Add events after number `after`, durably, all or none; wake the readers."""
        change = partial(
            writes.append_events,
            fence=writes.Fence(id, tenant, epoch, after),
            events=events,
            final=self._ended_response(final, tenant) if final else None,
        )
        return await self.database.write(change, partial(self.notifier.notify, id))

    async def read(
        self, id: str, after: int, *, limit: int = 512, tenant: str = ""
    ) -> LoggedEvents | None:
        """Return events with numbers greater than `after`."""
        look = partial(reads.read_events, id=id, tenant=tenant, after=after, limit=limit)
        return await self.database.read(look)

    async def wait(self, id: str, after: int) -> None:
        """Return when there may be events after a number, or the response may have ended."""
        with self.notifier.subscribe(id) as listener:  # before looking, so that no ring is missed
            if not await self.database.read(partial(reads.has_news, id=id, after=after)):
                await wait_for_notification(listener)

    # --- conversations -----------------------------------------------------------------------

    async def save_conversation(
        self, conversation: StoredConversation, *, tenant: str = ""
    ) -> None:
        """Keep a conversation, new or changed."""
        row: Row = {"tenant": tenant, "id": conversation.id, "created_at": conversation.created_at}
        row["metadata"] = encode(conversation.metadata).decode()
        await self.database.write(_single_statement(sql.SAVE_CONVERSATION, row))

    async def find_conversation(self, id: str, *, tenant: str = "") -> StoredConversation | None:
        """Return a conversation."""
        return await self.database.read(partial(reads.find_conversation, id=id, tenant=tenant))

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        """Remove a conversation and its items."""
        change = _single_statement(sql.DELETE_CONVERSATION, {"id": id, "tenant": tenant})
        return await self.database.write(change)

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> bool:
        """Append items to a conversation, all or none."""
        list: Row = {"id": id, "list": id, "tenant": tenant}
        rows = [item_to_row(item) for item in items]
        return await self.database.write(
            partial(writes.add_conversation_items, list=list, items=rows)
        )

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        """Return a page of a conversation's items."""
        place = {"id": id, "tenant": tenant}
        look = partial(reads.list_items, listing=reads.CONVERSATION_ITEMS, **place, cursor=cursor)
        return await self.database.read(look)

    async def find_conversation_item(
        self, id: str, item_id: str, *, tenant: str = ""
    ) -> Item | None:
        """Return one item of a conversation."""
        look = partial(reads.find_conversation_item, id=id, item_id=item_id, tenant=tenant)
        return await self.database.read(look)

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        """Remove one item of a conversation."""
        place: Row = {"list": id, "id": item_id, "tenant": tenant}
        return await self.database.write(_single_statement(sql.DELETE_CONVERSATION_ITEM, place))

    # --- threads -----------------------------------------------------------------------------

    async def save_thread(self, id: str, messages: bytes, *, tenant: str = "") -> None:
        """Keep a thread, new or changed."""
        row: Row = {"tenant": tenant, "id": id, "messages": messages}
        row["saved_at"] = int(self._clock())
        await self.database.write(_single_statement(sql.SAVE_THREAD, row))

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        """Return a thread."""
        return await self.database.read(partial(reads.find_thread, id=id, tenant=tenant))

    # --- what they share ---------------------------------------------------------------------

    def _ended_response(self, response: Response, tenant: str) -> writes.EndedResponse:
        return writes.EndedResponse(response, response_to_row(response, int(self._clock())), tenant)


def _single_statement(statement: str, values: Row) -> Callable[[sqlite3.Connection], bool]:
    """Make the change of one statement, which tells whether there was anything to change."""
    return lambda connection: connection.execute(statement, values).rowcount > 0
