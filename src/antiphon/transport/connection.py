"""One HTTP connection: one request at a time, its response pushed to the reader as it arrives.

Everything that arrives in one read is passed on in one call. Nothing is awaited here.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
from msgspec import Struct

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.response import (
    CUT,
    DRAIN_SECONDS,
    STEP_BYTES,
    HttpResponse,
    InvalidResponseError,
    bad_response_error,
    timeout_error,
)

MAX_BYTES_WITHOUT_BODY = 64 * 1024
"""The most bytes without any body among them: a head, trailers, chunk sizes."""

MAX_HEADERS = 256

CRLF = b"\r\n"

STALE_SECONDS = 2.0
"""A reused connection that closes within this time was closed before it read the request."""

KEEP_ALIVE_SECONDS = 20.0
"""How long an idle connection is kept; servers close theirs after a while, too."""

CLOSED_EARLY = "closed the connection before its response was complete."
TOO_MANY_HEADERS = "sent too many headers."


class Timeouts(Struct, frozen=True):
    """Seconds to connect, to the first byte, between two reads, and for the whole response."""

    connect: float = 10
    first_byte: float = 600
    idle: float = 300
    total: float = 3600


class StaleConnectionError(Exception):
    """A reused connection was closed before a byte of the response arrived."""


class HttpConnection(asyncio.Protocol):
    """One connection; it calls `on_idle` whenever it is free for another request."""

    def __init__(self, on_idle: Callable[["HttpConnection"], None]) -> None:
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: HttpResponse | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0
        """When the timer fires, in the loop's time."""
        self._deadline = 0.0
        """When the connection times out, if nothing happens before."""
        self._timeouts = Timeouts()
        self._sent_at = self._last_read_at = 0.0
        self._is_idempotent = False
        self._is_reused = False
        self._is_draining = self._is_paused = False
        self._body_pieces: list[bytes] = []
        self.on_body = self._body_pieces.append
        """The parser's callback for a piece of the body."""
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._in_head = True
        self._header_count = self._bytes_without_body = self._bytes_received = 0
        self._in_chunk = True
        """Whether the parser is not between two chunks."""
        self._at_chunk_boundary = False
        """Whether the last read ended with the end of a chunk."""
        self._is_complete = self._keep_alive = False

    # The client calls these.

    def send(self, request: bytes, timeouts: Timeouts, peer_name: str, *, idempotent: bool = False) -> HttpResponse:
        """Send a request and return its response, of which nothing has arrived yet."""
        response = HttpResponse(self, peer_name)
        if self._transport is None or self._transport.is_closing():
            response.fail(bad_response_error(peer_name, CLOSED_EARLY, CUT))
            return response
        self._reset()
        self._response = response
        self._timeouts, self._is_idempotent = timeouts, idempotent
        self._sent_at = self._last_read_at = self._loop.time()
        self._set_deadline(min(timeouts.first_byte, timeouts.total))
        self._transport.write(request)
        return response

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    # The response calls these.

    def release(self, response: HttpResponse) -> None:
        """Become idle after a complete response; close if its reader has not finished."""
        if response is not self._response:
            return  # released before: the connection may serve another request by now
        if response.is_over and self._is_complete:
            self._become_idle()
        elif response.is_over and self.is_usable:
            # After `[DONE]` the last bytes of a stream usually arrive within milliseconds. Waiting
            # for them saves the TCP and TLS handshakes of a new connection.
            self._is_draining = True
            self._set_deadline(DRAIN_SECONDS)
        else:
            self._response = None
            self.close()

    def pause(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            # The time of the pause does not count against the server.
            self._last_read_at = self._loop.time()
            if self._transport and not self._transport.is_closing():
                self._transport.resume_reading()

    def close(self) -> None:
        """Close at once."""
        if self._timer:
            self._timer.cancel()
        if self._transport:
            self._transport.abort()

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        response, size = self._response, len(data)
        if response is None or self._is_complete:
            self.close()  # data without a request: it would be read as the next response
            return
        self._last_read_at = self._loop.time()
        self._bytes_received += size
        if self._bytes_received > response.next_check and not response.accept_size(self._bytes_received):
            return
        body = failure = None
        if self._at_chunk_boundary and data.endswith(CRLF):
            # Nearly every read of a token stream is exactly one chunk. It is recognized here,
            # which is several times faster than the parser.
            start = data.find(CRLF) + 2
            if start < size - 2 and data.startswith(b"%x\r\n" % (size - start - 2)):
                body = data[start:-2]
        if body is None:
            body, failure = self._parse(response, data)
        if size > STEP_BYTES:
            # uvloop would otherwise read up to 32 times 256 KiB in one iteration.
            response.receive_in_steps(body, later=True)
        elif body:
            try:
                response.body_received(body)
            except Exception as error:  # noqa: BLE001 - `HttpResponse.wait` raises it
                response.fail_in_reader(error)
        if self._is_complete:
            # An error after a complete response means that more followed it in the same read.
            self._keep_alive = self._keep_alive and failure is None
            response.end()
            if self._is_draining:
                self._become_idle()
        elif failure:
            response.fail(failure)

    def _parse(self, response: HttpResponse, data: bytes) -> tuple[bytes, UpstreamError | None]:
        """Feed the parser; return the body in this read, and what is wrong with it."""
        failure = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # An exception of one of our own callbacks is the context of the parser's.
            is_ours = isinstance(error.__context__, InvalidResponseError)
            message = str(error.__context__) if is_ours else f"sent an invalid HTTP response ({error})."
            failure = bad_response_error(response.peer_name, message)
        self._at_chunk_boundary = not self._in_chunk and data.endswith(CRLF)
        body = b"".join(self._body_pieces)
        self._body_pieces.clear()
        self._bytes_without_body = 0 if body else self._bytes_without_body + len(data)
        if self._bytes_without_body > MAX_BYTES_WITHOUT_BODY and not self._is_complete:
            failure = failure or bad_response_error(response.peer_name, TOO_MANY_HEADERS)
        return body, failure

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer:
            self._timer.cancel()
        response, self._response = self._response, None
        if response is None or self._is_complete:
            return
        is_recent = self._loop.time() - self._sent_at < STALE_SECONDS
        if self._is_reused and is_recent and not self._bytes_received:
            response.fail(StaleConnectionError())
        elif exc is None and not self._in_head and not self._headers.keys() & {"content-length", "transfer-encoding"}:
            response.end()  # without length and chunks, the connection's end is the body's end
        else:
            response.fail(bad_response_error(response.peer_name, CLOSED_EARLY, CUT))

    def _become_idle(self) -> None:
        """Wait for the next request, if the connection can serve one."""
        self._response, self._is_draining = None, False
        # A response can arrive before the whole request was sent, for example a 413. The rest of
        # that request would be read as the start of the next one.
        is_sent = self._transport is not None and not self._transport.get_write_buffer_size()
        if is_sent and self._keep_alive and self.is_usable:
            self._is_reused = True
            self._set_deadline(KEEP_ALIVE_SECONDS)
            self._on_idle(self)
        else:
            self.close()

    # The parser calls these.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise InvalidResponseError("sent more than one response.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are ignored
            self._header_count += 1
            if self._header_count > MAX_HEADERS:
                raise InvalidResponseError(TOO_MANY_HEADERS)
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            before = self._headers.get(key)
            self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        assert self._response is not None  # noqa: S101 - checked before it is fed
        status = self._parser.get_status_code()
        if status == 101 or status < 100:
            raise InvalidResponseError(f"sent an invalid HTTP response (its status is {status}).")
        if status >= 200:
            coding = self._headers.get("transfer-encoding", "chunked").lower()
            if coding != "chunked":
                raise InvalidResponseError(f"sent a body encoded as '{coding[:40]}', which was not requested.")
            self._in_head = False
            self._response.head_received(status, self._headers)
            self._set_deadline(min(self._timeouts.idle, self._timeouts.total))

    def on_chunk_header(self) -> None:
        self._in_chunk = True

    def on_chunk_complete(self) -> None:
        self._in_chunk = False

    def on_message_complete(self) -> None:
        if self._in_head:
            self._headers = {}  # this was a 1xx response: the final one follows
        else:
            self._is_complete = True
            # Ask now: the parser forgets it after this callback.
            self._keep_alive = self._parser.should_keep_alive()

    def _set_deadline(self, seconds: float) -> None:
        """Check for a timeout in some seconds; a timer that fires sooner is left running."""
        self._deadline = self._loop.time() + seconds
        # The due time is stored here, because for a delay under half a millisecond uvloop's
        # `call_at` returns a plain handle, which has no `when()`.
        if self._timer is None or self._timer_due > self._deadline:
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
            self._timer_due = self._deadline

    def _check_deadline(self) -> None:
        """Time out, or set the timer again: reads only note their time, they do not touch it."""
        self._timer = None
        response, now = self._response, self._loop.time()
        if response is None or response.is_over or self._is_complete:
            if now < self._deadline:
                self._set_deadline(self._deadline - now)
            else:
                self.close()  # idle or draining for too long
            return
        if response.waits_for_head:
            since, limit = self._sent_at, self._timeouts.first_byte
        else:
            since, limit = self._last_read_at, self._timeouts.idle
        if response.is_paused or response.is_stepping:
            since = now
        total = self._timeouts.total
        if now >= self._sent_at + total:
            message = f"did not finish within {total:g} seconds."
        elif now >= since + limit:
            message = f"sent nothing for {limit:g} seconds."
        else:
            self._set_deadline(min(since + limit, self._sent_at + total) - now)
            return
        # Without a first byte the provider may still be working on the request, and a retry would
        # be paid for twice. After the first byte it is retryable: a client can resume a stream.
        retryable = self._is_idempotent or not response.waits_for_head
        response.fail(timeout_error(response.peer_name, message, retryable=retryable))
