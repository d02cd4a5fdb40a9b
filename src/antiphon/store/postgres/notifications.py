"""Notifications between processes: which responses have news.

They are hints. Each process sends at most one every 20 ms, with the ids of all responses that changed since, and
none while it is alone; a hint that is lost costs a reader the time until its next poll.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from antiphon.store.postgres.database import CONNECTION_ERRORS, Connection, Database, DriverError, close_connection

logger = logging.getLogger("antiphon.store")

CHANNEL = "antiphon"
COMBINE_SECONDS = 0.02
RECONNECT_SECONDS = 1.0
MAX_PAYLOAD = 7900
"""PostgreSQL allows 8000 bytes."""

SEPARATOR = " "


class Notifications:
    """One connection that listens, and sends the hints of this process."""

    def __init__(
        self, database: Database, on_notification: Callable[[str], None], has_peers: Callable[[], bool]
    ) -> None:
        self._database = database
        self._on_notification = on_notification
        self._has_peers = has_peers
        self._pending: dict[str, None] = {}
        self._has_pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect; then listen, and send, until `stop`."""
        with self._database.map_errors():
            connection = await self._database.connect()
        self._task = asyncio.create_task(self._run(connection))

    def send(self, id: str) -> None:
        """Tell other processes that a response has news, with the next notification."""
        if self._has_peers():
            self._pending[id] = None
            self._has_pending.set()

    async def stop(self) -> None:
        """Stop listening; hints that wait are dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, connection: Connection) -> None:
        while True:
            with suppress(*CONNECTION_ERRORS, DriverError):
                try:
                    await self._serve(connection)
                finally:
                    await close_connection(connection)
            await asyncio.sleep(RECONNECT_SECONDS)
            with suppress(*CONNECTION_ERRORS, DriverError):
                connection = await self._database.connect()

    async def _serve(self, connection: Connection) -> None:
        broken = asyncio.Event()
        connection.add_termination_listener(lambda *_: broken.set())
        await connection.add_listener(CHANNEL, self._receive)
        try:
            while not broken.is_set():
                await self._wait_for_pending(broken)
                if not broken.is_set():
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, self._take_payload())
                    await asyncio.sleep(COMBINE_SECONDS)
        finally:
            # The driver warns of a connection that is closed while it has a listener.
            await connection.remove_listener(CHANNEL, self._receive)

    async def _wait_for_pending(self, broken: asyncio.Event) -> None:
        waiting = [asyncio.create_task(self._has_pending.wait()), asyncio.create_task(broken.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def _take_payload(self) -> str:
        """Return as many ids as fit; the rest waits for the next notification."""
        ids: list[str] = []
        size = 0
        for id in self._pending:
            size += len(id.encode()) + len(SEPARATOR)
            if size > MAX_PAYLOAD and ids:
                break
            ids.append(id)
        for id in ids:
            del self._pending[id]
        if not self._pending:
            self._has_pending.clear()
        return SEPARATOR.join(ids)

    def _receive(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        for id in payload.split(SEPARATOR):
            self._on_notification(id)
