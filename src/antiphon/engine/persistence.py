"""One response's place in memory and in the store.

A response is kept before anything is made of it, and kept again, with its end, before anybody
hears that it has ended: so a follow-up always finds it. One that is not to be stored lives in
memory only.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.engine.history import Context, ContextCache
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Whole
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.protocol.synth import Synth
from antiphon.store.base import IdempotencyRecord, Store


class ResponsePersistence(Struct, frozen=True):
    """Where one response is kept: `store` is None for one that is not to be stored."""

    store: Store | None
    cache: ContextCache
    tenant: str
    history: Context
    new_items: Sequence[Item]

    async def begin(
        self, response: Response, request: Request, key: tuple[str, str] | None
    ) -> IdempotencyRecord | None:
        """Keep the beginning; return the claim of a key that is taken."""
        if self.store is None:
            return None
        return await self.store.begin(
            response,
            self.new_items,
            tenant=self.tenant,
            request=encode(replace(request, input=list(self.new_items)))
            if request.background
            else b"",
            conversation=request.conversation.id if request.conversation else None,
            key=key,
        )

    def end(
        self, events: list[Event], response: Response
    ) -> Coroutine[object, object, list[Event]] | None:
        """Keep the end; return what to wait for before the events are told, if it is stored."""
        if self.store is not None:
            return self._commit(self.store, events, response)
        self.cache_context(response)
        return None

    async def _commit(self, store: Store, events: list[Event], response: Response) -> list[Event]:
        if await store.end(response, tenant=self.tenant):
            self.cache_context(response)
        return events

    def cache_context(self, response: Response) -> None:
        """Keep what was said at hand for those who go on from here.

        A response in a conversation goes on there, and what it left may change in the meantime.
        """
        if response.conversation:
            return
        context = self.history.extend([*self.new_items, *response.output], response.id)
        self.cache.add(response.id, context, tenant=self.tenant)


MAX_KEYS = 1_000
KEY_SECONDS = 24 * 3600


class IdempotencyKeys:
    """The latest keys, by tenant, and what they led to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: OrderedDict[tuple[str, str], tuple[IdempotencyRecord, float]] = OrderedDict()
        self._responses: dict[str, Response | None] = {}

    def claim(
        self, key: tuple[str, str], response_id: str, *, tenant: str
    ) -> IdempotencyRecord | None:
        """Take a key; return its claim if it is taken already."""
        name, fingerprint = key
        self._remove_expired()
        if taken := self._claims.get((tenant, name)):
            return taken[0]
        self._claims[tenant, name] = (IdempotencyRecord(fingerprint, response_id), self._clock())
        self._responses[response_id] = None
        return None

    def record_response(self, response: Response) -> None:
        """Keep what a key led to, if one did."""
        if response.id in self._responses:
            self._responses[response.id] = response

    def find_response(self, id: str) -> Response | None:
        """Return what a key led to, if it has ended."""
        return self._responses.get(id)

    def release(self, id: str) -> None:
        """Let go of the key of a response that came to nothing, if it had one."""
        if id in self._responses:
            del self._responses[id]
            taken = [key for key, (claim, _) in self._claims.items() if claim.response_id == id]
            for key in taken:
                del self._claims[key]

    def _remove_expired(self) -> None:
        oldest = self._clock() - KEY_SECONDS
        while self._claims:
            key, (claim, since) = next(iter(self._claims.items()))
            if since > oldest and len(self._claims) <= MAX_KEYS:
                return
            del self._claims[key]
            self._responses.pop(claim.response_id, None)


def replay_response(response: Response) -> list[Event]:
    """Return a legal stream that ends with exactly this response."""
    ids = iter([str(item.id) for item in response.output])
    begun = replace(
        response, status="in_progress", output=[], usage=None, completed_at=None, error=None
    )
    begun = replace(begun, incomplete_details=None)
    synth = Synth(begun, ids=lambda _: next(ids), clock=lambda: 0)
    events = synth.start()
    for item in response.output:
        events += synth.feed(Whole(item))
    return events + synth.end_as(response)
