"""`SqliteStore`: a store in one SQLite file, with no server to install and no setup."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.store import base, lists
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.sqlite import operations, sql
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.process import Process
from antiphon.store.sqlite.sql import Row

logger = logging.getLogger("antiphon.store")

DATABASE_FILE = "responses.db"

T = TypeVar("T")


class SqliteStore:
    """A store in `{folder}/responses.db`; `store.base` documents the methods."""

    def __init__(self, folder: Path | str, clock: Callable[[], float] = time.time) -> None:
        self.database = Database(Path(folder) / DATABASE_FILE)
        self.notifier = base.Notifier()
        self.process = Process(Path(folder))
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
    ) -> base.IdempotencyRecord | None:
        queued = response.status == "queued"
        own: Row = {"conversation": conversation, "request": request, "queued": queued}
        own["owner"] = None if queued else self.process.id

        def change(connection: sqlite3.Connection) -> base.IdempotencyRecord | None:
            row, rows = self._make_row(response, tenant) | own, sql.input_to_rows(response, input)
            return operations.begin_response(connection, response, row, rows, key)

        return await self.database.write(change)

    async def save_output(self, response: Response, *, tenant: str = "") -> None:
        await self.database.write(partial(operations.save_output, response=response, tenant=tenant))

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        return await self._write_and_notify(
            response.id,
            lambda connection: operations.end_response(connection, response, self._make_row(response, tenant)),
        )

    async def find(self, id: str, *, tenant: str = "") -> base.StoredResponse | None:
        return await self._find(sql.FIND_RESPONSE, sql.response_from_row, id=id, tenant=tenant)

    async def read_history(self, id: str, *, tenant: str = "") -> base.History | None:
        return await self.database.read(operations.read_history, id, tenant)

    async def list_input_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        return await self.database.read(operations.list_items, operations.INPUT_ITEMS, id, tenant, cursor)

    async def list_responses(
        self, cursor: PageCursor, filter: lists.ResponseFilter, *, tenant: str = ""
    ) -> lists.SummaryPage[lists.ResponseSummary]:
        return await self.database.read(operations.list_responses, cursor, filter, tenant)

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        return await self.database.read(operations.find_item, id, tenant)

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        notify = partial(self._notify, id)
        return await self._execute(sql.DELETE_RESPONSE, notify, id=id, tenant=tenant)

    async def release_key(self, id: str, *, tenant: str = "") -> None:
        await self._execute(sql.RELEASE_KEY, id=id, tenant=tenant)

    async def list_unfinished(self) -> list[tuple[str, base.StoredResponse]]:
        return await self._read_unfinished(None)

    async def take_abandoned(self, running: Collection[str]) -> list[tuple[str, base.StoredResponse]]:
        owners = await self.database.read(operations.list_owners)
        gone = {id for id in owners if id == self.process.id or not self.process.is_alive(id)}
        return await self._read_unfinished(frozenset(gone), frozenset(running)) if gone else []

    async def _read_unfinished(
        self, owners: frozenset[str | None] | None, running: frozenset[str] = frozenset()
    ) -> list[tuple[str, base.StoredResponse]]:
        found, unreadable = await self.database.read(operations.list_unfinished, owners, running)
        # A row that cannot be read must not keep the server from starting, or its conversation
        # busy for ever: it is ended as failed, and retention deletes it like any other.
        for tenant, id, error in unreadable:
            logger.error("%s cannot be read and is ended as failed: %s", id, error)
            await self.release_key(id, tenant=tenant)  # a retry with its key must run, and not find this row
            await self._execute(sql.FAIL_UNREADABLE, id=id, tenant=tenant, ended_at=int(self._clock()))
        return found

    async def claim_queued(self, limit: int) -> list[tuple[str, base.StoredResponse]]:
        # Mostly there is none, and reading takes no turn at the writer.
        if not await self._find(sql.HAS_QUEUED, itemgetter(0)):
            return []
        return await self.database.write(partial(operations.claim_queued, owner=self.process.id, limit=limit))

    async def requeue(self, id: str, epoch: int, *, tenant: str = "") -> bool:
        return await self._execute(sql.REQUEUE, id=id, tenant=tenant, epoch=epoch)

    async def find_lost(self, claims: Sequence[tuple[str, int]]) -> list[str]:
        return await self.database.read(operations.find_lost, claims)

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        before = {"responses_before": responses_before, "events_before": events_before}
        return await self.database.write(partial(operations.sweep_expired, **before, limit=limit), deletes=True)

    async def close(self) -> None:
        await self.database.close()
        self.process.close()

    async def claim(
        self, id: str, *, tenant: str = "", queued: bool = False, expected: int | None = None
    ) -> int | None:
        values = {"id": id, "tenant": tenant, "owner": self.process.id, "queued": queued, "expected": expected}
        row = await self.database.write(lambda connection: connection.execute(sql.NEXT_EPOCH, values).fetchone())
        return row and row["epoch"]

    async def append(
        self, id: str, epoch: int, after: int, events: list[bytes], *, final: Response | None = None, tenant: str = ""
    ) -> bool:
        fence: Row = {"id": id, "tenant": tenant, "epoch": epoch, "after": after, "count": len(events)}
        rows = [(id, seq, body) for seq, body in enumerate(events, after + 1)]

        def change(connection: sqlite3.Connection) -> bool:
            end = (final, self._make_row(final, tenant)) if final else None
            return operations.append_events(connection, fence, rows, end)

        return await self._write_and_notify(id, change)

    async def read(self, id: str, after: int, *, limit: int = 512, tenant: str = "") -> base.LoggedEvents | None:
        return await self.database.read(operations.read_events, id, tenant, after, limit)

    async def wait(self, id: str, after: int) -> None:
        self.process.listen(self.notifier.notify)
        # Subscribe before reading: an event between the two would otherwise be missed.
        with self.notifier.subscribe(id) as notification:
            news = await self._find(sql.HAS_NEWS, itemgetter(0), id=id, after=after)
            if news == 0:  # and not None: a response that is gone has news
                await asyncio.wait([notification], timeout=base.POLL_SECONDS)

    async def save_conversation(self, conversation: base.StoredConversation, *, tenant: str = "") -> None:
        id, created_at, metadata = conversation.id, conversation.created_at, encode(conversation.metadata).decode()
        await self._execute(sql.SAVE_CONVERSATION, id=id, tenant=tenant, created_at=created_at, metadata=metadata)

    async def find_conversation(self, id: str, *, tenant: str = "") -> base.StoredConversation | None:
        return await self._find(sql.FIND_CONVERSATION, sql.conversation_from_row, id=id, tenant=tenant)

    async def list_conversations(
        self, cursor: PageCursor, filter: lists.ListFilter, *, tenant: str = ""
    ) -> lists.SummaryPage[lists.ConversationSummary]:
        return await self.database.read(operations.list_conversations, cursor, filter, tenant)

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        return await self._execute(sql.DELETE_CONVERSATION, id=id, tenant=tenant)

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> list[Item] | None:
        values: Row = {"id": id, "list": id, "tenant": tenant}
        return await self.database.write(partial(operations.add_conversation_items, conversation=values, items=items))

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        queries = operations.CONVERSATION_ITEMS
        return await self.database.read(operations.list_items, queries, id, tenant, cursor)

    async def find_conversation_item(self, id: str, item_id: str, *, tenant: str = "") -> Item | None:
        return await self._find(sql.FIND_CONVERSATION_ITEM, sql.item_from_row, list=id, id=item_id, tenant=tenant)

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        return await self._execute(sql.DELETE_CONVERSATION_ITEM, list=id, id=item_id, tenant=tenant)

    async def create_thread(self, id: str, messages: bytes, title: str, *, tenant: str = "") -> None:
        saved_at = int(self._clock())
        await self._execute(sql.CREATE_THREAD, id=id, tenant=tenant, messages=messages, title=title, saved_at=saved_at)

    async def replace_thread(self, id: str, before: bytes, messages: bytes, *, tenant: str = "") -> bool:
        saved_at = int(self._clock())
        return await self._execute(
            sql.REPLACE_THREAD, id=id, tenant=tenant, before=before, messages=messages, saved_at=saved_at
        )

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        return await self._find(sql.FIND_THREAD, itemgetter("messages"), id=id, tenant=tenant)

    async def list_threads(self, limit: int, after: str | None = None, *, tenant: str = "") -> list[base.ThreadSummary]:
        return await self.database.read(operations.list_threads, limit, after, tenant)

    async def rename_thread(self, id: str, title: str | None, *, tenant: str = "") -> bool:
        return await self._execute(sql.RENAME_THREAD, id=id, tenant=tenant, title=title)

    async def delete_thread(self, id: str, *, tenant: str = "") -> bool:
        return await self._execute(sql.DELETE_THREAD, id=id, tenant=tenant)

    async def _find(self, statement: str, convert: Callable[[sqlite3.Row], T], **values: object) -> T | None:
        """Return the row that a statement finds, converted; None if there is none."""

        def query(connection: sqlite3.Connection) -> T | None:
            row = connection.execute(statement, values).fetchone()
            return None if row is None else convert(row)

        return await self.database.read(query)

    async def _execute(self, statement: str, on_commit: Callable[[], None] | None = None, **values: object) -> bool:
        """Execute one statement; return whether it changed a row."""
        return await self.database.write(
            lambda connection: connection.execute(statement, values).rowcount > 0,
            on_commit,
            deletes=statement.startswith("DELETE"),
        )

    async def _write_and_notify(self, id: str, change: Callable[[sqlite3.Connection], T]) -> T:
        """Make a change to a response; once it is durable, wake its readers."""
        return await self.database.write(change, partial(self._notify, id))

    def _notify(self, id: str) -> None:
        """Wake the readers of a response in this process, and those in others."""
        self.notifier.notify(id)
        self.process.send(id)

    def _make_row(self, response: Response, tenant: str) -> Row:
        # Always on the writer's thread: the rows of megabytes would block the event loop.
        return sql.response_to_row(response, int(self._clock()), tenant)
