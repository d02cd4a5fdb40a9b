"""The engine behind the application, made when it is first needed."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from antiphon.core.errors import RequestError, StoreError
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.engine.recent import Recent
from antiphon.engine.run import DRAIN
from antiphon.engine.seal import Seal, check_keys
from antiphon.engine.upkeep import Retention, Upkeep
from antiphon.engine.upstream import Providers
from antiphon.server.settings import Settings
from antiphon.store.base import Store
from antiphon.store.lock import FolderLock
from antiphon.store.memory import MemoryStore
from antiphon.transport.connection import Timeouts
from antiphon.transport.http import Client
from antiphon.transport.retry import Patience

T = TypeVar("T")


class Service:
    """One application's engine, its upkeep, and what is running in it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        if settings.seal_keys:
            check_keys(settings.seal_keys)
        timeouts = Timeouts(
            connect=settings.connect_seconds,
            first_byte=settings.first_byte_seconds,
            idle=settings.idle_seconds,
            total=settings.answer_seconds,
        )
        self._client = Client(timeouts)
        patience = Patience(settings.retries, settings.retry_seconds)
        upstreams = Providers(settings.providers, settings.keys, self._client, patience, timeouts)
        self.models = Models(settings.all_agents, upstreams, settings.aliases)
        self.stopping = asyncio.Event()
        """Set when the server takes no new work."""
        self._hurried = False
        self._lock = asyncio.Lock()
        self._engine: Engine | None = None
        self._upkeep: Upkeep | None = None
        self._folder: FolderLock | None = None
        self._running: set[asyncio.Task[object]] = set()

    @property
    def draining(self) -> bool:
        """Whether the server takes no new work."""
        return self.stopping.is_set()

    async def engine(self) -> Engine:
        """Return the engine; the first caller waits until it is ready. Raises StoreError."""
        if self._engine is None:
            async with self._lock:
                if self._engine is None:
                    self._engine = await self._start()
        return self._engine

    async def _start(self) -> Engine:
        self._own_folder()
        try:
            return await self._make()
        except StoreError:
            self._release_folder()
            raise

    async def _make(self) -> Engine:
        settings = self.settings
        seal = await asyncio.to_thread(self._seal)
        store = await asyncio.to_thread(self._store)
        engine = Engine(
            self.models,
            store=store,
            seal=seal,
            recent=Recent(settings.memory_bytes, settings.memory_seconds),
            slots=settings.background_slots,
        )
        retention = Retention(
            settings.response_seconds, settings.event_seconds, settings.sweep_seconds
        )
        self._upkeep = Upkeep(engine, retention)
        try:
            await self._upkeep.begin(recover=self._folder is None or self._folder.ours)
        except StoreError:
            await self._upkeep.end()
            raise
        return engine

    def _own_folder(self) -> None:
        if self.settings.responses_dir is not None:
            self._folder = FolderLock(Path(self.settings.responses_dir))

    def _release_folder(self) -> None:
        if self._folder:
            self._folder.release()
            self._folder = None

    def _store(self) -> Store:
        if self.settings.responses_dir is None:
            return MemoryStore()
        from antiphon.store.sqlite import SqliteStore

        return SqliteStore(self.settings.responses_dir)

    def _seal(self) -> Seal:
        if self.settings.seal_keys:
            return Seal(self.settings.seal_keys)
        folder = self.settings.responses_dir
        return Seal.passing() if folder is None else Seal.in_folder(Path(folder))

    def run(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Do work in a task of its own, which the server's end interrupts."""
        if self.draining:
            work.close()
            raise stopping()
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def do(self, work: Coroutine[object, object, T]) -> T:
        """Do work in this very task; the server's end interrupts it with a 503."""
        if self.draining:
            work.close()
            raise stopping()
        task: asyncio.Task[Any] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
        self._running.add(task)
        try:
            return await work
        except asyncio.CancelledError as error:
            if error.args == (DRAIN,):
                task.uncancel()
                raise stopping() from None
            raise
        finally:
            self._running.discard(task)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Be ready before the first request, and end what runs after the last."""
        del app
        self.stopping, self._lock = asyncio.Event(), asyncio.Lock()  # of this life's loop
        self._hurried = False
        await self.engine()
        yield
        await self.close()

    def hurry(self) -> None:
        """Give what runs no more time to end."""
        self._hurried = True

    async def drain(self) -> None:
        """Take no new work, and interrupt what still runs when its time is over."""
        self.stopping.set()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.drain_seconds
        while self._busy and not self._hurried and clock() < deadline:
            await asyncio.sleep(0.05)
        interrupted = list(self._running)
        for task in interrupted:
            task.cancel(DRAIN)
        if self._engine:
            await self._engine.background.drain()
        if interrupted:  # their ends are to be kept, and the store is still there
            await asyncio.wait(interrupted, timeout=5)

    @property
    def _busy(self) -> bool:
        return bool(self._running or (self._engine and len(self._engine.background)))

    async def close(self) -> None:
        """Stop what runs, and let go of the store."""
        await self.drain()
        if self._upkeep:
            await self._upkeep.end()
        self._engine = self._upkeep = None
        self._client.close()
        self._release_folder()


def stopping() -> RequestError:
    """Say that the server takes no new work."""
    return RequestError(
        "This server is about to stop. Try again; another may answer.",
        type="server_error",
        code="server_stopping",
        status=503,
    ).retry_after(1)
