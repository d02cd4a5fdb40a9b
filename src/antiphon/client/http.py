"""HTTP: requests to one server with its key, retries and connections; responses as event streams.

The data of one read is decoded in one call and waits for the reader. When too much waits, the
connection is paused. A background response whose connection is lost is resumed on another
connection after its last event. Any other response raises the error; its snapshot stays readable.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

from antiphon.adapters.base import MAX_EVENT_BYTES
from antiphon.adapters.errors import redirect_error, redirect_target
from antiphon.adapters.json_access import parse_json
from antiphon.client import errors
from antiphon.client.params import ApiRequest, encode_body
from antiphon.client.stream import EventBuffer, EventSource
from antiphon.protocol.errors import RemoteProtocolError, RequestError, UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.foreign.reader import ForeignReader
from antiphon.protocol.foreign.strict import ForeignChecker
from antiphon.protocol.response import Response
from antiphon.protocol.struct import as_object
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.transport.client import DEFAULT_PORTS, HttpClient, HttpRequest, Transport
from antiphon.transport.connection import Timeouts
from antiphon.transport.response import HttpResponse
from antiphon.transport.retry import RetryPolicy, call_with_retries, retry_delay
from antiphon.wire import json, sse

DEFAULT_BASE_URL = "http://127.0.0.1:8000/v1"

ERROR_BODY_TIMEOUT = 5.0
"""Seconds to wait for the body of an error once its status has arrived."""

MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes of decoded but unread events at which the connection is paused."""

RECONNECT_POLICY = RetryPolicy(retries=5)
"""How often a lost connection is replaced without a new event in between."""

Reopen = Callable[[str, int], Awaitable[HttpResponse]]
"""Opens the rest of a response's stream, given its id and the number of the last event."""


class EventReader(ForeignReader):
    """Reads one stream: frames in, events out, and the response as far as it is known.

    In strict mode the first event that breaks a rule raises RemoteProtocolError. Otherwise the
    stream is repaired as far as possible, and the rest comes as it is.
    """

    def __init__(self, *, strict: bool = False, after: int = -1) -> None:
        checker = ForeignChecker(strict=True, after=after) if strict else None
        super().__init__(read_error=errors.decode_error_payload, checker=checker, after=after)
        self.strict = strict

    def feed_frame(self, data: bytes) -> list[Event]:
        """Read one frame, the JSON of one event; raises RemoteProtocolError in strict mode."""
        try:
            raw = json.decode_foreign(data)
        except (json.JSONError, RecursionError):
            # A text is no event either: it comes out as `antiphon:unreadable`.
            raw = repair_surrogates(data.decode(errors="replace"))
        return self.feed(raw)

    def close(self) -> None:
        """End the stream; raises the reason if the response has not ended."""
        if self.ended:
            return
        # The error event says more than that the stream was cut.
        if self.error is not None:
            raise errors.stream_error(self.error)
        super().close()
        raise errors.stream_cut_error()


def parse_response(body: bytes, server_name: str) -> Response:
    """Read a whole response; raises UpstreamError for anything else."""
    fields = as_object(parse_json(body))
    if not {"id", "output"} & fields.keys():
        if "error" in fields:
            raise errors.stream_error(errors.decode_error_payload(fields))
        raise errors.wrong_body_error(server_name, body, "a response")
    return LENIENT.read_response(fields)


