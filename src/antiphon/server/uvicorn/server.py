"""The server process: uvicorn's configuration, start-up, draining and forced exit."""

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import cast

import uvicorn

from antiphon.server.asgi import AsgiApp
from antiphon.server.service import Service, find_service
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.connection import ConnectionLimits
from antiphon.server.uvicorn.http_protocol import http_protocol
from antiphon.server.uvicorn.ws_protocol import websocket_protocol

HARD_STOP_SECONDS = 5
"""How long after the drain interrupted responses may take to be stored as failed."""

FORCED_STOP_SECONDS = 1.0
"""The same after a second signal."""

PING_SECONDS = 20
"""How often a WebSocket client is pinged, and how long its pong may take."""

GC_THRESHOLD = 10_000
"""How many new objects trigger a garbage collection. A request allocates hundreds, nearly all freed
without the collector; Python's default of 700 would run it every few requests."""


class GatewayServer(uvicorn.Server):
    """A uvicorn server that opens the store before it listens, and drains when it stops."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[str], None], exit_process: Callable[[int], None]
    ) -> None:
        """Make a server; `on_ready` gets its URL, `exit_process` ends it after a second signal."""
        super().__init__(config)
        self._service: Service | None = find_service(config.app)
        self._on_ready = on_ready
        self._exit_process = exit_process

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store and listen; raises StoreError."""
        # Before uvicorn listens: a server that cannot store must not accept requests.
        if self._service:
            await self._service.engine()
        await super().startup(sockets)
        if not self.started or not self.servers:
            return
        # Modules and routes live as long as the process; scanning them costs milliseconds per run.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on SIGHUP as on SIGTERM, unless it is ignored (`nohup`)."""
        with super().capture_signals():
            hangup = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
            is_main = threading.current_thread() is threading.main_thread()  # others cannot handle signals
            if is_main and signal.getsignal(hangup) is signal.SIG_DFL:
                signal.signal(hangup, self.handle_exit)
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully at the first signal, at once at the second."""
        super().handle_exit(sig, frame)
        if self.force_exit and self._service:
            self._service.skip_drain = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain and stop; a second signal ends the process without waiting for its threads."""
        stopping = asyncio.create_task(self._drain_and_shutdown(sockets))
        while not (self.force_exit or stopping.done()):
            await asyncio.sleep(0.05)
        # Not a normal exit: Python would wait for threads that are blocked on the network.
        if self.force_exit:
            await asyncio.wait([stopping, *self.server_state.tasks], timeout=FORCED_STOP_SECONDS)
            self._exit_process(128 + signal.SIGINT)
        await stopping

    async def _drain_and_shutdown(self, sockets: list[socket.socket] | None) -> None:
        draining = asyncio.create_task(self._service.drain()) if self._service else None
        # Before uvicorn cancels the tasks of clients that do not read, and logs a traceback for each.
        asyncio.get_running_loop().call_later(
            (self.config.timeout_graceful_shutdown or HARD_STOP_SECONDS) - 1, self._abort_connections
        )
        await super().shutdown(sockets)
        if draining and self._service:
            await draining
            await self._service.close()  # a mounted application has no lifespan of its own

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def uvicorn_config(app: AsgiApp, host: str, port: int, settings: Settings | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration for an application."""
    settings = settings or Settings()
    limits = ConnectionLimits(connections=settings.max_connections)
    return uvicorn.Config(
        cast("type[object]", app),  # pyright: ignore[reportArgumentType]
        host=host,
        port=port,
        http=http_protocol(limits, settings.allowed_origins),
        # Later than the drain's end, which lets interrupted turns say that they failed.
        ws=websocket_protocol(limits, settings.drain_seconds + HARD_STOP_SECONDS / 2),
        ws_max_size=settings.body_limit,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        # Compression costs memory per connection, and a small message could inflate to a huge one.
        ws_per_message_deflate=False,
        timeout_keep_alive=int(limits.keep_alive_seconds),
        timeout_graceful_shutdown=int(settings.drain_seconds) + HARD_STOP_SECONDS,
        log_config=None,
        access_log=False,
        server_header=False,
        # Trusted proxies are not configurable here, and X-Forwarded-* from others is forged easily.
        proxy_headers=False,
    )
