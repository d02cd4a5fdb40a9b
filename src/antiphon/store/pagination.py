"""Which stretch of a list a cursor means, and the page that comes of it.

`after` goes on from an item in the direction of the order. `before` alone goes back from one: the
page is the stretch that ends just before it, shown in the order all the same.
"""

from collections.abc import Callable

from msgspec import Struct

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item
from antiphon.store.base import ItemPage, PageCursor

BEFORE_FIRST, AFTER_LAST = -1, 2**62

FindPositions = Callable[[str], tuple[int, int] | None]
"""Gives the first and the last place of an id in a list, None if it has none."""


class PositionRange(Struct, frozen=True):
    """The places between `low` and `high`, walked up or down; turned round to be shown."""

    low: int
    high: int
    ascending: bool
    is_reversed: bool


def find_range(cursor: PageCursor, find_positions: FindPositions) -> PositionRange:
    """Find the stretch that a cursor means, in a list whose places count up."""
    up = cursor.order == "asc"
    low, high = BEFORE_FIRST, AFTER_LAST
    for param, id in (("after", cursor.after), ("before", cursor.before)):
        if id is None:
            continue
        if (found := find_positions(id)) is None:
            raise RequestError(f"There is no item '{id}' in this list.", param=param)
        # A list may hold an id twice; going on from the farther one never goes in circles.
        if up == (param == "after"):
            low = max(low, found[1])
        else:
            high = min(high, found[0])
    turned = cursor.before is not None and cursor.after is None
    return PositionRange(low, high, up != turned, turned)


def make_page(found: list[Item], cursor: PageCursor, positions: PositionRange) -> ItemPage:
    """Make a page of what was found, which is one more than asked for if there is more."""
    items = found[: cursor.limit]
    return ItemPage(items[::-1] if positions.is_reversed else items, len(found) > cursor.limit)


def paginate(items: list[Item], cursor: PageCursor) -> ItemPage:
    """Make a page of a whole list."""

    def places(id: str) -> tuple[int, int] | None:
        found = [place for place, item in enumerate(items) if item.id == id]
        return (found[0], found[-1]) if found else None

    stretch = find_range(cursor, places)
    between = items[stretch.low + 1 : max(stretch.high, 0)]
    walked = between if stretch.ascending else between[::-1]
    return make_page(walked[: cursor.limit + 1], cursor, stretch)
