"""One connection to an upstream: one request at a time, and its answer pushed as it comes.

Everything that arrives in one read is given on in one call. Nothing is awaited here.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
from msgspec import Struct

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.errors import (
    CUT,
    InvalidResponseError,
    bad_response_error,
    timeout_error,
)
from antiphon.transport.response import MAX_BODY, HttpResponse, endless_body_error

MAX_BYTES_WITHOUT_BODY = 64 * 1024
"""How many bytes may come that hold no body: a head, trailers, the sizes of chunks."""

MAX_HEADERS = 256

CRLF = b"\r\n"
"""What ends a chunk, and the line that says how long it is."""

DRAIN_SECONDS = 1.0
"""How long the end of an answer may take that nobody listens to any more."""

STALE_SECONDS = 2.0
"""How soon a kept connection must break for its request to have come too late to be read."""

KEEP_ALIVE_SECONDS = 20.0
"""How long a connection may wait for its next request; servers forget them sooner or later."""

CLOSED_EARLY = "closed the connection before its answer was whole."


class Timeouts(Struct, frozen=True):
    """How long a provider may take to accept, to begin to answer, to go on, and to be done."""

    connect: float = 10
    first_byte: float = 600
    idle: float = 300
    total: float = 3600


class StaleConnectionError(Exception):
    """A kept connection was closed before it carried a byte of the answer."""


class HttpConnection(asyncio.Protocol):
    """One connection; it is handed to `keep` whenever it is free for another request."""

    def __init__(self, on_idle: Callable[["HttpConnection"], None]) -> None:
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._response: HttpResponse | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0
        """When the timer fires, in the loop's time."""
        self._deadline = 0.0
        """When there is nothing more to wait for, if nothing happens."""
        self._timeouts = Timeouts()
        self._sent_at = self._last_read_at = 0.0
        self._is_idempotent = False
        self._is_reused = False
        self._awaits_first_byte = True
        self._headers: dict[str, str] = {}
        self._in_head = True
        self._header_count = 0
        self._bytes_without_body = 0
        self._bytes_received = 0
        self._body_pieces: list[bytes] = []
        self.on_body = self._body_pieces.append
        """Takes a piece of the body, for the parser."""
        self._in_chunk = True
        """Whether what comes next is not the beginning of a chunk, as far as the parser knows."""
        self._at_chunk_boundary = False
        """Whether everything that was read ends with the end of a chunk."""
        self._is_complete = False
        self._keep_alive = False
        self._is_draining = False

    # --- for the client ---

    def send(
        self, request: bytes, timeouts: Timeouts, peer_name: str, *, idempotent: bool = False
    ) -> HttpResponse:
        """Send a request; return its answer, of which nothing has come yet.

        A request is `repeatable` if sending it twice does no more than sending it once.
        """
        exchange = HttpResponse(self, peer_name)
        if self._transport is None or self._transport.is_closing():
            exchange.fail(
                bad_response_error(peer_name, CLOSED_EARLY, CUT)
            )  # as soon as it was open
            return exchange
        self._response = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._timeouts, self._is_idempotent = timeouts, idempotent
        self._headers, self._in_head = {}, True
        self._header_count = self._bytes_without_body = self._bytes_received = 0
        self._in_chunk, self._at_chunk_boundary = True, False
        self._is_complete, self._awaits_first_byte, self._keep_alive = False, True, False
        self._sent_at = self._last_read_at = self._loop.time()
        self._set_deadline(min(timeouts.first_byte, timeouts.total))
        self._transport.write(request)
        return exchange

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    # --- for the exchange ---

    def release(self, response: HttpResponse) -> None:
        """Be free once the answer has come whole; if it is still wanted, close at once."""
        if response is not self._response:
            return  # it was let go before, and this may serve another by now
        if response.is_over and self._is_complete:
            self._become_idle()
        elif response.is_over and self.is_usable:
            self._is_draining = True
            self._set_deadline(DRAIN_SECONDS)
        else:
            self._response = None
            self.close()

    def pause(self) -> None:
        """Read no more."""
        if self._transport and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._last_read_at = self._loop.time()
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once, whatever is under way."""
        if self._timer:
            self._timer.cancel()
        if self._transport:
            self._transport.abort()

    # --- for the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no common class

    def data_received(self, data: bytes) -> None:
        """Give on what has come of an answer's body, in one piece."""
        exchange, size = self._response, len(data)
        if exchange is None or self._is_complete:
            self.close()  # nobody asked
            return
        self._last_read_at = self._loop.time()
        self._bytes_received += size
        if self._bytes_received > MAX_BODY:
            exchange.fail(endless_body_error(exchange.peer_name))
            return
        body = failure = None
        if self._at_chunk_boundary and data.endswith(CRLF):
            # So it is nearly always in a stream: one chunk, which the parser need not see.
            start = data.find(CRLF) + 2
            if start < size - 2 and data.startswith(b"%x\r\n" % (size - start - 2)):
                body = data[start:-2]
        if body is None:
            body, failure = self._parse(exchange, data)
        if body:
            try:
                exchange.body_received(body)
            except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
                exchange.fail_in_reader(error)
        if self._is_complete:
            self._keep_alive = (
                self._keep_alive and failure is None
            )  # or else more came than was asked
            self._finish_response(exchange)
        elif failure:
            exchange.fail(failure)

    def _parse(self, response: HttpResponse, data: bytes) -> tuple[bytes, UpstreamError | None]:
        """Have the parser read what came; return what it has of the body, and what is wrong."""
        assert self._parser is not None  # noqa: S101 - somebody has asked
        self._awaits_first_byte, failure = False, None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            failure = _parser_error(response.peer_name, error)
        self._at_chunk_boundary = not self._in_chunk and data.endswith(CRLF)
        body = b"".join(self._body_pieces)
        self._body_pieces.clear()
        self._bytes_without_body = 0 if body else self._bytes_without_body + len(data)
        if self._bytes_without_body > MAX_BYTES_WITHOUT_BODY and not self._is_complete:
            failure = failure or bad_response_error(response.peer_name, "sent endless headers.")
        return body, failure

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self._transport = None
        if self._timer:
            self._timer.cancel()
        exchange, self._response = self._response, None
        if exchange is None or self._is_complete:
            return
        if (
            self._awaits_first_byte
            and self._is_reused
            and self._loop.time() - self._sent_at < STALE_SECONDS
        ):
            exchange.fail(StaleConnectionError())
        elif exc is None and not self._in_head and not self._is_framed():
            exchange.end()  # an answer whose end is the connection's
        else:
            exchange.fail(bad_response_error(exchange.peer_name, CLOSED_EARLY, CUT))

    def _is_framed(self) -> bool:
        return "content-length" in self._headers or "transfer-encoding" in self._headers

    def _finish_response(self, response: HttpResponse) -> None:
        response.end()
        if self._is_draining:
            self._become_idle()

    def _become_idle(self) -> None:
        """Wait for the next request, if there can be one."""
        self._response, self._is_draining = None, False
        sent = self._transport is not None and not self._transport.get_write_buffer_size()
        if sent and self._keep_alive and self.is_usable:
            self._is_reused = True
            self._set_deadline(KEEP_ALIVE_SECONDS)
            self._on_idle(self)
        else:
            self.close()

    # --- for the parser ---

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self._is_complete:
            raise InvalidResponseError("sent more than one answer.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header; what follows a body is ignored."""
        if self._in_head:
            self._header_count += 1
            if self._header_count > MAX_HEADERS:
                raise InvalidResponseError("sent endless headers.")
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            before = self._headers.get(key)
            self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        """Take the head, unless it only announces one."""
        assert self._parser is not None  # noqa: S101 - it calls us
        assert self._response is not None  # noqa: S101 - checked before it is fed
        status = self._parser.get_status_code()
        if status == 101 or status < 100:
            raise InvalidResponseError(f"sent no valid HTTP answer (its status is {status}).")
        if status >= 200:
            coding = self._headers.get("transfer-encoding", "chunked").lower()
            if coding != "chunked":
                raise InvalidResponseError(f"sent a body coded as '{coding[:40]}', unasked.")
            self._in_head = False
            self._response.head_received(status, self._headers)
            self._set_deadline(min(self._timeouts.idle, self._timeouts.total))

    def on_chunk_header(self) -> None:
        """Take note that a chunk has begun."""
        self._in_chunk = True

    def on_chunk_complete(self) -> None:
        """Take note that a chunk has ended."""
        self._in_chunk = False

    def on_message_complete(self) -> None:
        """Take note of the end."""
        assert self._parser is not None  # noqa: S101 - it calls us
        if self._in_head:
            self._headers = {}  # of a 1xx
        else:
            self._is_complete = True
            self._keep_alive = self._parser.should_keep_alive()  # it does not know later

    # --- time ---

    def _set_deadline(self, seconds: float) -> None:
        """Look in some seconds whether it took too long; a timer that rings sooner is kept."""
        self._deadline = self._loop.time() + seconds
        # The time is kept here: for a delay under half a millisecond uvloop's `call_at` returns a
        # plain handle, which has no `when()`.
        if self._timer is None or self._timer_due > self._deadline:
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
            self._timer_due = self._deadline

    def _check_deadline(self) -> None:
        self._timer = None
        exchange, now = self._response, self._loop.time()
        if exchange is None or exchange.is_over or self._is_complete:
            if now < self._deadline:
                self._set_deadline(self._deadline - now)
            else:
                self.close()  # it has rested, or its end was waited for, long enough
            return
        if exchange.waits_for_head:
            since, limit = self._sent_at, self._timeouts.first_byte
        else:
            since, limit = self._last_read_at, self._timeouts.idle
        if exchange.is_paused:
            since = now
        total = self._timeouts.total
        if now >= self._sent_at + total:
            self._fail_with_timeout(exchange, f"was not done after {total:g} seconds.")
        elif now >= since + limit:
            self._fail_with_timeout(exchange, f"said nothing for {limit:g} seconds.")
        else:
            self._set_deadline(min(since + limit, self._sent_at + total) - now)

    def _fail_with_timeout(self, response: HttpResponse, message: str) -> None:
        """End an answer that takes too long.

        One that has not begun may be in the making, and is paid for: it is not asked for again,
        unless asking is free. One that was being heard may be gone on with.
        """
        retryable = self._is_idempotent or not response.waits_for_head
        response.fail(timeout_error(response.peer_name, message, retryable=retryable))


def _parser_error(peer_name: str, error: Exception) -> UpstreamError:
    """Say what one of our own callbacks refused, or else what the parser did."""
    refused = error.__context__
    why = (
        str(refused)
        if isinstance(refused, InvalidResponseError)
        else f"sent no valid HTTP answer ({error})."
    )
    return bad_response_error(peer_name, why)
