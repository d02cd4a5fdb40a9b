"""One request's answer, as whoever asked meets it: its head, and its body as it comes.

Everything that arrives in one read is given to the reader in one call. The reader may pause the
reading, and may stop listening before the answer is over.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.errors import InvalidResponseError, bad_response_error

MAX_BODY = 256 * 1024 * 1024
"""How long an answer may be, whole or streamed."""

MAX_READ = 64 * 1024 * 1024
"""How long an answer may be that is read in one piece."""

MAX_BUFFERED = 1024 * 1024
"""How much of an answer may come before anybody listens; then the upstream is held back."""

MAX_DECOMPRESSED = 256 * 1024
"""How much is unpacked at a time: a few packed bytes may be very many."""

BodyCallback = Callable[[bytes], None]


class ResponseCarrier(Protocol):
    """The connection that carries an answer."""

    def pause(self) -> None:
        """Read no more."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def close(self) -> None:
        """Close at once."""
        ...

    def release(self, response: "HttpResponse") -> None:
        """Be free for another request, or close."""
        ...


class HttpResponse:
    """One request's answer."""

    def __init__(self, connection: ResponseCarrier, peer_name: str) -> None:
        self.peer_name = peer_name
        """Whom to blame."""
        self.status = 0
        self.headers: dict[str, str] = {}
        """What the head says; names are in lower case."""
        self.is_over = False
        """Whether the whole answer has been given, or nobody listens any more."""
        self.is_paused = False
        self._connection = connection
        self._head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._state_changed = asyncio.Event()
        self.body_received: BodyCallback = self._buffer
        """Takes a piece of the body, for the connection; what it raises goes to `broke`."""
        self._on_body: BodyCallback = _ignore
        self._buffered: list[bytes] = []
        self._end_received = False
        self._size = 0
        self._decompressor: Decompressor | None = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        state = "over" if self.is_over else "paused" if self.is_paused else "open"
        return f"<Exchange with {self.peer_name}: {self.status or 'no head'}, {state}>"

    # --- for whoever asked ---

    def release(self) -> None:
        """Let go of the connection; if the answer is not over, it is closed at once."""
        self._connection.release(self)

    async def wait_for_head(self) -> None:
        """Wait for the head; raises UpstreamError, or Stale."""
        try:
            await self._head
        except BaseException:
            self._connection.close()
            raise

    def subscribe(self, on_body: BodyCallback) -> None:
        """Have every piece of the body given to a function, from now on."""
        self._on_body = on_body
        self.body_received = on_body if self._decompressor is None else self._decompress
        if self._buffered:
            early, self._buffered = b"".join(self._buffered), []
            self._size = 0
            self.resume()
            try:
                self.body_received(early)
            except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
                self.fail_in_reader(error)
            if self._end_received:
                self.end()

    async def wait(self) -> bool:
        """Wait until the answer is over (true) or paused (false); raises what went wrong."""
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
                raise bad_response_error(self.peer_name, "sent more than can be read at once.")
            pieces.append(data)

        self.subscribe(receive)
        await self.wait()

    async def read_and_release(self) -> bytes:
        """Return the whole body, and let go of the connection; raises UpstreamError."""
        try:
            return await self.read()
        finally:
            self.release()

    async def read_and_release_within(self, seconds: float) -> bytes:
        """Return what comes of the body in so many seconds, and let go of the connection."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(seconds):
                await self._read_into(pieces)
        except (UpstreamError, TimeoutError):
            pass  # the head has said the most of it
        finally:
            self.release()
        return b"".join(pieces)

    def pause(self) -> None:
        """Read no more until `resume`."""
        if not self.is_over:
            self.is_paused = True
            self._connection.pause()
            self._state_changed.set()

    def resume(self) -> None:
        """Read on."""
        if self.is_paused:
            self.is_paused = False
            self._connection.resume()

    def stop(self) -> None:
        """Listen no more; what still comes is of no interest."""
        self._buffered.clear()
        self._finish()

    # --- for the connection ---

    @property
    def waits_for_head(self) -> bool:
        """Whether the head has not come yet."""
        return not self._head.done()

    def head_received(self, status: int, headers: dict[str, str]) -> None:
        """Take the head; raises Invalid if its body could not be understood."""
        packing = headers.get("content-encoding", "").lower()
        if packing in ("gzip", "x-gzip", "deflate"):
            self._decompressor = Decompressor()
        elif packing not in ("", "identity"):
            raise InvalidResponseError(f"sent a body packed as '{packing[:40]}', unasked.")
        self.status, self.headers = status, headers
        if not self._head.done():
            self._head.set_result(None)

    def _buffer(self, data: bytes) -> None:
        """Keep a piece until somebody listens; packed as it is: unpacked it may be very much."""
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
            self.fail(bad_response_error(self.peer_name, "sent a body that cannot be unpacked."))

    def end(self) -> None:
        """Take note that the whole answer has come."""
        if self.is_over:
            return
        if self._buffered:
            self._end_received = True  # it is over once somebody has listened
        elif self._decompressor is not None and not self._decompressor.is_complete:
            self.fail(
                bad_response_error(
                    self.peer_name, "sent a body that cannot be unpacked: its end is missing."
                )
            )
        else:
            self._finish()

    def fail(self, error: Exception) -> None:
        """End with an error, unless it is over; close the connection."""
        if not self.is_over:
            if not self._head.done():
                self._head.set_exception(error)
                self._head.exception()  # whoever waited may be gone
            self._finish(error)
        self._connection.close()

    def fail_in_reader(self, error: Exception) -> None:
        """End with an error of whoever listens, which is raised again where they wait."""
        self._finish(error)
        self._connection.close()

    def _finish(self, error: Exception | None = None) -> None:
        self.is_over = True
        self._error = error
        self.body_received = self._on_body = _ignore
        self._state_changed.set()
        self.resume()  # the connection may serve others, or has an end to wait for


def _ignore(data: bytes) -> None:
    del data


def endless_body_error(peer_name: str) -> Exception:
    """Blame an upstream for an answer of more than MAX_BODY bytes."""
    return bad_response_error(peer_name, "sent an answer without an end.")


class Decompressor:
    """A packed body, unpacked a bounded piece at a time."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Unpack what has come; raises zlib.error."""
        more = True
        while data or more:
            if self._inflate is None or (self._inflate.eof and data):
                self._inflate = zlib.decompressobj(wbits=47)  # gzip or zlib, by its first bytes
            piece = self._inflate.decompress(data, MAX_DECOMPRESSED)
            more = len(piece) == MAX_DECOMPRESSED
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return self._inflate is None or self._inflate.eof
