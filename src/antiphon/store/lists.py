"""Lists of stored responses and conversations: filters, search, and the rows of a page.

A list is in the order of creation. A page without a filter reads as many rows as it has. A filter looks at most at
SCAN_LIMIT rows per page, however many are stored: a page may then have fewer rows than its limit, or none, although
there are more; its `first_id` and `last_id` are those of the last rows that were looked at, so the next page goes on
from there.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, content_text
from antiphon.protocol.request import ConversationParam, Metadata
from antiphon.protocol.response import Response, ResponseError, ResponseStatus, ResponseUsage
from antiphon.protocol.struct import ProtocolStruct, encode
from antiphon.store.pagination import AFTER_LAST, BEFORE_FIRST, PageCursor, find_range

SCAN_LIMIT = 1000
"""How many rows a page with a filter looks at."""

TITLE_MESSAGES = 10
"""Among how many messages the first one of a user is looked for."""

TITLE_LENGTH = 80

SEARCHED_ITEMS = 200
"""How many items of a conversation a search looks at, the last ones."""

Position = tuple[int, int]
"""The creation time of a row, and its number among those of the same second."""


class ResponseSummary(ProtocolStruct):
    """A stored response in a list, without its input and output; `title` is the beginning of the user's first text."""

    id: str
    object: Literal["response.summary"] = "response.summary"
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    model: str
    title: str
    usage: ResponseUsage | None
    previous_response_id: str | None
    conversation: ConversationParam | None
    background: bool
    metadata: Metadata
    error: ResponseError | None


class ConversationSummary(ProtocolStruct):
    """A conversation in a list; `title` is the beginning of the user's first text."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    title: str
    metadata: Metadata


S = TypeVar("S", ResponseSummary, ConversationSummary)


class ListFilter(Struct, frozen=True, kw_only=True):
    """Which conversations of a list are wanted; None is no condition.

    `search` is looked for in the text of the items; upper and lower case of ASCII letters are the same.
    """

    created_after: int | None = None
    created_before: int | None = None
    metadata: dict[str, str] | None = None
    search: str | None = None

    def limit_scan(self, cursor: PageCursor) -> int:
        """Return how many rows a page may look at."""
        conditions = asdict(self)
        del conditions["created_after"], conditions["created_before"]  # these two are a range of the index
        return cursor.limit if all(value is None for value in conditions.values()) else SCAN_LIMIT

    def matches_metadata(self, metadata: dict[str, str]) -> bool:
        """Return whether metadata has all the wanted entries."""
        return (self.metadata or {}).items() <= metadata.items()

    def matches_text(self, items: Iterable[Item]) -> bool:
        """Return whether the text of any item contains the searched text."""
        if self.search is None:
            return True
        wanted = _lower(self.search)
        return any(wanted in _lower(text) for item in items for text in item_texts(item))

    def like_pattern(self) -> str | None:
        """Return a pattern for SQL's LIKE, escaped by '!', that the JSON of every matching item matches."""
        if self.search is None:
            return None
        text = encode(self.search).decode()[1:-1]
        for special in "!%_":
            text = text.replace(special, f"!{special}")
        return f"%{text}%"


class ResponseFilter(ListFilter, frozen=True, kw_only=True):
    """Which responses of a list are wanted; None is no condition."""

    model: str | None = None
    status: ResponseStatus | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | None = None

    def matches(self, summary: ResponseSummary) -> bool:
        """Return whether a response is wanted, as far as its summary can tell."""
        conversation = summary.conversation.id if summary.conversation else None
        values = (summary.model, summary.status, summary.background, summary.previous_response_id, conversation)
        wanted = (self.model, self.status, self.background, self.previous_response_id, self.conversation)
        return self.matches_metadata(summary.metadata) and all(
            condition is None or condition == value for condition, value in zip(wanted, values, strict=True)
        )


class SummaryPage(Struct, Generic[S], frozen=True):
    """A page of a list; the next one starts after `last_id`, the previous one ends before `first_id`."""

    rows: list[S]
    first_id: str | None
    last_id: str | None
    has_more: bool


class PageBuilder(Generic[S]):
    """Collects a page from the rows that are read in the order of a cursor."""

    def __init__(self, cursor: PageCursor, filter: ListFilter, find_position: Callable[[str], Position | None]) -> None:
        range = find_range(cursor, find_position, (BEFORE_FIRST, BEFORE_FIRST), (AFTER_LAST, AFTER_LAST))
        after, before = filter.created_after, filter.created_before
        self.low = range.low if after is None else max(range.low, (after, AFTER_LAST))
        self.high = range.high if before is None else min(range.high, (before, BEFORE_FIRST))
        """The positions between which rows are read, exclusive."""
        self.ascending = range.ascending
        self._is_reversed = range.is_reversed
        self._scan = filter.limit_scan(cursor)
        self._limit = cursor.limit
        self._looked_at = 0
        self._last_seen: str | None = None
        self._has_more = False
        self._rows: list[S] = []

    @property
    def read_limit(self) -> int:
        """How many rows to read: one more than are looked at shows whether there are more."""
        return self._scan + 1

    def add(self, id: str, row: S | None) -> bool:
        """Add the next row, None for one that is not wanted; return whether the page takes more."""
        if self._looked_at == self._scan or (row is not None and len(self._rows) == self._limit):
            self._has_more = True
            return False
        self._looked_at += 1
        if row is not None:
            self._rows.append(row)
        if row is not None or len(self._rows) < self._limit:
            self._last_seen = id
        return True

    def page(self) -> SummaryPage[S]:
        """Return the page."""
        rows = self._rows
        first, last = (rows[0].id, rows[-1].id) if rows else (None, None)
        if self._has_more:
            first, last = first or self._last_seen, self._last_seen
        if self._is_reversed:
            rows, first, last = rows[::-1], last, first
        return SummaryPage(rows, first, last, self._has_more)


def summarize_response(response: Response, conversation: str | None, input: Iterable[Item]) -> ResponseSummary:
    """Return a response's row in a list."""
    return ResponseSummary(
        id=response.id,
        created_at=response.created_at,
        completed_at=response.completed_at,
        status=response.status,
        model=response.model,
        title=make_title(input),
        usage=response.usage,
        previous_response_id=response.previous_response_id,
        conversation=None if conversation is None else ConversationParam(id=conversation),
        background=response.background,
        metadata=response.metadata,
        error=response.error,
    )


def make_title(items: Iterable[Item]) -> str:
    """Return the beginning of the first text of a user, on one line."""
    messages = islice((item for item in items if isinstance(item, Message)), TITLE_MESSAGES)
    for message in messages:
        text = "".join(item_texts(message)) if message.role == "user" else ""
        if title := " ".join(text[: 4 * TITLE_LENGTH].split())[:TITLE_LENGTH]:
            return title
    return ""


def item_texts(item: Item) -> list[str]:
    """Return the texts of an item that a search looks at."""
    match item:
        case Message():
            return [content_text(part) for part in item.content]
        case FunctionCall():
            return [item.name, item.arguments]
        case FunctionCallOutput():
            return [item.output] if isinstance(item.output, str) else [content_text(part) for part in item.output]
        case Reasoning():
            parts = [*item.summary, *(item.content or ())]
            return [content_text(part) for part in parts]
        case _:
            return []


def _lower(text: str) -> bytes:
    # Of bytes only ASCII letters change: the same as in SQL's LIKE.
    return text.encode().lower()
