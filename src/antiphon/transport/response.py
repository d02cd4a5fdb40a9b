"""An HTTP response as its reader sees it, and the errors of the transport.

What arrives in one read is passed to the reader in one call, unless it is large or compressed: then
it is passed on in steps, one per iteration of the event loop, so that no server can block the loop.
The reader can pause the connection, and can stop before the body ends.
"""

import asyncio
import os
import ssl
import zlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from antiphon.protocol.errors import UpstreamError

MAX_BODY = 256 * 1024 * 1024
"""The largest body, streamed or not."""

CHECK_BYTES = 4 * 1024 * 1024
"""After how many more bytes of a body its size is checked."""

MAX_READ = 64 * 1024 * 1024
"""The largest body that `HttpResponse.read` returns."""

MAX_ERROR_BODY = 256 * 1024

MAX_BUFFERED = 1024 * 1024
"""How much of a body is buffered before there is a reader; then the connection is paused."""

# The readers need up to a microsecond per byte, for example for a stream of empty JSON objects.
STEP_BYTES = 32 * 1024
"""How much of a body is decompressed and passed on in one iteration of the event loop."""

DRAIN_SECONDS = 1.0
"""How long the end of a stopped body may take, before it is given up and the connection is closed."""

INVALID = "upstream_invalid"
CUT = "upstream_cut"
UNREACHABLE = "upstream_unreachable"

BodyCallback = Callable[[bytes], None]


class InvalidResponseError(Exception):
    """A response that is not valid HTTP, or not what was requested."""


