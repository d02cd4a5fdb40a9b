"""`SqliteStore`: a store in one SQLite file, with no server to install and no setup."""

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.store.base import (
    History,
    IdempotencyRecord,
    ItemPage,
    LoggedEvents,
    Notifier,
    PageCursor,
    StoredConversation,
    StoredResponse,
    wait_for_notification,
)
from antiphon.store.sqlite import operations, sql
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.sql import Row, input_to_rows, item_to_row, response_to_row

logger = logging.getLogger("antiphon.store")

DATABASE_FILE = "responses.db"

T = TypeVar("T")


class SqliteStore:
    """A store in `{folder}/responses.db`; `store.base` documents the methods."""

    def __init__(self, folder: Path | str, clock: Callable[[], float] = time.time) -> None:
        self.database = Database(Path(folder) / DATABASE_FILE)
        self.notifier = Notifier()
        self._clock = clock

    def __repr__(self) -> str:
        return f"<SqliteStore at {self.database.path}>"

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
        # Rows are made here, on the event loop's thread, so that the writer thread only writes.
        new = operations.NewResponse(
            response=response,
            row=response_to_row(response, int(self._clock())),
            input=input_to_rows(response, input),
            tenant=tenant,
            request=request,
            conversation=conversation,
            key=key,
        )
        return await self.database.write(partial(operations.begin_response, new=new))

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        change = partial(operations.end_response, ended=self._make_end(response, tenant))
        return await self._write_and_notify(response.id, change)

    async def find(self, id: str, *, tenant: str = "") -> StoredResponse | None:
        return await self.database.read(operations.find_response, id, tenant)

    async def read_history(self, id: str, *, tenant: str = "") -> History | None:
        return await self.database.read(operations.read_history, id, tenant)

    async def list_input_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        return await self.database.read(operations.list_items, operations.INPUT_ITEMS, id, tenant, cursor)

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        return await self.database.read(operations.find_item, id, tenant)

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        change = _single_statement(sql.DELETE_RESPONSE, {"id": id, "tenant": tenant})
        return await self._write_and_notify(id, change)

    async def list_unfinished(self) -> list[tuple[str, StoredResponse]]:
        found, unreadable = await self.database.read(operations.list_unfinished)
        # A row that cannot be read must not keep the server from starting, or its conversation
        # busy for ever: it is ended as failed, and retention deletes it like any other.
        for one in unreadable:
            logger.error("%s cannot be read and is ended as failed: %s", one.id, one.reason)
            values: Row = {"id": one.id, "tenant": one.tenant, "ended_at": int(self._clock())}
            await self.database.write(_single_statement(sql.FAIL_UNREADABLE, values))
        return found

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        before = {"responses_before": responses_before, "events_before": events_before}
        return await self.database.write(partial(operations.sweep_expired, **before, limit=limit))

    async def close(self) -> None:
        await self.database.close()

    async def claim(self, id: str, *, tenant: str = "") -> int | None:
        return await self.database.write(partial(operations.claim_response, id=id, tenant=tenant))

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
        change = partial(
            operations.append_events,
            fence=operations.Fence(id, tenant, epoch, after),
            events=events,
            final=self._make_end(final, tenant) if final else None,
        )
        return await self._write_and_notify(id, change)

    async def read(self, id: str, after: int, *, limit: int = 512, tenant: str = "") -> LoggedEvents | None:
        return await self.database.read(operations.read_events, id, tenant, after, limit)

    async def wait(self, id: str, after: int) -> None:
        # Subscribe before reading: an event between the two would otherwise be missed.
        with self.notifier.subscribe(id) as notification:
            if not await self.database.read(operations.has_news, id, after):
                await wait_for_notification(notification)

    async def save_conversation(self, conversation: StoredConversation, *, tenant: str = "") -> None:
        row: Row = {"tenant": tenant, "id": conversation.id, "created_at": conversation.created_at}
        row["metadata"] = encode(conversation.metadata).decode()
        await self.database.write(_single_statement(sql.SAVE_CONVERSATION, row))

    async def find_conversation(self, id: str, *, tenant: str = "") -> StoredConversation | None:
        return await self.database.read(operations.find_conversation, id, tenant)

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        change = _single_statement(sql.DELETE_CONVERSATION, {"id": id, "tenant": tenant})
        return await self.database.write(change)

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> bool:
        list: Row = {"id": id, "list": id, "tenant": tenant}
        rows = [item_to_row(item) for item in items]
        change = partial(operations.add_conversation_items, list=list, items=rows)
        return await self.database.write(change)

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        queries = operations.CONVERSATION_ITEMS
        return await self.database.read(operations.list_items, queries, id, tenant, cursor)

    async def find_conversation_item(self, id: str, item_id: str, *, tenant: str = "") -> Item | None:
        return await self.database.read(operations.find_conversation_item, id, item_id, tenant)

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        values: Row = {"list": id, "id": item_id, "tenant": tenant}
        return await self.database.write(_single_statement(sql.DELETE_CONVERSATION_ITEM, values))

    async def save_thread(self, id: str, messages: bytes, *, tenant: str = "") -> None:
        row: Row = {"tenant": tenant, "id": id, "messages": messages}
        row["saved_at"] = int(self._clock())
        await self.database.write(_single_statement(sql.SAVE_THREAD, row))

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        return await self.database.read(operations.find_thread, id, tenant)

    async def _write_and_notify(self, id: str, change: Callable[[sqlite3.Connection], T]) -> T:
        """Make a change to a response; once it is durable, wake the readers in this process (others poll)."""
        return await self.database.write(change, partial(self.notifier.notify, id))

    def _make_end(self, response: Response, tenant: str) -> operations.EndedResponse:
        return operations.EndedResponse(response, response_to_row(response, int(self._clock())), tenant)


def _single_statement(statement: str, values: Row) -> Callable[[sqlite3.Connection], bool]:
    """Return a function for the writer thread that executes one statement and tells whether it changed a row."""
    return lambda connection: connection.execute(statement, values).rowcount > 0
