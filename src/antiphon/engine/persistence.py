"""What is kept of a response: in the store, in the context cache, under its idempotency key.

A response is stored before its model is called, and stored again, with its end, before anybody
receives the terminal event: a follow-up request always finds it. A response with `store: false` is
kept in memory only. The ids of everything that is kept come from here too.
"""

import os
import secrets
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.engine.history import Context, ContextCache
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Whole
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import ID_PREFIXES
from antiphon.store.base import IdempotencyRecord, Store

# 192 bits: nobody can guess the id of another tenant's response.
ID_BYTES = 24

# The keys of stored responses are in the store. These are the others, lost at a restart.
MAX_KEYS = 1_000
KEY_SECONDS = 24 * 3600


class ResponsePersistence(Struct, frozen=True):
    """Where one response is kept, from its beginning; `store` is None with `store: false`."""

    response: Response
    store: Store | None
    cache: ContextCache
    tenant: str
    history: Context
    new_items: Sequence[Item]

    async def begin(self, request: Request, key: tuple[str, str] | None) -> IdempotencyRecord | None:
        """Store the beginning; return the record of an idempotency key that is already taken."""
        if self.store is None:
            return None
        # Only a background response may have to be started again, by another process.
        kept = replace(request, input=list(self.new_items)) if request.background else None
        return await self.store.begin(
            self.response,
            self.new_items,
            tenant=self.tenant,
            request=encode(kept) if kept else b"",
            conversation=request.conversation.id if request.conversation else None,
            key=key,
        )

    def end(self, events: list[Event], response: Response) -> Coroutine[object, object, list[Event]] | None:
        """Store the end; return what to await before the events are sent, if it is stored."""
        if self.store is not None:
            return self._commit(self.store, events, response)
        self.cache_context(response)
        return None

    async def _commit(self, store: Store, events: list[Event], response: Response) -> list[Event]:
        # None if the response was deleted meanwhile: it must not come back through the cache.
        if await store.end(response, tenant=self.tenant):
            self.cache_context(response)
        return events

    def cache_context(self, response: Response) -> None:
        """Cache the context for requests that continue this response.

        Not for a response in a conversation: the conversation's items may change in the meantime.
        """
        if response.conversation:
            return
        context = self.history.extend([*self.new_items, *response.output], response.id)
        self.cache.add(response.id, context, tenant=self.tenant)


class IdempotencyKeys:
    """Idempotency keys of responses that are not stored, by tenant; the oldest are removed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: OrderedDict[tuple[str, str], tuple[IdempotencyRecord, float]] = OrderedDict()
        self._responses: dict[str, Response | None] = {}

    def claim(self, key: tuple[str, str], response_id: str, *, tenant: str) -> IdempotencyRecord | None:
        """Take a key for a response; return the record of a key that is already taken."""
        name, fingerprint = key
        self._remove_expired()
        if taken := self._claims.get((tenant, name)):
            return taken[0]
        self._claims[tenant, name] = (IdempotencyRecord(fingerprint, response_id), self._clock())
        self._responses[response_id] = None
        return None

    def record_response(self, response: Response) -> None:
        """Keep a finished response if it has a key."""
        if response.id in self._responses:
            self._responses[response.id] = response

    def find_response(self, id: str) -> Response | None:
        """Return a response that has a key and has ended."""
        return self._responses.get(id)

    def release(self, id: str) -> None:
        """Release the key of a response that was discarded, if it had one."""
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
    """Return a valid stream of events that ends with exactly this response."""
    ids = iter([str(item.id) for item in response.output])
    initial = replace(response, status="in_progress", output=[], usage=None, completed_at=None, error=None)
    initial = replace(initial, incomplete_details=None)
    synth = Synth(initial, ids=lambda _: next(ids), clock=lambda: 0)
    events = synth.start()
    for item in response.output:
        events += synth.feed(Whole(item))
    return events + synth.end_as(response)


def new_id(prefix: str) -> str:
    """Return a prefix, an underscore and 192 random bits."""
    return f"{prefix}_{os.urandom(ID_BYTES).hex()}"


def new_uuid(prefix: str) -> str:
    """Return a random UUID; the prefix is ignored."""
    del prefix
    return str(uuid.uuid4())


def ensure_id(item: Item, ids: Callable[[str], str] = new_id) -> Item:
    """Give an item an id if the client sent none."""
    if item.id is not UNSET:
        return item
    return replace(item, id=ids(ID_PREFIXES.get(item.type, "item")))


def random_padding(text: str) -> str:
    """Return random text that hides a delta's length: together they fill a multiple of 16 bytes."""
    missing = 16 - len(encode(text)) % 16
    return secrets.token_urlsafe(missing)[:missing]