def bad_response_error(peer_name: str, message: str, code: str = INVALID) -> UpstreamError:
    """Return the error for an invalid or incomplete response; `peer_name` names the server."""
    return UpstreamError(f"{peer_name}: {message}", status=502, code=code, retryable=True)


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
    where = where.replace(f" at {peer_name}", "")  # a client has no other name for the server than its address
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
        self.body_received: BodyCallback = self.receive_in_steps
        """Takes a piece of the body from the connection; its exceptions go to `fail_in_reader`."""
        self.next_check = CHECK_BYTES
        """The size of the body at which `accept_size` must be called."""
        self.on_growth: Callable[[], None] | None = None
        """Called after every `CHECK_BYTES` of the body; may raise UpstreamError."""
        self._on_body: BodyCallback = _ignore
        self._rest = bytearray()
        """What has arrived and was not passed on."""
        self.is_stepping = False
        """Whether the next step is scheduled; the connection is not read until then."""
        self._is_stopped = False
        self._ending: Callable[[], None] | None = None
        """What to do after the rest was passed on: end or fail."""
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
        self._on_body, self.is_paused = on_body, True
        self.resume()

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
        await self._read_into(pieces, MAX_READ)
        return b"".join(pieces)

    async def _read_into(self, pieces: list[bytes], limit: int) -> None:
        room = limit

        def receive(data: bytes) -> None:
            nonlocal room
            room -= len(data)
            if room < 0:
                raise bad_response_error(self.peer_name, TOO_LARGE)
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
        """Return what arrives of an error's body within some seconds, at most its start; release the connection."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(seconds):
                await self._read_into(pieces, MAX_ERROR_BODY)
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
            if not self.is_stepping:
                self._step()

    def stop(self) -> None:
        """Ignore the rest of the body; but one that is compressed must have an end, or `wait` raises an error."""
        if not self.is_cut:
            self._finish()
        elif not self._is_stopped:
            self._is_stopped, self._on_body = True, _ignore
            asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._finish)

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

    def receive_in_steps(self, data: bytes, *, later: bool = False) -> None:
        """Take a piece that is large, compressed, or without a reader; pass its start on, now or in the next step."""
        if not self.is_over:
            self._rest += data
            if later:
                self._schedule_step()
            elif not self.is_stepping:
                self._step()

    @property
    def _has_rest(self) -> bool:
        return bool(self._rest or (self._decompressor and self._decompressor.has_more))

    @property
    def is_cut(self) -> bool:
        """Whether the body is compressed and its end is missing."""
        return self._decompressor is not None and not self._decompressor.is_complete

    def _schedule_step(self) -> None:
        self.body_received = self.receive_in_steps
        self._connection.pause()
        if not (self.is_stepping or self.is_paused):
            self.is_stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        """Pass on one piece of the rest, and continue in the next iteration of the event loop."""
        self.is_stepping = False
        if self.is_over or self.is_paused:
            return
        if self._on_body is _ignore and not self._is_stopped:  # there is no reader yet
            (self.pause if len(self._rest) > MAX_BUFFERED else self._connection.resume)()
            return
        try:
            if self._has_rest and (piece := self._take_piece()):
                self._on_body(piece)
        except zlib.error:
            self.fail_in_reader(bad_response_error(self.peer_name, DECOMPRESSION_FAILED + "."))
        except Exception as error:  # noqa: BLE001 - `wait` raises it
            self.fail_in_reader(error)
        if not self.is_over:
            self._continue()

    def _continue(self) -> None:
        """Schedule the next step; after the last one read on, or end."""
        if self._is_stopped and not self.is_cut:
            self._finish()
        elif self._has_rest:
            self._schedule_step()
        elif self._ending:
            self._ending()
        else:
            if self._decompressor is None:
                self.body_received = self._on_body
            if not self.is_paused:
                self._connection.resume()

    def _take_piece(self) -> bytes:
        """Remove some bytes from the rest; return them, decompressed if needed. Raises zlib.error."""
        rest = self._rest
        if self._decompressor is None:
            # Cut after a line if there is one: the readers are faster with whole events.
            end = (len(rest) > STEP_BYTES and rest.rfind(b"\n", 0, STEP_BYTES) + 1) or STEP_BYTES
            piece = bytes(rest[:end])
            del rest[:end]
            return piece
        piece = self._decompressor.take_piece(rest)
        self._size += len(piece)
        is_accepted = self._size <= self.next_check or self._is_stopped or self.accept_size(self._size)
        return piece if is_accepted else b""

    def accept_size(self, size: int) -> bool:
        """Check how much of the body has arrived; fail and return False if it is too much."""
        self.next_check = min(size + CHECK_BYTES, MAX_BODY)
        try:
            if size > MAX_BODY:
                raise bad_response_error(self.peer_name, TOO_LARGE)
            if self.on_growth:
                self.on_growth()
        except UpstreamError as error:
            self.fail_in_reader(error)
            return False
        return True

    def end(self) -> None:
        """Take the end of the body."""
        if self.is_over:
            return
        if self._has_rest:
            self._ending = self.end
        elif self.is_cut:
            self.fail(bad_response_error(self.peer_name, f"{DECOMPRESSION_FAILED}: its end is missing.", CUT))
        else:
            self._finish()

    def fail(self, error: Exception) -> None:
        """End with an error, unless it is over; close the connection. What has arrived is passed on first."""
        if self._has_rest and not self.is_over:
            self._ending = partial(self.fail, error)
        elif not self.is_over:
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
        if self.is_over:
            self._error = self._error or error
            return
        self.is_over, self.is_paused = True, False
        self._error = error
        self.body_received = self._on_body = _ignore
        self._ending = self.on_growth = None
        self._rest.clear()
        self._state_changed.set()
        # A paused connection must read on, to see the end of the body or to be reused.
        self._connection.resume()


DECOMPRESSION_FAILED = "sent a body that cannot be decompressed"
TOO_LARGE = "sent a body that is too large."


def _ignore(data: bytes) -> None:
    del data


class Decompressor:
    """Decompresses a gzip or zlib body, a bounded piece at a time."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]
        self.has_more = False
        """Whether the bytes taken so far may hold more than was returned."""

    def take_piece(self, data: bytearray) -> bytes:
        """Remove some bytes, and return a piece of what they hold, perhaps nothing; raises zlib.error."""
        # A gzip body may have several members: each needs an object of its own.
        if self._inflate is None or (self._inflate.eof and data):
            self._inflate = zlib.decompressobj(wbits=47)  # detects gzip or zlib
        taken = bytes(data[:STEP_BYTES])
        piece = self._inflate.decompress(taken, STEP_BYTES)
        del data[: len(taken) - len(self._inflate.unconsumed_tail or self._inflate.unused_data)]
        self.has_more = len(piece) == STEP_BYTES
        return piece

    @property
    def is_complete(self) -> bool:
        """Whether the compressed stream has ended."""
        return self._inflate is None or self._inflate.eof
