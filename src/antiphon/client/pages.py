"""A long list of items, read page by page as it is needed."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from antiphon.adapters.fields import fields_of, string
from antiphon.client.ask import Ask
from antiphon.client.fields import Order
from antiphon.client.lenient import items_in
from antiphon.core.items import Item

if TYPE_CHECKING:
    from antiphon.client.peer import Peer

LIMIT = 100
"""How many items a page holds."""


class Pages:
    """The items below a path; iterate it for one after the other."""

    def __init__(
        self, peer: "Peer", path: str, order: Order, after: str | None, include: Sequence[str] = ()
    ) -> None:
        self._peer = peer
        self._path = path
        self._after = after
        self._query = [("order", order), ("limit", str(LIMIT))]
        self._query += [("include[]", name) for name in include]

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Item]]:
        """Give the items a page at a time."""
        after, seen = self._after, set[str]()
        while True:
            query = [*self._query, *([("after", after)] if after else [])]
            ask = Ask(method="GET", path=self._path, query=query)
            page = fields_of(await self._peer.ask(ask))
            items = items_in(page.get("data"))
            if not items:
                return  # whatever it says of more
            yield items
            after = string(page.get("last_id")) or string(items[-1].id)
            if page.get("has_more") is not True or not after or after in seen:
                return
            seen.add(after)
