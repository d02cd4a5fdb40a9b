"""An HTTP response as its reader sees it, and the errors of the transport.

Everything that arrives in one read is passed to the reader in one call. The reader can pause the
connection, and can stop before the body ends.
"""

import asyncio
import os
import ssl
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from antiphon.protocol.errors import UpstreamError

MAX_BODY = 256 * 1024 * 1024
"""The largest body, streamed or not."""

MAX_READ = 64 * 1024 * 1024
"""The largest body that `HttpResponse.read` returns."""

MAX_BUFFERED = 1024 * 1024
"""How much of a body is buffered before there is a reader; then the connection is paused."""

MAX_DECOMPRESSED = 256 * 1024
"""How much is decompressed at a time, so that a compression bomb does not fill the memory."""

INVALID = "upstream_invalid"
CUT = "upstream_cut"
UNREACHABLE = "upstream_unreachable"

BodyCallback = Callable[[bytes], None]


class InvalidResponseError(Exception):
    """A response that is not valid HTTP, or not what was requested."""


def bad_response_error(peer_name: str, message: str, code: str = INVALID) -> UpstreamError:
    """Return the error for an invalid or incomplete response; `peer_name` names the server."""
    return UpstreamError(f"{peer_name}: {message}", status=502, code=code, retryable=True)


def endless_body_error(peer_name: str) -> UpstreamError:
    """Return the error for a body that is too large."""
    return bad_response_error(peer_name, "sent a body that is too large.")


def timeout_error(peer_name: str, message: str, *, retryable: bool = True) -> UpstreamError:
    """Return the error for a server that takes too long."""
    # Our own caller may be an SDK that retries a 504 by itself. A request that the provider may
    # still be working on would then be paid for twice; OpenAI's SDKs obey this header.
    headers = {} if retryable else {"x-should-retry": "false"}
    return UpstreamError(f"{peer_name}: {message}", status=504, code="timeout", retryable=retryable, headers=headers)


def unreachable_error(peer_name: str, message: str, *, retryable: bool = False) -> UpstreamError:
    """Return the error for a server that cannot be reached."""
    return UpstreamError(f"{peer_name}: {message}", status=502, code=UNREACHABLE, retryable=retryable)


def connect_error(peer_name: str, error: OSError | UnicodeError, where: str = "") -> UpstreamError:
    """Return the error for a failed connection attempt."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"{error.verify_message} (SSL_CERT_FILE names the authorities to trust)"
        return unreachable_error(peer_name, f"cannot be trusted{where}: {reason}.")
    message = f"cannot be reached{where}: {_reason(error)}."
    return unreachable_error(peer_name, message, retryable=True)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError):
        if isinstance(error, ssl.SSLError):
            return f"no TLS ({error.reason or 'the handshake failed'})"
        # asyncio and uvloop format the same errno differently; strerror is the same everywhere.
        if error.errno and error.errno > 0:
            return os.strerror(error.errno).lower()
    return (getattr(error, "strerror", None) or str(error) or "the connection was lost").lower()


class ResponseCarrier(Protocol):
    """The connection of a response: `HttpConnection`, or a test double."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...
    def release(self, response: "HttpResponse") -> None: ...


