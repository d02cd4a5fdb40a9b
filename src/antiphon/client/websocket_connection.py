"""Open and close a WebSocket; the errors of the library become ours.

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


class SameServerConnect(connect):
    """Follows redirects only within the same server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the redirect's target if scheme and host stay the same."""
        with suppress(InvalidURI):  # many servers redirect to https instead of wss
            target = super().process_redirect(exc)
            if isinstance(target, str) and urlsplit(target)[:2] == urlsplit(self.uri)[:2]:
                return target
        return exc


async def open_websocket(url: str, headers: Mapping[str, str], seconds: float) -> ClientConnection:
    """Open a WebSocket; raises UpstreamError, and RequestError for invalid headers."""
    for name, value in headers.items():
        # A line break would inject another header. The value may be a secret, so it is not quoted.
        if not HEADER_NAME.fullmatch(name.lower()) or not HEADER_VALUE.fullmatch(value):
            message = f"The header {name[:64]!r} contains an invalid character, such as a line break."
            raise RequestError(message, param="headers")
    try:
        return await SameServerConnect(
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
        raise unreachable_error(SERVER, f"opened no WebSocket ({type(error).__name__}).") from None


async def close_websocket(connection: ClientConnection) -> None:
    """Send a close frame and close the connection."""
    # The server's close frame is not waited for: that would take another round trip.
    closing = asyncio.ensure_future(connection.close())
    try:
        await asyncio.sleep(0)  # the close frame is sent now
        # Flushes what is written, then closes.
        connection.transport.close()
        await closing
    finally:
        connection.transport.abort()


def connection_closed_error(error: ConnectionClosed) -> UpstreamError:
    """Build the error for a closed connection."""
    # The library closes the connection itself when a message exceeds max_size.
    if error.sent and error.sent.code == MESSAGE_TOO_BIG:
        return websocket_closed_error(f"it sent more than {MAX_EVENT_BYTES} bytes in one message.")
    if error.rcvd is None:
        return websocket_closed_error("the connection was lost.")
    return websocket_closed_error(f"{error.rcvd.code} {redact(error.rcvd.reason, 200)}".strip())
