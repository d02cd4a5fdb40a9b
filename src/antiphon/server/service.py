"""The engine behind the application, made when it is first needed."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from antiphon.engine.encryption import KeyRing, check_keys
from antiphon.engine.engine import Engine
from antiphon.engine.history import ContextCache
from antiphon.engine.maintenance import Maintenance, Retention
from antiphon.engine.models import Models
from antiphon.engine.provider_model import Providers
from antiphon.engine.run import SERVER_STOPPING
from antiphon.protocol.errors import RequestError, StoreError
from antiphon.server.settings import Settings
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.database import FolderLock
from antiphon.transport.client import HttpClient
from antiphon.transport.connection import Timeouts
from antiphon.transport.retry import RetryPolicy

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
        self._client = HttpClient(timeouts)
        patience = RetryPolicy(settings.retries, settings.retry_seconds)
        upstreams = Providers(settings.providers, settings.keys, self._client, patience, timeouts)
        self.models = Models(settings.all_agents, upstreams, settings.aliases)
        self.shutdown_event = asyncio.Event()
        """Set when the server takes no new work."""
        self._skip_drain = False
        self._lock = asyncio.Lock()
        self._engine: Engine | None = None
        self._maintenance: Maintenance | None = None
        self._folder_lock: FolderLock | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def draining(self) -> bool:
        """Whether the server takes no new work."""
        return self.shutdown_event.is_set()

    async def engine(self) -> Engine:
        """Return the engine; the first caller waits until it is ready. Raises StoreError."""
        if self._engine is None:
            async with self._lock:
                if self._engine is None:
                    self._engine = await self._start()
        return self._engine

    async def _start(self) -> Engine:
        self._lock_folder()
        try:
            return await self._create_engine()
        except StoreError:
            self._unlock_folder()
            raise

    async def _create_engine(self) -> Engine:
        settings = self.settings
        seal = await asyncio.to_thread(self._open_sealer)
        store = await asyncio.to_thread(self._open_store)
        engine = Engine(
            self.models,
            store=store,
            key_ring=seal,
            cache=ContextCache(settings.memory_bytes, settings.memory_seconds),
            background_slots=settings.background_slots,
        )
        retention = Retention(
            settings.response_seconds, settings.event_seconds, settings.sweep_seconds
        )
        self._maintenance = Maintenance(engine, retention)
        try:
            await self._maintenance.start(
                recover=self._folder_lock is None or self._folder_lock.is_held
            )
        except StoreError:
            await self._maintenance.stop()
            raise
        return engine

    def _lock_folder(self) -> None:
        if self.settings.responses_dir is not None:
            self._folder_lock = FolderLock(Path(self.settings.responses_dir))

    def _unlock_folder(self) -> None:
        if self._folder_lock:
            self._folder_lock.release()
            self._folder_lock = None

    def _open_store(self) -> Store:
        if self.settings.responses_dir is None:
            return MemoryStore()
        from antiphon.store.sqlite.store import SqliteStore

        return SqliteStore(self.settings.responses_dir)

    def _open_sealer(self) -> KeyRing:
        if self.settings.seal_keys:
            return KeyRing(self.settings.seal_keys)
        folder = self.settings.responses_dir
        return KeyRing.ephemeral() if folder is None else KeyRing.from_folder(Path(folder))

    def start_task(self, coroutine: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Do work in a task of its own, which the server's end interrupts."""
        if self.draining:
            coroutine.close()
            raise server_stopping_error()
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run_in_task(self, coroutine: Coroutine[object, object, T]) -> T:
        """Do work in this very task; the server's end interrupts it with a 503."""
        if self.draining:
            coroutine.close()
            raise server_stopping_error()
        task: asyncio.Task[Any] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
        self._tasks.add(task)
        try:
            return await coroutine
        except asyncio.CancelledError as error:
            if error.args == (SERVER_STOPPING,):
                task.uncancel()
                raise server_stopping_error() from None
            raise
        finally:
            self._tasks.discard(task)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Be ready before the first request, and end what runs after the last."""
        del app
        self.shutdown_event, self._lock = asyncio.Event(), asyncio.Lock()  # of this life's loop
        self._skip_drain = False
        await self.engine()
        yield
        await self.close()

    def skip_drain(self) -> None:
        """Give what runs no more time to end."""
        self._skip_drain = True

    async def drain(self) -> None:
        """Take no new work, and interrupt what still runs when its time is over."""
        self.shutdown_event.set()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.drain_seconds
        while self._busy and not self._skip_drain and clock() < deadline:
            await asyncio.sleep(0.05)
        interrupted = list(self._tasks)
        for task in interrupted:
            task.cancel(SERVER_STOPPING)
        if self._engine:
            await self._engine.background.stop_all()
        if interrupted:  # their ends are to be kept, and the store is still there
            await asyncio.wait(interrupted, timeout=5)

    @property
    def _busy(self) -> bool:
        return bool(self._tasks or (self._engine and len(self._engine.background)))

    async def close(self) -> None:
        """Stop what runs, and let go of the store."""
        await self.drain()
        if self._maintenance:
            await self._maintenance.stop()
        self._engine = self._maintenance = None
        self._client.close()
        self._unlock_folder()


def server_stopping_error() -> RequestError:
    """Say that the server takes no new work."""
    return RequestError(
        "This server is about to stop. Try again; another may answer.",
        type="server_error",
        code="server_stopping",
        status=503,
    ).with_retry_after(1)
