"""A long list, read page by page."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, cast

from antiphon.adapters.fields import fields_of, list_of, string
from antiphon.client.ask import Ask
from antiphon.client.fields import Order
from antiphon.client.patient import patient_any
from antiphon.core.items import Item
from antiphon.wire.dialects import canonical_item

if TYPE_CHECKING:
    from antiphon.client.link import Link

LIMIT = 100
"""How many items a page holds."""


def items_in(value: object) -> list[Item]:
    """Read the items of a list, as any server writes them."""
    entries = [canonical_item(entry) for entry in list_of(value) if fields_of(entry)]
    return [cast("Item", patient_any(Item, entry)) for entry in entries]


async def pages(
    link: "Link", path: str, order: Order, after: str | None, include: Sequence[str] = ()
) -> AsyncIterator[list[Item]]:
    """Give the items below a path, a page at a time."""
    query = [("order", order), ("limit", str(LIMIT)), *(("include[]", name) for name in include)]
    seen: set[str] = set()
    while True:
        more = [("after", after)] if after else []
        page = fields_of(await link.ask(Ask(method="GET", path=path, query=[*query, *more])))
        items = items_in(page.get("data"))
        if items:
            yield items
        after = string(page.get("last_id")) or (string(items[-1].id) if items else "")
        if page.get("has_more") is not True or not after or after in seen:
            return
        seen.add(after)
