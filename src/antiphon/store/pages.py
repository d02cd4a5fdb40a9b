"""Which stretch of a list a cursor means, and the page that comes of it.

`after` goes on from an item in the direction of the order. `before` alone goes back from one: the
page is the stretch that ends just before it, shown in the order all the same.
"""

from collections.abc import Callable

from msgspec import Struct

from antiphon.core.errors import RequestError
from antiphon.core.items import Item
from antiphon.store.base import Cursor, Page

FIRST, LAST = -1, 2**62

Places = Callable[[str], tuple[int, int] | None]
"""Gives the first and the last place of an id in a list, None if it has none."""


class Window(Struct, frozen=True):
    """The places between `low` and `high`, walked up or down; turned round to be shown."""

    low: int
    high: int
    up: bool
    turned: bool


def window(cursor: Cursor, places: Places) -> Window:
    """Find the stretch that a cursor means, in a list whose places count up."""
    up = cursor.order == "asc"
    low, high = FIRST, LAST
    for param, id in (("after", cursor.after), ("before", cursor.before)):
        if id is None:
            continue
        if (found := places(id)) is None:
            raise RequestError(f"There is no item '{id}' in this list.", param=param)
        # A list may hold an id twice; going on from the farther one never goes in circles.
        if up == (param == "after"):
            low = max(low, found[1])
        else:
            high = min(high, found[0])
    turned = cursor.before is not None and cursor.after is None
    return Window(low, high, up != turned, turned)


def page(found: list[Item], cursor: Cursor, stretch: Window) -> Page:
    """Make a page of what was found, which is one more than asked for if there is more."""
    items = found[: cursor.limit]
    return Page(items[::-1] if stretch.turned else items, len(found) > cursor.limit)


def page_of(items: list[Item], cursor: Cursor) -> Page:
    """Make a page of a whole list."""

    def places(id: str) -> tuple[int, int] | None:
        found = [place for place, item in enumerate(items) if item.id == id]
        return (found[0], found[-1]) if found else None

    stretch = window(cursor, places)
    between = items[stretch.low + 1 : max(stretch.high, 0)]
    walked = between if stretch.up else between[::-1]
    return page(walked[: cursor.limit + 1], cursor, stretch)
