"""Idempotency keys of responses that are not stored: in memory, for a while.

The keys of stored responses rest in the store beside them.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

from antiphon.core.response import Response
from antiphon.store.base import IdempotencyRecord

MAX_KEYS = 1_000
KEY_SECONDS = 24 * 3600


class IdempotencyKeys:
    """The latest keys, by tenant, and what they led to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: OrderedDict[tuple[str, str], tuple[IdempotencyRecord, float]] = OrderedDict()
        self._responses: dict[str, Response | None] = {}

    def claim(self, key: tuple[str, str], response_id: str, *, tenant: str) -> IdempotencyRecord | None:
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
