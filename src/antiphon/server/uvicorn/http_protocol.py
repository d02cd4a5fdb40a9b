"""uvicorn's HTTP/1.1 protocol with timeouts and size limits.

uvicorn itself waits without limit for headers, for a body, and for a client to read. This subclass
rejects such requests with an error in the specification's format. With pipelining, the error is
sent after the responses to the earlier requests on the same connection. A request head that two
servers could read differently is rejected, because it could smuggle a second request past a proxy.
"""

import logging
import re
import secrets
import socket
from asyncio import AbstractEventLoop, Protocol, TimerHandle, Transport
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from httptools import HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from antiphon.protocol import struct
from antiphon.protocol.errors import RequestError
from antiphon.server.asgi import DIRECT_WRITE_KEY, Scope, server_busy_error
from antiphon.server.cors import CrossOriginPolicy
from antiphon.server.uvicorn.connection import ClientConnection, ConnectionLimits, cancel_timer
from antiphon.server.uvicorn.direct_write import ChunkWriter, HeaderBuffer

logger = logging.getLogger("antiphon.server")

Headers = Sequence[tuple[bytes, bytes]]

_TARGET_PATTERN = re.compile(rb"(?:[a-z][a-z0-9+.-]*://([^/?#]*))?/|\*$", re.IGNORECASE)
_HOST_PATTERN = re.compile(rb"[a-z0-9._~!$&'()*+,;=%:\[\]-]*", re.IGNORECASE)
_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")


def invalid_http_error(message: str) -> RequestError:
    return RequestError(message, code="invalid_http", status=HTTPStatus.BAD_REQUEST)


def request_timeout_error(reason: str) -> RequestError:
    message = f"The request's {reason}. Send it again, without pauses."
    return RequestError(message, code="request_timeout", status=HTTPStatus.REQUEST_TIMEOUT)


