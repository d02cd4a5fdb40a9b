"""A WebSocket opened, and the one place where its library's errors become ours.

TLS is always verified, and no redirect leads to another server: it would be shown our credentials.
Import this where it is used, because the library takes its time.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)

from antiphon.adapters.base import MAX_EVENT_BYTES
from antiphon.adapters.errors import redact, redirect_target
from antiphon.client.errors import (
    SERVER,
    redact_credentials,
    websocket_closed_error,
    websocket_refused_error,
)
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.transport.client import HEADER_NAME, HEADER_VALUE
from antiphon.transport.proxy import is_loopback
from antiphon.transport.response import connect_error, timeout_error, unreachable_error

CLOSE_TIMEOUT = 2.0
MAX_QUEUED_FRAMES = 64
"""How many frames the library keeps that nobody has taken yet."""
MESSAGE_TOO_BIG = 1009

logger = logging.getLogger("antiphon.websocket")
logger.setLevel(logging.INFO)  # below that the library writes headers, and a key may be in them


class WebSocketConnection:
    """An open WebSocket: messages out, messages in, as bytes."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """Send a message of text; raises UpstreamError."""
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as end:
            raise connection_closed_error(end) from None

    async def receive(self) -> bytes:
        """Return the next message; raises UpstreamError when there will be none."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed as end:
            raise connection_closed_error(end) from None

    async def responds_to_ping(self, seconds: float) -> bool:
        """Tell whether the other side answers a ping in time; raises UpstreamError."""
        try:
            async with asyncio.timeout(seconds):
                await (await self._socket.ping())
        except TimeoutError:
            return False
        except ConnectionClosed as end:
            raise connection_closed_error(end) from None
        return True

    async def close(self) -> None:
        """Say goodbye, and do not wait to hear it: that would take another round trip."""
        closing = asyncio.ensure_future(self._socket.close())
        try:
            await asyncio.sleep(0)  # it is said now
            self._socket.transport.close()
            await closing
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connection without a word."""
        self._socket.transport.abort()


class SameServerConnect(connect):
    """Connects to the server that it was told, or not at all."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow a redirect only if it stays with the same server."""
        with suppress(InvalidURI):  # many servers say https for wss
            target = super().process_redirect(exc)
            if isinstance(target, str) and urlsplit(target)[:2] == urlsplit(self.uri)[:2]:
                return target
        return exc


async def open_websocket(
    url: str, headers: Mapping[str, str], seconds: float
) -> WebSocketConnection:
    """Open a WebSocket; raises UpstreamError, and RequestError for headers that none may have."""
    check_headers(headers)
    try:
        return WebSocketConnection(await build_connect(url, headers, seconds))
    except InvalidStatus as error:
        answer = error.response
        told = {name.lower(): value for name, value in answer.headers.raw_items()}
        said = redact_credentials(bytes(answer.body or b"").decode(errors="replace"), headers)
        place = redirect_target(answer.status_code, told, url, url.rpartition("/")[0])
        place = place and redact_credentials(place, headers)
        raise websocket_refused_error(answer.status_code, told, said.encode(), place) from None
    except TimeoutError:
        raise timeout_error(SERVER, f"opened no WebSocket within {seconds:g} seconds.") from None
    except OSError as error:
        raise connect_error(
            SERVER, error, f" at {urlsplit(url).netloc.rpartition('@')[2]}"
        ) from None
    except (WebSocketException, ValueError, ImportError) as error:
        reason = f"opened no WebSocket ({type(error).__name__})."
        raise unreachable_error(SERVER, reason) from None


def build_connect(url: str, headers: Mapping[str, str], seconds: float) -> connect:
    """Describe the connection; whoever awaits it gets it."""
    return SameServerConnect(
        url,
        additional_headers=headers,
        user_agent_header="antiphon",
        compression=None,
        proxy=None if is_loopback(urlsplit(url).hostname or "") else True,
        open_timeout=seconds,
        ping_interval=None,  # the session's affair, which knows when it does not listen
        close_timeout=CLOSE_TIMEOUT,
        max_size=MAX_EVENT_BYTES,
        max_queue=MAX_QUEUED_FRAMES,
        logger=logger,
    )


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that would become others; their values are told to nobody."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name.lower()) or not HEADER_VALUE.fullmatch(value):
            message = f"The header {name[:64]!r} holds a line break or the like."
            raise RequestError(message, param="headers")


def connection_closed_error(error: ConnectionClosed) -> UpstreamError:
    """Make the error for a WebSocket that is no more."""
    if error.sent and error.sent.code == MESSAGE_TOO_BIG:
        return websocket_closed_error(f"it sent more than {MAX_EVENT_BYTES} bytes in one message.")
    if error.rcvd is None:
        return websocket_closed_error("the connection was lost.")
    return websocket_closed_error(f"{error.rcvd.code} {redact(error.rcvd.reason, 200)}".strip())