class HttpApi:
    """The HTTP API of one server: base URL, key, headers, timeouts, retries and connections."""

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | Timeouts | None,
        retries: int,
        transport: Transport | None,
    ) -> None:
        self.base_url = _normalize_base_url(base_url or os.environ.get("ANTIPHON_BASE_URL") or DEFAULT_BASE_URL)
        self.timeouts = _build_timeouts(timeout)
        self.retry_policy = RetryPolicy(retries=retries)
        self.server_name = urlsplit(self.base_url).netloc or self.base_url
        """Name of the server in error messages."""
        key = os.environ.get("ANTIPHON_API_KEY") if api_key is None else api_key
        self.api_key = (key or "").strip() or None
        # The headers of the caller win, so that other schemes of authentication are possible.
        auth = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        self.headers = auth | {name.lower(): v for name, v in (headers or {}).items()}
        """Headers of every request: the key, and those of the caller."""
        self._given_transport = transport
        self._own_client: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._responses: WeakSet[HttpResponse] = WeakSet()

    async def send(self, request: ApiRequest, retries: int | None = None) -> HttpResponse:
        """Send a request, with retries; return the response once its status is a success."""
        policy = self.retry_policy if retries is None else RetryPolicy(retries=retries)
        return await call_with_retries(partial(self._send_once, self._build_request(request)), policy)

    async def request_json(self, request: ApiRequest, *, may_be_empty: bool = False) -> object:
        """Send a request; return the JSON of the response. Raises UpstreamError."""
        body = await (await self.send(request)).read_and_release()
        if not body and may_be_empty:
            return None
        try:
            return json.decode_lenient(body)
        except json.JSONError:
            raise errors.wrong_body_error(self.server_name, body, "JSON") from None

    async def delete(self, path: str) -> None:
        """Send a DELETE request. Raises UpstreamError."""
        # 204 No Content is as good as a JSON object that says `deleted`.
        await self.request_json(ApiRequest(method="DELETE", path=path), may_be_empty=True)

    async def close(self) -> None:
        """Close all connections; responses still being read fail."""
        if self._own_client is not None:
            self._own_client.close()
            self._own_client = None
        for response in list(self._responses):
            response.fail(UpstreamError(f"{self.server_name}: the client was closed.", code="closed"))
        # asyncio closes sockets in the next iteration of the loop, which may be its last.
        await asyncio.sleep(0)

    async def _send_once(self, request: HttpRequest) -> HttpResponse:
        response = await self.transport().open(request)
        # Closing a transport is up to the caller who made it.
        if self._given_transport is None:
            self._responses.add(response)
        if 200 <= response.status < 300:
            return response
        status, headers = response.status, response.headers
        # Servers repeat the key in error bodies and redirects: redact it before anyone logs it.
        body = await response.read_and_release_within(ERROR_BODY_TIMEOUT)
        text = errors.redact_credentials(body.decode(errors="replace"), request.headers)
        if location := redirect_target(status, headers, request.url, self.base_url):
            location = errors.redact_credentials(location, request.headers)
            raise redirect_error(self.server_name, status, location)
        raise errors.http_status_error(self.server_name, status, headers, text.encode())

    def _build_request(self, request: ApiRequest) -> HttpRequest:
        query = urlencode(list(request.query))
        body = b"" if request.body is None else encode_body(request.body)
        content_type = {"content-type": "application/json"} if body else {}
        return HttpRequest(
            url=f"{self.base_url}/{request.path}" + (f"?{query}" if query else ""),
            method=request.method,
            headers=content_type | self.headers | dict(request.headers),
            body=body,
            timeouts=self.timeouts,
            peer_name=self.server_name,
        )

    def transport(self) -> Transport:
        """Return the caller's transport, or our own HTTP client of the running loop."""
        if self._given_transport is not None:
            return self._given_transport
        # Connections belong to the loop that opened them: a client that lives through several
        # asyncio.run() calls needs new ones in each.
        loop = asyncio.get_running_loop()
        if self._own_client is None or self._loop is not loop:
            self._own_client, self._loop = HttpClient(self.timeouts), loop
            self._responses.clear()
        return self._own_client


def _normalize_base_url(url: str) -> str:
    """Return the URL to which paths are appended; raises RequestError if it cannot be one."""
    message = f"The base_url is not an http(s) URL. Example: {DEFAULT_BASE_URL}."
    with suppress(ValueError):
        parts = urlsplit(url.strip())
        if parts.scheme in DEFAULT_PORTS and parts.hostname and parts.port != 0:
            if not (parts.query or parts.fragment or "@" in parts.netloc):
                return parts.geturl().rstrip("/")
            message = "The base_url must not have a query, a fragment or a password. "
            message += "Pass credentials as api_key or headers."
    raise RequestError(message, param="base_url", code="invalid_value")


def _build_timeouts(timeout: float | Timeouts | None) -> Timeouts | None:
    if isinstance(timeout, int | float):
        # A long timeout is meant for slow models, not for unreachable hosts.
        connect = min(timeout, Timeouts().connect)
        return Timeouts(connect=connect, first_byte=timeout, idle=timeout)
    return timeout


