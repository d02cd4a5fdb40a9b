"""Connections to one PostgreSQL database; the only place that knows the driver and maps its errors."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from msgspec import MsgspecError

from antiphon.protocol.errors import StoreError
from antiphon.protocol.struct import InvalidValueError
from antiphon.store.base import describe_url

logger = logging.getLogger("antiphon.store")

T = TypeVar("T")
Source = TypeVar("Source")

SCHEMA = "antiphon"
"""The schema that holds all tables, so that they can share a database with those of other programs."""

POOL_SIZE = 8
"""The most connections for reads and single writes; the append writer and the listener have one each."""

MAX_INLINE_BYTES = 256 * 1024
"""The most bytes of JSON that are decoded on the event loop."""

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
CLOSE_SECONDS = 2.0

RETRY_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""The delays before a statement that may be repeated is tried again on a new connection."""

DriverError: type[Exception] = asyncpg.PostgresError
UniqueViolation: type[Exception] = asyncpg.UniqueViolationError
MissingPartition: type[Exception] = asyncpg.CheckViolationError
LockTimeout: type[Exception] = asyncpg.LockNotAvailableError

CONCURRENT_CREATION_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.DuplicateTableError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidObjectDefinitionError,
)
"""What `CREATE … IF NOT EXISTS` raises if another process creates the same at this moment."""

CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""What a server that restarts, or a connection that breaks, raises: a repeated attempt may succeed."""

# The driver is not typed: what we use of it is.
create_pool: Callable[..., Any] = asyncpg.create_pool  # pyright: ignore
connect: Callable[..., Awaitable["Connection"]] = asyncpg.connect  # pyright: ignore

Row = Any
"""A row of the driver: a mapping of columns."""


class Connection(Protocol):
    """What we use of the driver's connections."""

    async def fetch(self, statement: str, *values: object) -> list[Row]: ...
    async def fetchrow(self, statement: str, *values: object) -> Row | None: ...
    async def fetchval(self, statement: str, *values: object) -> Any: ...
    async def execute(self, statement: str, *values: object) -> str: ...
    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    async def remove_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...
    async def reset(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...


async def reset(connection: Connection) -> None:
    """Reset a connection that returns to the pool, only if there is something to reset: it takes a round trip."""
    if connection.is_in_transaction():
        await connection.reset()


class Database:
    """The connection pool of one database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = describe_url(url)
        """The address without the password, for messages."""
        self._pool: Any = None

    async def open(self) -> None:
        """Open the pool; raises StoreError if the database cannot be reached."""
        with self.map_errors():
            self._pool = create_pool(self._url, min_size=0, max_size=POOL_SIZE, reset=reset, **self._options())
            await self._pool

    async def connect(self) -> Connection:
        """Open a connection outside of the pool; raises the driver's errors."""
        return await connect(self._url, **self._options())

    def _options(self) -> dict[str, Any]:
        settings = {"search_path": SCHEMA, "application_name": "antiphon"}
        return {"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS, "server_settings": settings}

    async def close(self) -> None:
        """Close all connections of the pool, at the latest when their statements time out."""
        if self._pool is not None:
            try:
                async with asyncio.timeout(STATEMENT_SECONDS):
                    await self._pool.close()
            except (*CONNECTION_ERRORS, TimeoutError):
                self._pool.terminate()

    async def run(self, operation: Callable[[Connection], Awaitable[T]], *, repeatable: bool = True) -> T:
        """Run an operation on a connection; a `repeatable` one is repeated after a broken connection."""
        with self.map_errors():
            delays = iter(RETRY_SECONDS if repeatable else ())
            while True:
                try:
                    async with self._acquire() as connection:
                        return await operation(connection)
                except CONNECTION_ERRORS:
                    delay = next(delays, None)
                    if delay is None or self._pool.is_closing():
                        raise
                    await asyncio.sleep(delay)

    @asynccontextmanager
    async def _acquire(self) -> AsyncGenerator[Connection]:
        async with self._pool.acquire() as connection:
            yield connection

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """Run one repeatable statement and return its rows."""
        return await self.run(lambda connection: connection.fetch(statement, *values))

    async def fetchrow(self, statement: str, *values: object) -> Row | None:
        """Run one repeatable statement and return its first row."""
        return await self.run(lambda connection: connection.fetchrow(statement, *values))

    @contextmanager
    def map_errors(self) -> Generator[None]:
        """Turn errors of the driver, of the network and of unreadable rows into StoreError."""
        try:
            yield
        except (InvalidValueError, MsgspecError) as error:
            raise StoreError(f"{self.name} holds a row that cannot be read: {error}") from error
        except CONNECTION_ERRORS as error:
            reason = str(error) or type(error).__name__
            raise StoreError(f"{self.name} cannot be reached: {reason}") from error
        except (DriverError, UnicodeEncodeError, OverflowError, ValueError) as error:
            raise StoreError(f"{self.name} cannot be used: {error}") from error


async def convert(size: int, decode: Callable[[Source], T], source: Source) -> T:
    """Decode what was read, in a thread if it is so large that the event loop would stand still."""
    return decode(source) if size <= MAX_INLINE_BYTES else await asyncio.to_thread(decode, source)


async def close_connection(connection: Connection) -> None:
    """Close a connection outside of the pool, whatever state it is in."""
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except CONNECTION_ERRORS:
        connection.terminate()


def violated_index(error: Exception) -> str:
    """Return the name of the index that a `UniqueViolation` is about."""
    return str(error.constraint_name)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