def encode_error_response(error: RequestError, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Encode an error as an HTTP response that closes its connection; `headers` come first."""
    # Below ASGI: no middleware has given the request an id, and its door is not known yet, so the
    # error has the specification's format.
    request_id = f"req_{secrets.token_hex(16)}"
    logger.info("%s rejected with %d: %s", request_id, error.status, error)
    body = struct.encode({"error": error.payload})
    lines = [
        b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode()),
        *(b"%b: %b" % header for header in headers),
        *(f"{name}: {value}".encode() for name, value in error.headers.items()),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
        b"x-request-id: %b" % request_id.encode(),
    ]
    return b"\r\n".join([*lines, b"", body])


def check_request_head(version: str, target: bytes, headers: Headers) -> None:
    """Raise RequestError if a head is ambiguous; header names are in lower case."""
    if version not in ("1.0", "1.1"):
        raise invalid_http_error(f"HTTP/{version} is not supported. Use HTTP/1.1.")
    if version == "1.0" and any(name == b"transfer-encoding" for name, _ in headers):
        raise invalid_http_error("HTTP/1.0 has no Transfer-Encoding. Use HTTP/1.1.")
    form = _TARGET_PATTERN.match(target)
    if form is None:
        raise invalid_http_error("The request target is not a path. Use one, as /v1/responses.")
    # RFC 9112, 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1
    # request message that lacks a Host header field and to any request message that contains
    # more than one Host header field line or a Host header field with an invalid field value."
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise invalid_http_error(f"The request has {len(hosts)} Host headers. Send exactly one.")
    if not all(_HOST_PATTERN.fullmatch(host) for host in hosts):
        raise invalid_http_error("The Host header is not a host. Send only the URL's host and port.")
    if hosts and form[1] is not None and form[1].lower() != hosts[0].lower():
        raise invalid_http_error("The request target and Host differ. Send only a path as target.")


def check_upgrade_request(headers: Headers) -> None:
    """Raise RequestError if an upgrade has a body."""
    # httptools would parse that body as the next request.
    if any(name in _FRAMING_HEADERS and value != b"0" for name, value in headers):
        raise invalid_http_error("A request with a body cannot upgrade. Send it without Upgrade.")


def headers_too_large_error(limits: ConnectionLimits) -> RequestError:
    return RequestError(
        f"The request line and headers exceed {limits.header_bytes} bytes or {limits.header_count} headers. "
        "Send fewer or shorter ones.",
        code="headers_too_large",
        status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    )


def http_protocol(limits: ConnectionLimits, allowed_origins: Sequence[str] = ()) -> type[Protocol]:
    """Return the protocol class for `uvicorn.Config(http=...)`."""
    # A partial, because uvicorn pickles its configuration for its workers, and a class defined
    # inside a function cannot be pickled. uvicorn only ever calls it.
    return cast(
        "type[Protocol]", partial(HardenedHttpProtocol, limits=limits, cross_origin=CrossOriginPolicy(allowed_origins))
    )


class ConnectionPhase(Enum):
    """What the server waits for on a connection."""

    OPEN = auto()  # the first byte
    HEAD = auto()  # the rest of the headers
    BODY = auto()  # the rest of the body
    IDLE = auto()  # nothing; the client may start another request
    CLOSED = auto()  # nothing more is read: rejected, upgraded or disconnected


class PausableFlowControl(FlowControl):
    """Flow control with a clock that stops while the server, not the client, pauses reading."""

    def __init__(self, transport: Transport, loop: AbstractEventLoop, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._loop = loop
        self._on_resume = on_resume
        self._paused_at = self._paused_total = 0.0

    def now(self) -> float:
        """Return the loop's time minus the time in which reading was paused."""
        return (self._paused_at if self.read_paused else self._loop.time()) - self._paused_total

    def pause_reading(self) -> None:
        if not self.read_paused:
            self._paused_at = self._loop.time()
        super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._paused_total += self._loop.time() - self._paused_at
            super().resume_reading()
            self._on_resume()


class HardenedHttpProtocol(ClientConnection, HttpToolsProtocol):
    """One HTTP connection to an untrusted client."""

    piece_size = 16384
    parser: HttpRequestParser  # uvicorn sets it to None when the connection is lost

    def __init__(self, *, limits: ConnectionLimits, cross_origin: CrossOriginPolicy, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.limits = limits
        self.cross_origin = cross_origin
        self.timeout_keep_alive = limits.keep_alive_seconds
        self.phase = ConnectionPhase.OPEN
        # Both by the pausable clock, which does not count time that the server itself took.
        self.phase_started_at = self.last_data_at = 0.0
        self.unframed_bytes = 0
        """Bytes since the start of the message, or since the last chunk of its body."""
        self.header_size = 0
        """Size of the current message's headers in bytes."""
        self.read_timer: TimerHandle | None = None
        # uvicorn's own `cycle` is the newest request; with pipelining an older one is answered.
        self.active_cycle: RequestResponseCycle | None = None
        self.pending_error: RequestError | None = None
        """The error to send when the earlier requests on the connection are answered."""

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        HttpToolsProtocol.connection_made(self, transport)
        self.flow = self.clock = PausableFlowControl(transport, self.loop, self.continue_parsing)
        # A small kernel buffer: backpressure must reach the model, not fill megabytes per client.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.write_buffer)
        transport.set_write_buffer_limits(high=self.limits.write_buffer)
        self._enter_phase(ConnectionPhase.OPEN)
        self._start_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()
        if self.active_cycle is not None:
            _mark_disconnected(self.active_cycle)  # uvicorn informs the newest request only
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._finish()
        super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.active_cycle = cycle
        cycle.transport = cast("Transport", HeaderBuffer(cycle, self.loop))
        writer = ChunkWriter(cycle, self.loop)
        cycle.scope[DIRECT_WRITE_KEY] = (cycle.send, writer)  # pyright: ignore[reportGeneralTypeIssues]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        last = not self.pipeline
        if self.active_cycle is not None and isinstance(self.active_cycle.transport, HeaderBuffer):
            self.active_cycle.transport.flush()  # the response to a HEAD request has no body
        super().on_response_complete()
        self.start_write_timer()
        if last and self.pending_error is not None:
            self._close(self.pending_error)

    @property
    def is_responding(self) -> bool:
        return self.active_cycle is not None and not self.active_cycle.response_complete

    @property
    def is_paused(self) -> bool:
        return self.flow.read_paused

    def parse(self, data: memoryview) -> None:
        if self.phase is ConnectionPhase.CLOSED:
            return
        self.last_data_at = self.clock.now()
        self.unframed_bytes += len(data)
        HttpToolsProtocol.data_received(self, cast("bytes", data))
        if self.phase is ConnectionPhase.HEAD or self.phase is ConnectionPhase.BODY:
            # Catches heads, chunk extensions and trailers that never end.
            if self.unframed_bytes > self.limits.header_bytes:
                self._reject(headers_too_large_error(self.limits))
            elif self.read_timer is None:
                self._start_read_timer()
        elif self.phase is ConnectionPhase.IDLE and not self.is_responding:
            # Blank lines, or the end of a body that the app did not read, stop uvicorn's own timer.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.unframed_bytes = self.header_size = 0
        if self.phase is ConnectionPhase.OPEN:
            self.phase = ConnectionPhase.HEAD  # its time is counted from the connection's start
        else:
            self._enter_phase(ConnectionPhase.HEAD)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Any other header is a trailer, which would change headers that the app has already read.
        if self.phase is ConnectionPhase.HEAD:
            self.header_size += len(name) + len(value) + 4
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        try:
            self._check_head()
        except RequestError as error:
            self._reject(error)
            raise  # through the parser, so that it stops parsing
        super().on_headers_complete()
        self._enter_phase(ConnectionPhase.BODY)
        # uvicorn would read nothing more during the earlier response, not even that the client left.
        if self.cycle is not self.active_cycle:
            self.clock.resume_reading()
        if self.expect_100_continue:
            self.clock.pause_reading()  # the client waits for our 100; `receive` resumes reading

    def _check_head(self) -> None:
        size = len(self.url) + self.header_size
        # Not for `/healthz`: a process with many clients is alive.
        if len(self.connections) > self.limits.connections and not self.url.endswith(b"/healthz"):
            raise server_busy_error("too many connections")
        if size > self.limits.header_bytes or len(self.headers) > self.limits.header_count:
            raise headers_too_large_error(self.limits)
        check_request_head(self.parser.get_http_version(), self.url, self.headers)
        if self.parser.should_upgrade():
            check_upgrade_request(self.headers)
        allowed = 0 if self.parser.should_upgrade() else self.limits.pipelined
        if self.is_responding and len(self.pipeline) >= allowed:
            message = "Too many pipelined requests. Read the responses to the earlier ones first."
            raise invalid_http_error(message)

    def on_body(self, body: bytes) -> None:
        self.unframed_bytes = 0
        self.parsed_units += 1
        if self.cycle is not self.active_cycle and len(self.cycle.body) + len(body) > HIGH_WATER_LIMIT:
            reason = f"The body of a pipelined request exceeds {HIGH_WATER_LIMIT} bytes"
            error = invalid_http_error(f"{reason}. Read the responses to the earlier ones first.")
            self._reject(error)
            raise error  # through the parser, so that it stops parsing
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._enter_phase(ConnectionPhase.IDLE)

    def _enter_phase(self, phase: ConnectionPhase) -> None:
        self.phase = phase
        self.phase_started_at = self.last_data_at = self.clock.now()
        self.read_timer = cancel_timer(self.read_timer)

    def _finish(self) -> None:
        self._enter_phase(ConnectionPhase.CLOSED)
        self.pending_error = None
        self.write_timer = cancel_timer(self.write_timer)

    def _seconds_left(self) -> float:
        deadline = self.phase_started_at + self.limits.header_seconds
        if self.phase is ConnectionPhase.BODY:
            stall = self.last_data_at + self.limits.body_stall_seconds
            deadline = min(stall, self.phase_started_at + self.limits.body_total_seconds)
        return deadline - self.clock.now()

    def _start_read_timer(self) -> None:
        # While the clock is stopped the time left does not change: check now and then only.
        wait = self.limits.body_stall_seconds if self.clock.read_paused else self._seconds_left()
        self.read_timer = self.loop.call_later(wait, self._check_read_timeout)

    def _check_read_timeout(self) -> None:
        self.read_timer = None
        if self._seconds_left() > 0:
            self._start_read_timer()
        elif self.phase is ConnectionPhase.OPEN:
            self._close()
        elif self.phase is ConnectionPhase.HEAD:
            seconds = self.limits.header_seconds
            self._reject(request_timeout_error(f"headers took over {seconds:g} seconds"))
        elif self.cycle.response_started and not self.cycle.response_complete:
            self.cycle.keep_alive = False  # a response that did not need the body may finish
        else:
            stall, total = self.limits.body_stall_seconds, self.limits.body_total_seconds
            reason = f"body paused for {stall:g} or took over {total:g} seconds"
            self._reject(request_timeout_error(reason))

    def pause_writing(self) -> None:
        super().pause_writing()
        self.start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.start_write_timer()

    def waits_for_client(self) -> bool:
        app_writes = self.is_responding and not self.flow.write_paused and not self.transport.is_closing()
        return not app_writes and super().waits_for_client()

    def send_400_response(self, msg: str) -> None:
        """Reject a request that the parser could not read; called by uvicorn."""
        advice = "Check its lines and its framing: one Content-Length or chunked, never both."
        self._reject(invalid_http_error(f"This is not a valid HTTP/1.1 request. {advice}"))

    def _reject(self, error: RequestError) -> None:
        """Stop reading; send the error after the earlier responses, and close."""
        phase = self.phase
        if phase is ConnectionPhase.CLOSED:
            return
        self._enter_phase(ConnectionPhase.CLOSED)
        if phase is ConnectionPhase.BODY and self.cycle is self.active_cycle:
            _mark_disconnected(self.cycle)
            self._close(None if self.cycle.response_started else error)
            return
        if phase is ConnectionPhase.BODY:
            self.pipeline.popleft()  # uvicorn adds the newest request on the left
        self.pending_error = error
        if not self.is_responding:
            self._close(error)

    def _close(self, error: RequestError | None = None) -> None:
        if error is not None and not self.transport.is_closing():
            # The headers of the request, as far as they were read: a page may read its errors, too.
            scope: Scope = {"headers": self.headers or []}
            headers = [*self.server_state.default_headers, *self.cross_origin.headers(scope)]
            self.transport.write(encode_error_response(error, headers))
        self.transport.close()
        self.start_write_timer()


def _mark_disconnected(cycle: RequestResponseCycle) -> None:
    """Make `receive` return `http.disconnect`, and have `send` discard its messages."""
    cycle.disconnected = True
    cycle.message_event.set()
