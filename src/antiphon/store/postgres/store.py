"""`PostgresStore`: a store in PostgreSQL, for any number of processes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import itemgetter
from typing import TypeVar

from antiphon.protocol.errors import StoreError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.store import base, lists, pagination
from antiphon.store.pagination import ItemPage, PageCursor
from antiphon.store.postgres import list_pages, operations, sql
from antiphon.store.postgres.append_writer import Append, AppendWriter
from antiphon.store.postgres.database import Connection, Database, Row, UniqueViolation, convert
from antiphon.store.postgres.notifications import Notifications
from antiphon.store.postgres.schema import migrate
from antiphon.store.postgres.workers import LEASE_SECONDS, WorkerLease

logger = logging.getLogger("antiphon.store")

T = TypeVar("T")


class PostgresStore:
    """A store in one PostgreSQL database; `store.base` documents the methods."""

    def __init__(
        self, url: str, clock: Callable[[], float] = time.time, *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self.database = Database(url)
        self.notifier = base.Notifier()
        self.lease = WorkerLease(self.database, lease_seconds)
        self.writer = AppendWriter(self.database, self.lease)
        self._notifications = Notifications(self.database, self.notifier.notify, lambda: self.lease.others > 0)
        self._clock = clock

    def __repr__(self) -> str:
        return f"<PostgresStore at {self.database.name}>"

    async def open(self) -> None:
        """Connect, migrate and register this process; raises StoreError."""
        await self.database.open()
        try:
            await self.database.run(migrate)
            await self.lease.start()
            await self._notifications.start()
        except StoreError:
            await self.database.close()
            raise
        self.writer.start()

    async def close(self) -> None:
        await self.writer.stop()
        await self._notifications.stop()
        await self.lease.stop()
        await self.database.close()

    async def check(self) -> None:
        """Raise StoreError if the database cannot be reached."""
        await self.database.fetch("SELECT 1")

    async def find_or_add_secret(self, name: str, value: str) -> str:
        """Return the secret of this name that all processes share; the first one's value is kept."""
        await self.database.fetch(sql.ADD_SECRET, name, value)
        return (await self.database.fetch(sql.FIND_SECRET, name))[0]["value"]

    async def check_seal_keys(self, fingerprints: list[str]) -> None:
        """Raise StoreError if another process could not read what this one encrypts, or this one that."""
        await self.lease.check_seal_keys(fingerprints)

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
        async def add(connection: Connection) -> base.IdempotencyRecord | None:
            status, ended_at, body, output = sql.end_values(response, int(self._clock()))
            day = response.created_at // sql.SECONDS_PER_DAY
            values = (
                *(response.id, tenant, *(key or (None, None)), response.previous_response_id, status),
                *(sql.escape_nul(response.model), response.created_at, ended_at, response.background is True),
                *(conversation, self.lease.id, day, body, output, request),
                *sql.item_columns(base.make_ids_unique(input)),
            )
            while True:
                try:
                    if await operations.begin_response(connection, values, response, tenant, conversation):
                        return None
                except UniqueViolation as error:
                    own = (response, tenant, conversation)
                    if reason := await operations.find_duplicate_error(connection, error, *own):
                        raise reason from error
                if key and (used := await operations.find_claimed(connection, tenant, key[0])):
                    return used

        return await self.database.run(add, repeatable=False)

    async def save_output(self, response: Response, *, tenant: str = "") -> None:
        await self.database.fetch(sql.SAVE_OUTPUT, response.id, tenant, encode(response.output))

    async def end(self, response: Response, *, tenant: str = "") -> Response | None:
        async def change(connection: Connection) -> bool:
            async with connection.transaction():
                now = int(self._clock())
                return await operations.end_response(connection, response, tenant, self.lease.id, now)

        if await self.database.run(change):
            self._notify(response.id)
            return response
        stored = await self.find(response.id, tenant=tenant)
        if stored and stored.response.status not in base.TERMINAL_STATUSES:
            raise StoreError(f"This process lost its lease, and may not end '{response.id}'.")
        return stored and stored.response

    async def find(self, id: str, *, tenant: str = "") -> base.StoredResponse | None:
        return await self._find(sql.FIND_RESPONSE, sql.response_from_row, id, tenant)

    async def read_history(self, id: str, *, tenant: str = "") -> base.History | None:
        return await self._read(lambda connection: operations.read_history(connection, id, tenant))

    async def list_input_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        queries = operations.INPUT_ITEMS
        return await self._read(lambda c: operations.list_items(c, queries, (id, tenant), (id,), cursor))

    async def list_responses(
        self, cursor: PageCursor, filter: lists.ResponseFilter, *, tenant: str = ""
    ) -> lists.SummaryPage[lists.ResponseSummary]:
        return await self._read(lambda connection: list_pages.list_responses(connection, cursor, filter, tenant))

    async def find_item(self, id: str, *, tenant: str = "") -> Item | None:
        return await self._read(lambda connection: operations.find_item(connection, id, tenant))

    async def delete(self, id: str, *, tenant: str = "") -> bool:
        async def change(connection: Connection) -> bool:
            async with connection.transaction():
                # An append in flight would otherwise leave its events behind.
                if found := await connection.fetchrow(sql.FIND_OWNER, id, tenant):
                    await connection.fetch(sql.LOCK_WORKER, found["owner"])
                return await connection.fetchrow(sql.DELETE_RESPONSE, id, tenant) is not None

        deleted = await self.database.run(change)
        if deleted:
            self._notify(id)
        return deleted

    async def release_key(self, id: str, *, tenant: str = "") -> None:
        await self.database.fetch(sql.RELEASE_KEY, tenant, id)

    async def list_unfinished(self) -> list[tuple[str, base.StoredResponse]]:
        return await self._read_unfinished(sql.FIND_UNFINISHED)

    async def take_abandoned(self, running: Collection[str]) -> list[tuple[str, base.StoredResponse]]:
        await self.lease.fence_expired()
        return await self._read_unfinished(sql.FIND_ABANDONED, self.lease.id, list(running))

    async def _read_unfinished(self, statement: str, *values: object) -> list[tuple[str, base.StoredResponse]]:
        """Return the responses of a statement; those that cannot be read are ended."""
        return await self._convert_rows(await self.database.fetch(statement, *values))

    async def _convert_rows(self, rows: Sequence[Row]) -> list[tuple[str, base.StoredResponse]]:
        """Return the responses of rows; those that cannot be read are ended."""
        found: list[tuple[str, base.StoredResponse]] = []
        for row in rows:
            try:
                stored = await convert(sql.row_size(row), sql.response_from_row, row)
                found.append((row["tenant"], stored))
            except ValueError as error:
                # A row that cannot be read must not keep the server from starting, or its conversation
                # busy for ever: it is ended as failed, and retention deletes it like any other.
                logger.error("%s cannot be read and is ended as failed: %s", row["id"], error)  # noqa: TRY400
                await self.release_key(row["id"], tenant=row["tenant"])
                await self.database.fetch(sql.FAIL_UNREADABLE, row["id"], row["tenant"], int(self._clock()))
        return found

    async def claim_queued(self, limit: int) -> list[tuple[str, base.StoredResponse]]:
        # Not repeated: what a lost connection leaves claimed is not running here, and so it is abandoned.
        rows = await self.database.run(
            lambda connection: connection.fetch(sql.CLAIM_QUEUED, self.lease.id, limit), repeatable=False
        )
        return await self._convert_rows(sorted(rows, key=itemgetter("created_at", "number")))

    async def requeue(self, id: str, epoch: int, *, tenant: str = "") -> bool:
        return await self.database.fetchrow(sql.REQUEUE, id, tenant, epoch) is not None

    async def find_lost(self, claims: Sequence[tuple[str, int]]) -> list[str]:
        ids, epochs = [id for id, _ in claims], [epoch for _, epoch in claims]
        return [row["id"] for row in await self.database.fetch(sql.FIND_LOST, ids, epochs, self.lease.id)]

    async def sweep(self, *, responses_before: int, events_before: int, limit: int = 500) -> int:
        async def change(connection: Connection) -> int:
            async with connection.transaction():
                return await operations.sweep_expired(connection, responses_before, events_before, limit)

        deleted = await self.database.run(change)
        if deleted == 0:  # the last call of a round
            today = int(self._clock()) // sql.SECONDS_PER_DAY
            await self.database.run(lambda connection: operations.drop_empty_partitions(connection, today))
        return deleted

    async def claim(
        self, id: str, *, tenant: str = "", queued: bool = False, expected: int | None = None
    ) -> int | None:
        async def change(connection: Connection) -> int | None:
            while True:
                async with connection.transaction():
                    found = await connection.fetchrow(sql.FIND_OWNER, id, tenant)
                    if found is None or (queued and not found["queued"]) or expected not in (None, found["epoch"]):
                        return None
                    await connection.fetch(sql.LOCK_WORKER, found["owner"])
                    values = (id, tenant, self.lease.id, found["owner"], queued, expected)
                    if (epoch := await connection.fetchval(sql.CLAIM_RESPONSE, *values)) is not None:
                        return epoch

        return await self.database.run(change, repeatable=False)

    async def append(
        self, id: str, epoch: int, after: int, events: list[bytes], *, final: Response | None = None, tenant: str = ""
    ) -> bool:
        future = asyncio.get_running_loop().create_future()
        now = int(self._clock())
        append = Append(id, tenant, epoch, after, events, b"\n".join(events), final, now, future)
        accepted = await self.writer.append(append)
        if accepted:
            self._notify(id)
        return accepted

    async def read(self, id: str, after: int, *, limit: int = 512, tenant: str = "") -> base.LoggedEvents | None:
        rows = await self.database.fetch(sql.READ_EVENTS, id, tenant, after, limit)
        return operations.events_from_rows(rows, after, limit)

    async def wait(self, id: str, after: int) -> None:
        # Subscribe before reading: an event between the two would otherwise be missed.
        with self.notifier.subscribe(id) as notification:
            news = await self.database.fetchrow(sql.HAS_NEWS, id, after)
            if news is not None and not news[0]:  # a response that is gone has news
                await asyncio.wait([notification], timeout=base.POLL_SECONDS)

    async def save_conversation(self, conversation: base.StoredConversation, *, tenant: str = "") -> None:
        metadata = encode(conversation.metadata)
        await self.database.fetch(sql.SAVE_CONVERSATION, tenant, conversation.id, conversation.created_at, metadata)

    async def find_conversation(self, id: str, *, tenant: str = "") -> base.StoredConversation | None:
        return await self._find(sql.FIND_CONVERSATION, sql.conversation_from_row, tenant, id)

    async def list_conversations(
        self, cursor: PageCursor, filter: lists.ListFilter, *, tenant: str = ""
    ) -> lists.SummaryPage[lists.ConversationSummary]:
        return await self._read(lambda connection: list_pages.list_conversations(connection, cursor, filter, tenant))

    async def delete_conversation(self, id: str, *, tenant: str = "") -> bool:
        return await self.database.fetchrow(sql.DELETE_CONVERSATION, tenant, id) is not None

    async def add_items(self, id: str, items: Sequence[Item], *, tenant: str = "") -> list[Item] | None:
        async def change(connection: Connection) -> list[Item] | None:
            async with connection.transaction():
                return await operations.add_items(connection, id, items, tenant)

        return await self.database.run(change, repeatable=False)

    async def list_items(self, id: str, cursor: PageCursor, *, tenant: str = "") -> ItemPage | None:
        queries, owner = operations.CONVERSATION_ITEMS, (tenant, id)
        return await self._read(lambda connection: operations.list_items(connection, queries, owner, owner, cursor))

    async def find_conversation_item(self, id: str, item_id: str, *, tenant: str = "") -> Item | None:
        row = await self.database.fetchrow(sql.FIND_CONVERSATION_ITEM, tenant, id, sql.escape_nul(item_id))
        return row and sql.item_from_json(row["body"])

    async def delete_item(self, id: str, item_id: str, *, tenant: str = "") -> bool:
        values = (tenant, id, sql.escape_nul(item_id))
        return await self.database.fetchrow(sql.DELETE_CONVERSATION_ITEM, *values) is not None

    async def create_thread(self, id: str, messages: bytes, title: str, *, tenant: str = "") -> None:
        values = (tenant, sql.escape_nul(id), messages, title.encode(), int(self._clock()))
        await self.database.fetch(sql.CREATE_THREAD, *values)

    async def replace_thread(self, id: str, before: bytes, messages: bytes, *, tenant: str = "") -> bool:
        values = (tenant, sql.escape_nul(id), before, messages, int(self._clock()))
        return await self.database.fetchrow(sql.REPLACE_THREAD, *values) is not None

    async def find_thread(self, id: str, *, tenant: str = "") -> bytes | None:
        row = await self.database.fetchrow(sql.FIND_THREAD, tenant, sql.escape_nul(id))
        return row and row["messages"]

    async def list_threads(self, limit: int, after: str | None = None, *, tenant: str = "") -> list[base.ThreadSummary]:
        number = pagination.AFTER_LAST
        if after is not None:
            row = await self.database.fetchrow(sql.FIND_THREAD_NUMBER, tenant, sql.escape_nul(after))
            if row is None:
                raise pagination.not_listed_error(after)
            number = row["number"]
        rows = await self.database.fetch(sql.LIST_THREADS, tenant, number, limit)
        # The ids are our own, so nothing in them was escaped.
        return [base.ThreadSummary(row["id"], row["title"].decode(), row["saved_at"]) for row in rows]

    async def rename_thread(self, id: str, title: str | None, *, tenant: str = "") -> bool:
        values = (tenant, sql.escape_nul(id), title and title.encode())
        return await self.database.fetchrow(sql.RENAME_THREAD, *values) is not None

    async def delete_thread(self, id: str, *, tenant: str = "") -> bool:
        return await self.database.fetchrow(sql.DELETE_THREAD, tenant, sql.escape_nul(id)) is not None

    async def _find(self, statement: str, decode: Callable[[Row], T], *values: object) -> T | None:
        """Return the row that a statement finds, converted; None if there is none."""
        with self.database.map_errors():
            row = await self.database.fetchrow(statement, *values)
            return None if row is None else await convert(sql.row_size(row), decode, row)

    async def _read(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a query of several statements on one snapshot of the database."""

        async def read(connection: Connection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await query(connection)

        return await self.database.run(read)

    def _notify(self, id: str) -> None:
        """Wake the readers of a response in this process, and those in others."""
        self.notifier.notify(id)
        self._notifications.send(id)
