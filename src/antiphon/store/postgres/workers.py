"""The lease of this process, and the fence of processes that are gone.

Every process has a row in `workers` with an expiry that it renews. A process whose lease has expired is fenced by
another one before its responses are taken over: its row then refuses every write in its name. A process that finds
itself fenced, for example after it was stopped for a while, goes on under a new id.
"""

import asyncio
import logging
import os
import time

from antiphon.protocol.errors import StoreError
from antiphon.store.postgres.database import Database

logger = logging.getLogger("antiphon.store")

LEASE_SECONDS = 15.0
"""How long a process may be silent before others take its work over."""

RENEWALS_PER_LEASE = 4

# The database's clock decides: those of the machines may differ.
_REGISTER = "INSERT INTO workers (id, expires_at) VALUES ($1, clock_timestamp() + make_interval(secs => $2))"
_RENEW = """
UPDATE workers SET expires_at = clock_timestamp() + make_interval(secs => $2)
WHERE id = $1 AND NOT fenced RETURNING 1"""
_RETIRE = "UPDATE workers SET fenced = true WHERE id = $1"
# Waits for the flush that such a worker has in flight, and makes every later one fail.
_FENCE_EXPIRED = """
UPDATE workers SET fenced = true WHERE NOT fenced AND expires_at < clock_timestamp() RETURNING id"""
_FORGET_FENCED = """
DELETE FROM workers w
WHERE fenced AND expires_at < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM responses r WHERE r.owner = w.id AND r.ended_at IS NULL)"""
_SET_SEAL_KEYS = "UPDATE workers SET seal_keys = $2 WHERE id = $1"
# A process can read what another one encrypts if it has that one's first key.
_FIND_OTHER_KEYS = """
SELECT 1 FROM workers WHERE NOT fenced AND expires_at > clock_timestamp() AND id <> $1 AND seal_keys <> '{}'
    AND NOT (seal_keys[1] = ANY($2::text[]) AND $2[1] = ANY(seal_keys)) LIMIT 1"""
_COUNT_OTHERS = "SELECT count(*) FROM workers WHERE NOT fenced AND id <> $1"


class WorkerLease:
    """This process's row in `workers`, renewed by a task."""

    def __init__(self, database: Database, seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self._seal_keys: list[str] = []
        self.id = ""
        self.others = 0
        """How many other processes had a lease at the last renewal."""
        self._renewed_at = float("-inf")
        self._may_fence_at = float("-inf")
        """After an outage of the database all leases have expired: the others get the time to renew theirs."""

    async def start(self) -> None:
        """Register this process, and renew its lease from now on."""
        await self.register()
        self._task = asyncio.create_task(self._renew_repeatedly())

    async def register(self) -> None:
        """Take a new id, which no fence has."""
        id = f"worker_{os.urandom(12).hex()}"
        await self._database.fetch(_REGISTER, id, self._seconds)
        await self._database.fetch(_SET_SEAL_KEYS, id, self._seal_keys)
        self.id = id
        self._renewed_at = time.monotonic()
        self.others = (await self._database.fetch(_COUNT_OTHERS, id))[0][0]

    async def check_seal_keys(self, fingerprints: list[str]) -> None:
        """Register the encryption keys of this process; raises StoreError if another one could not read its seals."""
        self._seal_keys = fingerprints
        await self._database.fetch(_SET_SEAL_KEYS, self.id, fingerprints)
        if await self._database.fetchrow(_FIND_OTHER_KEYS, self.id, fingerprints):
            raise StoreError(
                f"Another server on {self._database.name} has other encryption keys: neither could read what the other "
                "one has encrypted. Set ANTIPHON_SEAL_KEYS to the same keys on all servers, or on none."
            )

    async def renew(self) -> None:
        """Renew the lease once; register again if another process has fenced this one."""
        if await self._database.fetchrow(_RENEW, self.id, self._seconds) is None:
            logger.error("this process lost its lease as %s: its unfinished responses were taken over", self.id)
            await self.register()
            return
        now = time.monotonic()
        if now - self._renewed_at > self._seconds:
            self._may_fence_at = now + self._seconds
        self._renewed_at = now
        self.others = (await self._database.fetch(_COUNT_OTHERS, self.id))[0][0]

    async def _renew_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / RENEWALS_PER_LEASE)
            try:
                await self.renew()
            except StoreError as error:
                logger.warning("the lease of this process could not be renewed: %s", error)

    async def fence_expired(self) -> list[str]:
        """Fence every process whose lease has expired, unless this one's had until lately; return their ids."""
        now = time.monotonic()
        if now < self._may_fence_at or now - self._renewed_at > self._seconds:
            return []
        fenced = [row["id"] for row in await self._database.fetch(_FENCE_EXPIRED)]
        for id in fenced:
            logger.warning("%s did not renew its lease: its unfinished responses are taken over", id)
        await self._database.fetch(_FORGET_FENCED)
        return fenced

    async def stop(self) -> None:
        """Give the lease up: what this process has not finished may be taken over at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            await self._database.fetch(_RETIRE, self.id)
        except StoreError as error:
            logger.warning("the lease of this process could not be given up: %s", error)
