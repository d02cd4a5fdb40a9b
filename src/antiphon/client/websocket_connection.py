"""Open and use a WebSocket; the errors of the library are converted to ours here.

TLS is always verified. Redirects to another server are not followed: it would get the credentials.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from antiphon.adapters.base import MAX_EVENT_BYTES
from antiphon.adapters.errors import redact, redirect_target
from antiphon.client.errors import SERVER, redact_credentials, websocket_closed_error, websocket_refused_error
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.transport.client import HEADER_NAME, HEADER_VALUE
from antiphon.transport.proxy import is_loopback
from antiphon.transport.response import connect_error, timeout_error, unreachable_error

CLOSE_TIMEOUT = 2.0
MAX_QUEUED_FRAMES = 64
"""Unread frames that the library buffers."""
MESSAGE_TOO_BIG = 1009

logger = logging.getLogger("antiphon.websocket")
# At DEBUG the library logs headers, and with them the key.
logger.setLevel(logging.INFO)


class ClientWebSocket:
    """An open WebSocket that sends and receives messages as bytes."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """Send a text message; raises UpstreamError."""
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as end:
            raise connection_closed_error(end) from None

    async def receive(self) -> bytes:
        """Return the next message; raises UpstreamError when the connection is closed."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed as end:
            raise connection_closed_error(end) from None

    async def responds_to_ping(self, seconds: float) -> bool:
        """Return whether the server answers a ping in time; raises UpstreamError."""
        try:
            async with asyncio.timeout(seconds):
                await (await self._socket.ping())
        except TimeoutError:
            return False
        except ConnectionClosed as end:
            raise connection_closed_error(end) from None
        return True

    async def close(self) -> None:
        """Send a close frame and close the connection."""
        # The server's close frame is not waited for: that would take another round trip.
        closing = asyncio.ensure_future(self._socket.close())
        try:
            await asyncio.sleep(0)  # the close frame is sent now
            # Flushes what is written, then closes.
            self._socket.transport.close()
            await closing
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connection without a close frame."""
        self._socket.transport.abort()


class SameServerConnect(connect):
    """Follows redirects only within the same server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the redirect's target if scheme and host stay the same."""
        with suppress(InvalidURI):  # many servers redirect to https instead of wss
            target = super().process_redirect(exc)
            if isinstance(target, str) and urlsplit(target)[:2] == urlsplit(self.uri)[:2]:
                return target
        return exc


async def open_websocket(url: str, headers: Mapping[str, str], seconds: float) -> ClientWebSocket:
    """Open a WebSocket; raises UpstreamError, and RequestError for invalid headers."""
    check_headers(headers)
    try:
        return ClientWebSocket(await build_connect(url, headers, seconds))
    except InvalidStatus as error:
        response, status = error.response, error.response.status_code
        received = {name.lower(): value for name, value in response.headers.raw_items()}
        body = redact_credentials(bytes(response.body or b"").decode(errors="replace"), headers)
        location = redirect_target(status, received, url, url.rpartition("/")[0])
        location = location and redact_credentials(location, headers)
        raise websocket_refused_error(status, received, body.encode(), location) from None
    except TimeoutError:
        raise timeout_error(SERVER, f"opened no WebSocket within {seconds:g} seconds.") from None
    except OSError as error:
        raise connect_error(SERVER, error, f" at {urlsplit(url).netloc.rpartition('@')[2]}") from None
    except (WebSocketException, ValueError, ImportError) as error:
        reason = f"opened no WebSocket ({type(error).__name__})."
        raise unreachable_error(SERVER, reason) from None


def build_connect(url: str, headers: Mapping[str, str], seconds: float) -> connect:
    """Return an awaitable that connects."""
    return SameServerConnect(
        url,
        additional_headers=headers,
        user_agent_header="antiphon",
        # Deltas are too small to be worth compressing.
        compression=None,
        # A proxy cannot reach this machine's own loopback address.
        proxy=None if is_loopback(urlsplit(url).hostname or "") else True,
        open_timeout=seconds,
        ping_interval=None,  # Session sends pings: it knows when it does not read the answers
        close_timeout=CLOSE_TIMEOUT,
        max_size=MAX_EVENT_BYTES,
        max_queue=MAX_QUEUED_FRAMES,
        logger=logger,
    )


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise RequestError for headers that could inject others; never quote their values."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name.lower()) or not HEADER_VALUE.fullmatch(value):
            message = f"The header {name[:64]!r} contains an invalid character, such as a line break."
            raise RequestError(message, param="headers")


def connection_closed_error(error: ConnectionClosed) -> UpstreamError:
    """Build the error for a closed connection."""
    # The library closes the connection itself when a message exceeds max_size.
    if error.sent and error.sent.code == MESSAGE_TOO_BIG:
        return websocket_closed_error(f"it sent more than {MAX_EVENT_BYTES} bytes in one message.")
    if error.rcvd is None:
        return websocket_closed_error("the connection was lost.")
    return websocket_closed_error(f"{error.rcvd.code} {redact(error.rcvd.reason, 200)}".strip())
