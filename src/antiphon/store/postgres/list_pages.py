"""Pages of the lists of responses and conversations in PostgreSQL.

The ids are read with one statement, and then what is known of them in chunks, until the page is full.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode
from antiphon.store import lists
from antiphon.store.pagination import PageCursor
from antiphon.store.postgres import sql
from antiphon.store.postgres.database import Connection, Row

logger = logging.getLogger("antiphon.store")

S = TypeVar("S", lists.ResponseSummary, lists.ConversationSummary)

CHUNK_SIZE = 50
"""How many rows are read at a time."""


async def list_responses(
    connection: Connection, cursor: PageCursor, filter: lists.ResponseFilter, tenant: str
) -> lists.SummaryPage[lists.ResponseSummary]:
    """Return a page of a tenant's responses."""
    texts = (filter.model, filter.status, filter.previous_response_id, filter.conversation)
    model, status, parent, conversation = (text and sql.escape_nul(text) for text in texts)
    columns = (model, status, filter.background, parent, conversation)

    async def summarize(ids: Sequence[str]) -> list[lists.ResponseSummary]:
        rows = await connection.fetch(sql.FIND_SUMMARIES, tenant, ids, lists.TITLE_MESSAGES, *columns)
        found = await asyncio.to_thread(_convert_rows, rows, _response_from_row)
        wanted = [summary for summary in found if filter.matches_metadata(summary.metadata)]
        if filter.search is None:
            return wanted
        rows = await connection.fetch(sql.SEARCH_RESPONSES, [summary.id for summary in wanted], filter.like_pattern())
        matching = await asyncio.to_thread(_find_matching, rows, filter)
        return [summary for summary in wanted if summary.id in matching]

    queries = (sql.RESPONSE_POSITION, sql.LIST_RESPONSES)
    return await _list_page(connection, queries, cursor, filter, tenant, summarize)


async def list_conversations(
    connection: Connection, cursor: PageCursor, filter: lists.ListFilter, tenant: str
) -> lists.SummaryPage[lists.ConversationSummary]:
    """Return a page of a tenant's conversations."""

    async def summarize(ids: Sequence[str]) -> list[lists.ConversationSummary]:
        rows = await connection.fetch(sql.FIND_CONVERSATION_SUMMARIES, tenant, ids, lists.TITLE_MESSAGES)
        found = await asyncio.to_thread(_convert_rows, rows, _conversation_from_row)
        wanted = [summary for summary in found if filter.matches_metadata(summary.metadata)]
        if filter.search is None:
            return wanted
        ids = [summary.id for summary in wanted]
        values = (ids, filter.like_pattern(), tenant, lists.SEARCHED_ITEMS)
        rows = await connection.fetch(sql.SEARCH_CONVERSATIONS, *values)
        matching = await asyncio.to_thread(_find_matching, rows, filter)
        return [summary for summary in wanted if summary.id in matching]

    queries = (sql.CONVERSATION_PLACE, sql.LIST_CONVERSATIONS)
    return await _list_page(connection, queries, cursor, filter, tenant, summarize)


async def _list_page(
    connection: Connection,
    queries: tuple[str, str],
    cursor: PageCursor,
    wanted: lists.ListFilter,
    tenant: str,
    summarize: Callable[[Sequence[str]], Awaitable[list[S]]],
) -> lists.SummaryPage[S]:
    """Return a page of the rows that `summarize` returns for some ids; it leaves out those that are not wanted."""
    find_position, statement = queries
    positions: dict[str, lists.Position] = {}
    for id in filter(None, (cursor.after, cursor.before)):
        if row := await connection.fetchrow(find_position, tenant, sql.escape_nul(id)):
            positions[id] = (row[0], row[1])
    page = lists.PageBuilder[S](cursor, wanted, positions.get)
    if not page.ascending:
        statement = statement.replace("ORDER BY created_at, number", "ORDER BY created_at DESC, number DESC")
    rows = await connection.fetch(statement, tenant, *page.low, *page.high, page.read_limit)
    ids: list[str] = [row["id"] for row in rows]
    for start in range(0, len(ids), CHUNK_SIZE):
        chunk = ids[start : start + CHUNK_SIZE]
        found = {summary.id: summary for summary in await summarize(chunk)}
        if not all(page.add(id, found.get(id)) for id in chunk):
            break
    return page.page()


def _convert_rows(rows: Sequence[Row], convert: Callable[[Row], S]) -> list[S]:
    """Return the rows that can be read: one that cannot must not hide all others."""
    found: list[S] = []
    for row in rows:
        try:
            found.append(convert(row))
        except ValueError as error:
            logger.error("%s cannot be read and is not listed: %s", row["id"], error)  # noqa: TRY400
    return found


def _response_from_row(row: Row) -> lists.ResponseSummary:
    response = decode(Response, msgspec.json.decode(row["body"]))
    return lists.summarize_response(response, row["conversation"], sql.messages_from_row(row))


def _conversation_from_row(row: Row) -> lists.ConversationSummary:
    found = sql.conversation_from_row(row)
    title = lists.make_title(sql.messages_from_row(row))
    return lists.ConversationSummary(id=found.id, created_at=found.created_at, title=title, metadata=found.metadata)


def _find_matching(rows: Sequence[Row], filter: lists.ListFilter) -> set[str]:
    """Return the ids of the rows with an item that matches a search."""
    matching = set[str]()
    for row in rows:
        with suppress(ValueError):  # items that cannot be read match nothing
            if filter.matches_text(sql.items_from_json(row["items"])):
                matching.add(row["id"])
    return matching
