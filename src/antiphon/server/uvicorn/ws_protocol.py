"""uvicorn's WebSocket protocol with a write timeout and an orderly shutdown.

uvicorn itself waits without limit for a client that does not read, and when the server stops it
closes connections whose responses are not finished.
"""

from asyncio import AbstractEventLoop, Protocol, TimerHandle
from functools import partial
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from antiphon.server.uvicorn.http_protocol import DEFAULT_CONNECTION_LIMITS, ConnectionLimits


def websocket_protocol(limits: ConnectionLimits = DEFAULT_CONNECTION_LIMITS, drain: float = 0) -> type[Protocol]:
    """Return the protocol class for `uvicorn.Config(ws=...)`."""
    return cast("type[Protocol]", partial(HardenedWebSocketProtocol, limits=limits, drain=drain))


class HardenedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection to an untrusted client."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits = DEFAULT_CONNECTION_LIMITS,
        drain: float = 0,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = limits
        self.drain_seconds = drain
        self.write_timer: TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_write_timer()
        super().connection_lost(exc)
        # The parser is a generator that refers to its own connection and to the last frame. After
        # an unclean close only the garbage collector could free that cycle, message included.
        self.conn.parser.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        self._cancel_write_timer()
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # a client that answers no ping does not read the buffer either

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._start_write_timer()

    def shutdown(self) -> None:
        """Give the application `drain_seconds` to finish its responses and close the connection."""
        self.loop.call_later(self.drain_seconds, self._force_shutdown)

    def _force_shutdown(self) -> None:
        # The application may have closed the connection within the drain time.
        if not self.disconnected:
            super().shutdown()

    def _start_write_timer(self) -> None:
        """Abort the connection unless the client reads within `write_stall_seconds`."""
        self._cancel_write_timer()
        if not self.disconnected:
            seconds = self.limits.write_stall_seconds
            self.write_timer = self.loop.call_later(seconds, self.transport.abort)

    def _cancel_write_timer(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
