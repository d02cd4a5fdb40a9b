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

from antiphon.adapters.astray import moved_to
from antiphon.adapters.base import MAX_EVENT
from antiphon.adapters.faults import redacted
from antiphon.client.errors import WHO, closed, hushed, unopened
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.transport.errors import late, unreachable, unreached
from antiphon.transport.http import NAME, VALUE
from antiphon.transport.proxy import is_local

CLOSE_SECONDS = 2.0
MAX_FRAMES = 64
"""How many frames the library keeps that nobody has taken yet."""
TOO_BIG = 1009

logger = logging.getLogger("antiphon.websocket")
logger.setLevel(logging.INFO)  # below that the library writes headers, and a key may be in them


class Line:
    """An open WebSocket: messages out, messages in, as bytes."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """Send a message of text; raises UpstreamError."""
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as end:
            raise ended(end) from None

    async def receive(self) -> bytes:
        """Return the next message; raises UpstreamError when there will be none."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed as end:
            raise ended(end) from None

    async def answers(self, seconds: float) -> bool:
        """Tell whether the other side answers a ping in time; raises UpstreamError."""
        try:
            async with asyncio.timeout(seconds):
                await (await self._socket.ping())
        except TimeoutError:
            return False
        except ConnectionClosed as end:
            raise ended(end) from None
        return True

    async def close(self) -> None:
        """Say goodbye, and do not wait to hear it: that would take another round trip."""
        closing = asyncio.ensure_future(self._socket.close())
        try:
            await asyncio.sleep(0)  # it is said now
            self._socket.transport.close()
            await closing
        finally:
            self.cut()

    def cut(self) -> None:
        """Close the connection without a word."""
        self._socket.transport.abort()


class Steadfast(connect):
    """Connects to the server that it was told, or not at all."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow a redirect only if it stays with the same server."""
        with suppress(InvalidURI):  # many servers say https for wss
            target = super().process_redirect(exc)
            if isinstance(target, str) and urlsplit(target)[:2] == urlsplit(self.uri)[:2]:
                return target
        return exc


async def dial(url: str, headers: Mapping[str, str], seconds: float) -> Line:
    """Open a WebSocket; raises UpstreamError, and RequestError for headers that none may have."""
    check(headers)
    try:
        return Line(await opening(url, headers, seconds))
    except InvalidStatus as error:
        answer = error.response
        told = {name.lower(): value for name, value in answer.headers.raw_items()}
        said = hushed(bytes(answer.body or b"").decode(errors="replace"), headers)
        place = moved_to(answer.status_code, told, url, url.rpartition("/")[0])
        place = place and hushed(place, headers)
        raise unopened(answer.status_code, told, said.encode(), place) from None
    except TimeoutError:
        raise late(WHO, f"opened no WebSocket within {seconds:g} seconds.") from None
    except OSError as error:
        raise unreached(WHO, error, f" at {urlsplit(url).netloc.rpartition('@')[2]}") from None
    except (WebSocketException, ValueError, ImportError) as error:
        reason = f"opened no WebSocket ({type(error).__name__})."
        raise unreachable(WHO, reason) from None


def opening(url: str, headers: Mapping[str, str], seconds: float) -> connect:
    """Describe the connection; whoever awaits it gets it."""
    return Steadfast(
        url,
        additional_headers=headers,
        user_agent_header="antiphon",
        compression=None,
        proxy=None if is_local(urlsplit(url).hostname or "") else True,
        open_timeout=seconds,
        ping_interval=None,  # the session's affair, which knows when it does not listen
        close_timeout=CLOSE_SECONDS,
        max_size=MAX_EVENT,
        max_queue=MAX_FRAMES,
        logger=logger,
    )


def check(headers: Mapping[str, str]) -> None:
    """Refuse headers that would become others; their values are told to nobody."""
    for name, value in headers.items():
        if not NAME.fullmatch(name.lower()) or not VALUE.fullmatch(value):
            message = f"The header {name[:64]!r} holds a line break or the like."
            raise RequestError(message, param="headers")


def ended(end: ConnectionClosed) -> UpstreamError:
    """Make the error for a WebSocket that is no more."""
    if end.sent and end.sent.code == TOO_BIG:
        return closed(f"it sent more than {MAX_EVENT} bytes in one message.")
    if end.rcvd is None:
        return closed("the connection was lost.")
    return closed(f"{end.rcvd.code} {redacted(end.rcvd.reason, 200)}".strip())
