"""One connection to an upstream: one request at a time, and its answer pushed as it comes.

Everything that arrives in one read is given on in one call. Nothing is awaited here.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
from msgspec import Struct

from antiphon.core.errors import UpstreamError
from antiphon.transport.errors import CUT, Invalid, broken, late
from antiphon.transport.exchange import MAX_BODY, Exchange, endless

MAX_SILENCE = 64 * 1024
"""How many bytes may come that hold no body: a head, trailers, the sizes of chunks."""

MAX_HEADERS = 256

END = b"\r\n"
"""What ends a chunk, and the line that says how long it is."""

LINGER_SECONDS = 1.0
"""How long the end of an answer may take that nobody listens to any more."""

STALE_SECONDS = 2.0
"""How soon a kept connection must break for its request to have come too late to be read."""

IDLE_SECONDS = 20.0
"""How long a connection may wait for its next request; servers forget them sooner or later."""

LEFT = "closed the connection before its answer was whole."


class Timeouts(Struct, frozen=True):
    """How long a provider may take to accept, to begin to answer, to go on, and to be done."""

    connect: float = 10
    first_byte: float = 600
    idle: float = 300
    total: float = 3600


class Stale(Exception):
    """A kept connection was closed before it carried a byte of the answer."""


class Connection(asyncio.Protocol):
    """One connection; it is handed to `keep` whenever it is free for another request."""

    def __init__(self, keep: Callable[["Connection"], None]) -> None:
        self._keep = keep
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._exchange: Exchange | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0
        """When the timer fires, in the loop's time."""
        self._until = 0.0
        """When there is nothing more to wait for, if nothing happens."""
        self._timeouts = Timeouts()
        self._asked = self._heard = 0.0
        self._repeatable = False
        self._used = False
        self._silent = True
        self._headers: dict[str, str] = {}
        self._in_head = True
        self._lines = 0
        self._bodiless = 0
        self._weight = 0
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        """Takes a piece of the body, for the parser."""
        self._in_chunk = True
        """Whether what comes next is not the beginning of a chunk, as far as the parser knows."""
        self._between = False
        """Whether everything that was read ends with the end of a chunk."""
        self._complete = False
        self._lasting = False
        self._lingering = False

    # --- for the client ---

    def ask(
        self, request: bytes, timeouts: Timeouts, who: str, *, repeatable: bool = False
    ) -> Exchange:
        """Send a request; return its answer, of which nothing has come yet.

        A request is `repeatable` if sending it twice does no more than sending it once.
        """
        exchange = Exchange(self, who)
        if self._transport is None or self._transport.is_closing():
            exchange.fail(broken(who, LEFT, CUT))  # as soon as it was open
            return exchange
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._timeouts, self._repeatable = timeouts, repeatable
        self._headers, self._in_head = {}, True
        self._lines = self._bodiless = self._weight = 0
        self._in_chunk, self._between = True, False
        self._complete, self._silent, self._lasting = False, True, False
        self._asked = self._heard = self._loop.time()
        self._watch(min(timeouts.first_byte, timeouts.total))
        self._transport.write(request)
        return exchange

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    # --- for the exchange ---

    def release(self, exchange: Exchange) -> None:
        """Be free once the answer has come whole; if it is still wanted, close at once."""
        if exchange is not self._exchange:
            return  # it was let go before, and this may serve another by now
        if exchange.over and self._complete:
            self._rest()
        elif exchange.over and self.is_usable:
            self._lingering = True
            self._watch(LINGER_SECONDS)
        else:
            self._exchange = None
            self.close()

    def pause(self) -> None:
        """Read no more."""
        if self._transport and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._heard = self._loop.time()
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
        exchange, size = self._exchange, len(data)
        if exchange is None or self._complete:
            self.close()  # nobody asked
            return
        self._heard = self._loop.time()
        self._weight += size
        if self._weight > MAX_BODY:
            exchange.fail(endless(exchange.who))
            return
        body = failure = None
        if self._between and data.endswith(END):
            # So it is nearly always in a stream: one chunk, which the parser need not see.
            start = data.find(END) + 2
            if start < size - 2 and data.startswith(b"%x\r\n" % (size - start - 2)):
                body = data[start:-2]
        if body is None:
            body, failure = self._parsed(exchange, data)
        if body:
            try:
                exchange.body_received(body)
            except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
                exchange.broke(error)
        if self._complete:
            self._lasting = self._lasting and failure is None  # or else more came than was asked
            self._ended(exchange)
        elif failure:
            exchange.fail(failure)

    def _parsed(self, exchange: Exchange, data: bytes) -> tuple[bytes, UpstreamError | None]:
        """Have the parser read what came; return what it has of the body, and what is wrong."""
        assert self._parser is not None  # noqa: S101 - somebody has asked
        self._silent, failure = False, None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            failure = _blamed(exchange.who, error)
        self._between = not self._in_chunk and data.endswith(END)
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._bodiless = 0 if body else self._bodiless + len(data)
        if self._bodiless > MAX_SILENCE and not self._complete:
            failure = failure or broken(exchange.who, "sent endless headers.")
        return body, failure

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self._transport = None
        if self._timer:
            self._timer.cancel()
        exchange, self._exchange = self._exchange, None
        if exchange is None or self._complete:
            return
        if self._silent and self._used and self._loop.time() - self._asked < STALE_SECONDS:
            exchange.fail(Stale())
        elif exc is None and not self._in_head and not self._is_framed():
            exchange.end()  # an answer whose end is the connection's
        else:
            exchange.fail(broken(exchange.who, LEFT, CUT))

    def _is_framed(self) -> bool:
        return "content-length" in self._headers or "transfer-encoding" in self._headers

    def _ended(self, exchange: Exchange) -> None:
        exchange.end()
        if self._lingering:
            self._rest()

    def _rest(self) -> None:
        """Wait for the next request, if there can be one."""
        self._exchange, self._lingering = None, False
        sent = self._transport is not None and not self._transport.get_write_buffer_size()
        if sent and self._lasting and self.is_usable:
            self._used = True
            self._watch(IDLE_SECONDS)
            self._keep(self)
        else:
            self.close()

    # --- for the parser ---

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self._complete:
            raise Invalid("sent more than one answer.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header; what follows a body is ignored."""
        if self._in_head:
            self._lines += 1
            if self._lines > MAX_HEADERS:
                raise Invalid("sent endless headers.")
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            before = self._headers.get(key)
            self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        """Take the head, unless it only announces one."""
        assert self._parser is not None  # noqa: S101 - it calls us
        assert self._exchange is not None  # noqa: S101 - checked before it is fed
        status = self._parser.get_status_code()
        if status == 101 or status < 100:
            raise Invalid(f"sent no valid HTTP answer (its status is {status}).")
        if status >= 200:
            coding = self._headers.get("transfer-encoding", "chunked").lower()
            if coding != "chunked":
                raise Invalid(f"sent a body coded as '{coding[:40]}', unasked.")
            self._in_head = False
            self._exchange.head_received(status, self._headers)
            self._watch(min(self._timeouts.idle, self._timeouts.total))

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
            self._complete = True
            self._lasting = self._parser.should_keep_alive()  # it does not know later

    # --- time ---

    def _watch(self, seconds: float) -> None:
        """Look in some seconds whether it took too long; a timer that rings sooner is kept."""
        self._until = self._loop.time() + seconds
        # The time is kept here: for a delay under half a millisecond uvloop's `call_at` returns a
        # plain handle, which has no `when()`.
        if self._timer is None or self._timer_due > self._until:
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._until, self._check)
            self._timer_due = self._until

    def _check(self) -> None:
        self._timer = None
        exchange, now = self._exchange, self._loop.time()
        if exchange is None or exchange.over or self._complete:
            if now < self._until:
                self._watch(self._until - now)
            else:
                self.close()  # it has rested, or its end was waited for, long enough
            return
        if exchange.waits_for_head:
            since, limit = self._asked, self._timeouts.first_byte
        else:
            since, limit = self._heard, self._timeouts.idle
        if exchange.paused:
            since = now
        total = self._timeouts.total
        if now >= self._asked + total:
            self._blame(exchange, f"was not done after {total:g} seconds.")
        elif now >= since + limit:
            self._blame(exchange, f"said nothing for {limit:g} seconds.")
        else:
            self._watch(min(since + limit, self._asked + total) - now)

    def _blame(self, exchange: Exchange, message: str) -> None:
        """End an answer that takes too long.

        One that has not begun may be in the making, and is paid for: it is not asked for again,
        unless asking is free. One that was being heard may be gone on with.
        """
        retryable = self._repeatable or not exchange.waits_for_head
        exchange.fail(late(exchange.who, message, retryable=retryable))


def _blamed(who: str, error: Exception) -> UpstreamError:
    """Say what one of our own callbacks refused, or else what the parser did."""
    refused = error.__context__
    why = str(refused) if isinstance(refused, Invalid) else f"sent no valid HTTP answer ({error})."
    return broken(who, why)
