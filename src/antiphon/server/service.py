"""The engine of an application and its running work: start-up, draining, shutdown."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.routing import Mount

from antiphon.agents.threads import AgentThreads
from antiphon.engine.engine import Engine
from antiphon.engine.maintenance import Maintenance, Retention
from antiphon.engine.models import AgentLimits, Models
from antiphon.engine.persistence import ContextCache
from antiphon.engine.provider_model import ProviderClient, Providers
from antiphon.engine.run import SERVER_STOPPING
from antiphon.engine.sealing import KeyRing, check_keys, new_key
from antiphon.protocol.errors import RequestError, StoreError
from antiphon.server.asgi import ClientDisconnected, DisconnectWatcher, Receive
from antiphon.server.provider_probe import ProviderModelList
from antiphon.server.settings import Settings
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from antiphon.transport.client import HttpClient
from antiphon.transport.connection import Timeouts
from antiphon.transport.retry import RetryPolicy

if TYPE_CHECKING:
    from antiphon.store.postgres.store import PostgresStore

logger = logging.getLogger("antiphon.server")

T = TypeVar("T")

INTERRUPT_SECONDS = 5.0
"""How long interrupted tasks may take to end."""


class Service:
    """One application's engine, its maintenance, and its running tasks."""

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
        policy = RetryPolicy(settings.retries, settings.retry_seconds)
        providers = Providers(
            settings.providers,
            lambda provider: ProviderClient(provider, settings.keys.get(provider.name), self._client, policy, timeouts),
        )
        self.models = Models(
            settings.all_agents,
            providers,
            settings.aliases,
            AgentLimits(AgentThreads(settings.agent_threads), settings.chunk_timeout, settings.show_exceptions),
        )
        self.provider_models = ProviderModelList(settings.providers, settings.keys)
        self.shutdown_event = asyncio.Event()
        """Set when the server accepts no new work."""
        self.skip_drain = False
        """Set to interrupt running work now instead of after `drain_seconds`."""
        self._lock = asyncio.Lock()
        self._engine: Engine | None = None
        self._database: PostgresStore | None = None
        self._maintenance: Maintenance | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def draining(self) -> bool:
        """Whether the server accepts no new work."""
        return self.shutdown_event.is_set()

    def reject_when_draining(self) -> None:
        """Raise a 503 if the server accepts no new work."""
        if self.draining:
            raise server_stopping_error()

    async def engine(self) -> Engine:
        """Return the engine, and start it if needed. Raises StoreError."""
        # Checked again under the lock: of several first requests, one starts the engine.
        if self._engine is None:
            async with self._lock:
                if self._engine is None:
                    self._engine = await self._create_engine()
        return self._engine

    async def check_store(self) -> None:
        """Raise StoreError if responses cannot be stored, as with a full disk."""
        await self.engine()
        if self._database:
            await self._database.check()
        elif self.settings.responses_dir is not None:
            await asyncio.to_thread(check_writable, self.settings.responses_dir)

    async def _create_engine(self) -> Engine:
        settings = self.settings
        if settings.store is not None:
            key_ring, store = await self._open_database(settings.store)
        else:  # in a thread, because both read and write files
            key_ring, store = await asyncio.to_thread(self._open_files)
        engine = Engine(
            self.models,
            store=store,
            key_ring=key_ring,
            cache=ContextCache(settings.memory_bytes, settings.memory_seconds),
            background_slots=settings.background_slots,
            answer_bytes=settings.answer_bytes,
        )
        retention = Retention(settings.response_seconds, settings.event_seconds, settings.sweep_seconds)
        self._maintenance = Maintenance(engine, retention)
        try:
            await self._maintenance.start()
        except StoreError:
            await self._maintenance.stop()
            raise
        return engine

    async def _open_database(self, url: str) -> tuple[KeyRing, Store]:
        store = open_postgres_store(url, self.settings.lease_seconds)
        await store.open()
        try:
            keys = self.settings.seal_keys or [await store.find_or_add_secret("seal", new_key())]
            key_ring = KeyRing(keys)
            await store.check_seal_keys(key_ring.fingerprints)
        except StoreError:
            await store.close()
            raise
        self._database = store
        return key_ring, store

    def _open_files(self) -> tuple[KeyRing, Store]:
        folder, keys = self.settings.responses_dir, self.settings.seal_keys
        if folder is None:
            return KeyRing(keys) if keys else KeyRing.ephemeral(), MemoryStore()
        create_folder(Path(folder))
        key_ring = KeyRing(keys) if keys else KeyRing.from_folder(Path(folder))
        return key_ring, SqliteStore(folder)

    def start_task(self, coroutine: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Run a coroutine in a task that is interrupted when the server stops."""
        if self.draining:
            coroutine.close()  # or Python warns that it was never awaited
            raise server_stopping_error()
        # Kept in a set, because the event loop holds only weak references to tasks.
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run_until_disconnect(self, coroutine: Coroutine[object, object, T], receive: Receive) -> T:
        """Run a coroutine in the current task; raises ClientDisconnected, or a 503 if the server stops."""
        if self.draining:
            coroutine.close()
            raise server_stopping_error()
        task: asyncio.Task[Any] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
        self._tasks.add(task)
        watcher = DisconnectWatcher(receive, task)
        try:
            return await coroutine
        except asyncio.CancelledError as error:
            # `drain` cancelled it, not the server: the task goes on, and sends the 503.
            if error.args == (SERVER_STOPPING,):
                task.uncancel()
                raise server_stopping_error() from None
            if watcher.disconnected:
                raise ClientDisconnected from None
            raise
        finally:
            self._tasks.discard(task)
            # The cancellation was ours: the server must not take the task for cancelled.
            if watcher.disconnected:
                task.uncancel()
            watcher.stop()

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Start the engine before the first request; drain and close after the last."""
        del app
        # An application may be started again, on another event loop.
        self.shutdown_event, self._lock = asyncio.Event(), asyncio.Lock()
        self.skip_drain = False
        await self.engine()
        try:
            yield
        finally:
            await self.close()

    async def drain(self) -> None:
        """Accept no new work; wait for running work, and interrupt it after `drain_seconds`."""
        self.shutdown_event.set()
        if self._engine:
            self._engine.background.release_waiting()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.drain_seconds
        while self._busy and not self.skip_drain and clock() < deadline:
            await asyncio.sleep(0.05)
        interrupted = list(self._tasks)
        for task in interrupted:
            task.cancel(SERVER_STOPPING)
        if self._engine:
            await self._engine.background.stop_all()
        if interrupted:  # they store that they failed, so the store must stay open
            await asyncio.wait(interrupted, timeout=INTERRUPT_SECONDS)

    @property
    def _busy(self) -> bool:
        return bool(self._tasks or (self._engine and len(self._engine.background)))

    async def close(self) -> None:
        """Drain, and close the engine, the store and all connections."""
        await self.drain()
        if self._maintenance:
            await self._maintenance.stop()
        self._engine = self._maintenance = self._database = None
        self._client.close()


def open_postgres_store(url: str, lease_seconds: float) -> "PostgresStore":
    """Return a store in PostgreSQL; raises StoreError if its driver is not installed."""
    try:
        from antiphon.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreError("PostgreSQL needs the package asyncpg. Install it: pip install 'antiphon[postgres]'") from None
    return PostgresStore(url, lease_seconds=lease_seconds)


def find_service(app: object) -> Service | None:
    """Return the service of an application that `create_app` made, or of one that has it as a part, or None."""
    state = getattr(app, "state", None)
    # The second name is for applications of others, which may use the first one themselves.
    for service in (getattr(state, "service", None), getattr(state, "antiphon", None)):
        if isinstance(service, Service):
            return service
    mounts = [route for route in getattr(app, "routes", ()) if isinstance(route, Mount)]
    return next(filter(None, (find_service(mount.app) for mount in mounts)), None)


def create_folder(folder: Path) -> None:
    """Create the data folder if it is missing; raises StoreError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = "cannot be used" if folder.exists() else "cannot be created"
        raise StoreError(f"The folder {folder} {problem}: {error.strerror}.") from error


def check_writable(folder: Path | str) -> None:
    """Raise StoreError if a file in a folder cannot grow."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(65536))
    except OSError as error:
        raise StoreError(f"Nothing can be written to {folder}: {error}. Make room there.") from error


def server_stopping_error() -> RequestError:
    message = "This server is stopping. Try again; another instance may respond."
    return RequestError(message, type="server_error", code="server_stopping", status=503).with_retry_after(1)