class HttpResponse:
    """The response to one request."""

    def __init__(self, connection: ResponseCarrier, peer_name: str) -> None:
        self.peer_name = peer_name
        """The server's name in error messages."""
        self.status = 0
        self.headers: dict[str, str] = {}
        """The headers; names are in lower case."""
        self.is_over = False
        """Whether the body has ended, failed, or was stopped."""
        self.is_paused = False
        self._connection = connection
        self._head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._state_changed = asyncio.Event()
        # An attribute and not a method: on the hot path the connection calls the reader directly.
        self.body_received: BodyCallback = self._buffer
        """Takes a piece of the body from the connection; its exceptions go to `fail_in_reader`."""
        self._on_body: BodyCallback = _ignore
        self._buffered: list[bytes] = []
        self._end_received = False
        self._size = 0
        self._decompressor: Decompressor | None = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        state = "over" if self.is_over else "paused" if self.is_paused else "open"
        return f"<HttpResponse from {self.peer_name}: {self.status or 'no head'}, {state}>"

    def release(self) -> None:
        """Give the connection back; if the body has not ended, the connection is closed."""
        self._connection.release(self)

    async def wait_for_head(self) -> None:
        """Wait for status and headers; raises UpstreamError or StaleConnectionError."""
        try:
            await self._head
        except BaseException:
            self._connection.close()
            raise

    def subscribe(self, on_body: BodyCallback) -> None:
        """Call a function with every piece of the body, beginning with the buffered ones."""
        self._on_body = on_body
        self.body_received = on_body if self._decompressor is None else self._decompress
        if self._buffered:
            data, self._buffered = b"".join(self._buffered), []
            self._size = 0
            self.resume()
            try:
                self.body_received(data)
            except Exception as error:  # noqa: BLE001 - `wait` raises it
                self.fail_in_reader(error)
            if self._end_received:
                self.end()

    async def wait(self) -> bool:
        """Wait until the body is over (True) or paused (False); raises what went wrong."""
        while not (self.is_over or self.is_paused):
            self._state_changed.clear()
            await self._state_changed.wait()
        if self._error is not None:
            raise self._error
        return self.is_over

    async def read(self) -> bytes:
        """Return the whole body; raises UpstreamError."""
        pieces: list[bytes] = []
        await self._read_into(pieces)
        return b"".join(pieces)

    async def _read_into(self, pieces: list[bytes]) -> None:
        size = 0

        def receive(data: bytes) -> None:
            nonlocal size
            size += len(data)
            if size > MAX_READ:
                raise endless_body_error(self.peer_name)
            pieces.append(data)

        self.subscribe(receive)
        await self.wait()

    async def read_and_release(self) -> bytes:
        """Return the whole body, and release the connection; raises UpstreamError."""
        try:
            return await self.read()
        finally:
            self.release()

    async def read_and_release_within(self, seconds: float) -> bytes:
        """Return what arrives of the body within some seconds, and release the connection."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(seconds):
                await self._read_into(pieces)
        except (UpstreamError, TimeoutError):
            pass  # the body explains an error status; without it the status alone is reported
        finally:
            self.release()
        return b"".join(pieces)

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if not self.is_over:
            self.is_paused = True
            self._connection.pause()
            self._state_changed.set()

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._connection.resume()

    def stop(self) -> None:
        """Ignore the rest of the body."""
        self._buffered.clear()
        self._finish()

    # The connection calls the methods below.

    @property
    def waits_for_head(self) -> bool:
        """Whether the head has not arrived yet."""
        return not self._head.done()

    def head_received(self, status: int, headers: dict[str, str]) -> None:
        """Take status and headers; raises InvalidResponseError for an unknown encoding."""
        # We ask for `identity`, but some servers and proxies compress all the same.
        encoding = headers.get("content-encoding", "").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._decompressor = Decompressor()
        elif encoding not in ("", "identity"):
            raise InvalidResponseError(f"sent a body compressed as '{encoding[:40]}', which was not requested.")
        self.status, self.headers = status, headers
        if not self._head.done():
            self._head.set_result(None)

    def _buffer(self, data: bytes) -> None:
        """Keep a piece until there is a reader; it stays compressed, to bound the memory."""
        self._buffered.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self.pause()

    def _decompress(self, data: bytes) -> None:
        try:
            for piece in self._decompressor.feed(data) if self._decompressor else ():
                self._size += len(piece)
                if self._size > MAX_BODY:
                    self.fail(endless_body_error(self.peer_name))
                if self.is_over:
                    break
                self._on_body(piece)
        except zlib.error:
            self.fail(bad_response_error(self.peer_name, DECOMPRESSION_FAILED + "."))

    def end(self) -> None:
        """Take the end of the body."""
        if self.is_over:
            return
        if self._buffered:
            self._end_received = True  # it is over once a reader has the buffered pieces
        elif self._decompressor is not None and not self._decompressor.is_complete:
            self.fail(bad_response_error(self.peer_name, f"{DECOMPRESSION_FAILED}: its end is missing."))
        else:
            self._finish()

    def fail(self, error: Exception) -> None:
        """End with an error, unless it is over; close the connection."""
        if not self.is_over:
            if not self._head.done():
                self._head.set_exception(error)
                # Mark it as retrieved: the task that waited may have been cancelled, and asyncio
                # would log an exception that nobody retrieved.
                self._head.exception()
            self._finish(error)
        self._connection.close()

    def fail_in_reader(self, error: Exception) -> None:
        """End with an exception of the reader's callback, which `wait` raises again."""
        self._finish(error)
        self._connection.close()

    def _finish(self, error: Exception | None = None) -> None:
        self.is_over = True
        self._error = error
        self.body_received = self._on_body = _ignore
        self._state_changed.set()
        # A paused connection must read on, to see the end of the body or to be reused.
        self.resume()


DECOMPRESSION_FAILED = "sent a body that cannot be decompressed"


def _ignore(data: bytes) -> None:
    del data


class Decompressor:
    """Decompresses a gzip or zlib body, a bounded piece at a time."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress what has arrived; raises zlib.error."""
        more = True
        while data or more:
            # A gzip body may have several members: each needs an object of its own.
            if self._inflate is None or (self._inflate.eof and data):
                self._inflate = zlib.decompressobj(wbits=47)  # detects gzip or zlib
            piece = self._inflate.decompress(data, MAX_DECOMPRESSED)
            more = len(piece) == MAX_DECOMPRESSED
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    @property
    def is_complete(self) -> bool:
        """Whether the compressed stream has ended."""
        return self._inflate is None or self._inflate.eof