class HttpEventSource(EventSource):
    """The events of one response, over as many connections as it takes; `id` is that of a resumed response."""

    def __init__(self, http: HttpResponse, reader: EventReader, reopen: Reopen, id: str | None = None) -> None:
        self._http = http
        self._reader = reader
        self._reopen = reopen
        self._id = id
        self._sse_decoder = sse.Decoder(MAX_EVENT_BYTES)
        self._buffer = EventBuffer[Event](MAX_BUFFERED_BYTES)
        self._task = asyncio.create_task(self._read_all())

    @property
    def response(self) -> Response | None:
        return self._reader.response

    async def next_batch(self) -> list[Event]:
        batch = await self._buffer.next_batch()
        if not batch and self._task.done() and not self._task.cancelled():
            self._task.result()  # raises the error of the task
        return batch

    async def close(self) -> None:
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # retrieved, so that asyncio does not log it
        self._task.cancel()
        self._release()

    def _release(self) -> None:
        self._http.release()
        self._buffer.close()

    async def _read_all(self) -> None:
        """Read the stream to its end, over one connection after another."""
        reader, attempts, resumed_id = self._reader, 0, None
        last_number = reader.last_number
        try:
            while not reader.ended:
                try:
                    if resumed_id is not None:
                        await self._reconnect(resumed_id)
                    await self._read_connection()
                except UpstreamError as error:
                    if reader.ended:
                        break  # only bytes after the last event were lost
                    # Progress resets the count, so a long response survives many cuts.
                    if reader.last_number != last_number:
                        attempts, last_number = 0, reader.last_number
                    resumed_id = self._resumable_id()
                    delay = retry_delay(error, attempts, RECONNECT_POLICY, now=time.time())
                    if delay is None or resumed_id is None:
                        raise
                    self._http.release()
                    await asyncio.sleep(delay)
                    attempts += 1
        finally:
            self._release()

    async def _read_connection(self) -> None:
        """Read one connection to its end; raises UpstreamError if the response has not ended."""
        http = self._http
        kind = http.headers.get("content-type", "").lower()
        # Any other content type is tried as a stream: some servers send none, or text/plain.
        if "event-stream" not in kind and ("json" in kind or "html" in kind):
            # OpenAI-compatible servers without streaming ignore `stream: true`.
            body = await http.read()
            if self._reader.strict:
                raise RemoteProtocolError("The response is not an event stream.")
            self._buffer.write(self._reader.feed_response(parse_response(body, http.peer_name)))
            return
        http.subscribe(self._feed)
        # wait() returns False while the response is paused: the reader has to catch up first.
        while not await http.wait():
            await self._buffer.drain()
            http.resume()
        self._feed(None)
        try:
            self._reader.close()
        except RemoteProtocolError:
            if self._resumable_id() is None:
                raise
            # The events are incomplete, not wrong: the next connection brings the rest.
            raise errors.stream_cut_error() from None

    async def _reconnect(self, id: str) -> None:
        self._http = await self._reopen(id, self._reader.last_number)
        # A frame may have been cut in two: the server sends its event again.
        self._sse_decoder = sse.Decoder(MAX_EVENT_BYTES)
        self._reader.reconnect()

    def _resumable_id(self) -> str | None:
        """Return the id of a response that the server continues without a reader."""
        response = self._reader.response
        return response.id if response and response.background and response.id else self._id

    def _feed(self, data: bytes | None) -> None:
        """Decode the data of one read; None stands for the end of the stream."""
        try:
            frames = self._sse_decoder.close() if data is None else self._sse_decoder.feed(data)
        except sse.StreamError as error:
            raise errors.invalid_response_error(self._http.peer_name, str(error)) from None
        reader, events = self._reader, list[Event]()
        try:
            for frame in frames:
                if frame.data == sse.DONE:
                    self._http.stop()
                    break
                events += reader.feed_frame(frame.data)
        finally:
            # Also when a frame raises: the events before it are still delivered.
            self._buffer.write(events, len(data or b""))
        # In strict mode events after the last one are a violation, so they are waited for.
        if reader.ended and not reader.strict:
            self._http.stop()
        if data is not None and self._buffer.full:
            self._http.pause()
