"""Pagination of lists: cursors, pages, and the range of positions that a cursor selects."""

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item

Order = Literal["asc", "desc"]


class ItemPage(Struct, frozen=True):
    """A page of a list of items."""

    items: list[Item]
    has_more: bool


class PageCursor(Struct, frozen=True):
    """Which page of a list is wanted: after or before an item, in an order."""

    limit: int = 20
    order: Order = "desc"
    after: str | None = None
    before: str | None = None


BEFORE_FIRST, AFTER_LAST = -1, 2**62


P = TypeVar("P", int, tuple[int, int])


class PositionRange(Struct, Generic[P], frozen=True):
    """The positions between `low` and `high`, exclusive, how to read them, and whether to turn the page round."""

    low: P
    high: P
    ascending: bool
    is_reversed: bool


def find_range(cursor: PageCursor, find_position: Callable[[str], P | None], first: P, last: P) -> PositionRange[P]:
    """Return the range of positions that a cursor selects; raises RequestError for an unknown id.

    All positions are between `first` and `last`, exclusive.
    """
    ascending = cursor.order == "asc"
    low, high = first, last
    for param, id in (("after", cursor.after), ("before", cursor.before)):
        if id is None:
            continue
        if (found := find_position(id)) is None:
            raise not_listed_error(id, param)
        if ascending == (param == "after"):
            low = max(low, found)
        else:
            high = min(high, found)
    # A page before an item ends next to it, so it is read backwards from there.
    is_reversed = cursor.before is not None and cursor.after is None
    return PositionRange(low, high, ascending != is_reversed, is_reversed)


def not_listed_error(id: str, param: str = "after") -> RequestError:
    return RequestError(f"There is no item '{id[:80]}' in this list.", param=param)


def make_page(found: list[Item], cursor: PageCursor, positions: PositionRange[int]) -> ItemPage:
    """Return a page of the items that were read; one more than `limit` means there are more."""
    items = found[: cursor.limit]
    return ItemPage(items[::-1] if positions.is_reversed else items, len(found) > cursor.limit)


def paginate(items: list[Item], cursor: PageCursor) -> ItemPage:
    """Return a page of a list in memory."""
    find_position = {str(item.id): position for position, item in enumerate(items)}.get
    positions = find_range(cursor, find_position, BEFORE_FIRST, AFTER_LAST)
    selected = items[positions.low + 1 : max(positions.high, 0)]
    ordered = selected if positions.ascending else selected[::-1]
    return make_page(ordered[: cursor.limit + 1], cursor, positions)
