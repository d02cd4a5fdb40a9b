"""A long list of items, read page by page as it is needed."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from antiphon.adapters.json_access import as_object, as_string
from antiphon.client.params import ApiRequest, Order
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import Item

if TYPE_CHECKING:
    from antiphon.client.http import HttpApi

PAGE_SIZE = 100
"""How many items a page holds."""


class Paginator:
    """The items below a path; iterate it for one after the other."""

    def __init__(
        self,
        http: "HttpApi",
        path: str,
        order: Order,
        after: str | None,
        include: Sequence[str] = (),
    ) -> None:
        self._http = http
        self._path = path
        self._after = after
        self._query = [("order", order), ("limit", str(PAGE_SIZE))]
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
            ask = ApiRequest(method="GET", path=self._path, query=query)
            page = as_object(await self._http.request_json(ask))
            items = LENIENT.read_items(page.get("data"))
            if not items:
                return  # whatever it says of more
            yield items
            after = as_string(page.get("last_id")) or as_string(items[-1].id)
            if page.get("has_more") is not True or not after or after in seen:
                return
            seen.add(after)
