"""The way to one server: its address, our key, its connections, and our patience with it."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from urllib.parse import SplitResult, urlencode, urlsplit
from weakref import WeakSet

from antiphon.adapters.errors import redirect_error, redirect_target
from antiphon.client.errors import http_status_error, redact_credentials, unexpected_body_error
from antiphon.client.params import ApiRequest, encode_body
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.transport.client import DEFAULT_PORTS, HttpRequest, Transport
from antiphon.transport.client import HttpClient as HttpClient
from antiphon.transport.connection import Timeouts
from antiphon.transport.response import HttpResponse
from antiphon.transport.retry import RetryPolicy, call_with_retries
from antiphon.wire import json

DEFAULT_BASE_URL = "http://127.0.0.1:8000/v1"

ERROR_BODY_TIMEOUT = 5.0
"""How long a server may take to say why it refuses, once its status has come."""


class HttpApi:
    """A server that can be asked."""

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | Timeouts | None,
        retries: int,
        transport: Transport | None,
    ) -> None:
        self.base_url = _normalize_base_url(
            base_url or os.environ.get("ANTIPHON_BASE_URL") or DEFAULT_BASE_URL
        )
        self.timeouts = _build_timeouts(timeout)
        self.retry_policy = RetryPolicy(retries=retries)
        self.server_name = urlsplit(self.base_url).netloc or self.base_url
        """The server's name in our errors."""
        given = os.environ.get("ANTIPHON_API_KEY") if api_key is None else api_key
        self.api_key = (given or "").strip() or None
        shown = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        self.headers = shown | {name.lower(): v for name, v in (headers or {}).items()}
        """What every request says beside its own: who asks, and what the caller added."""
        self._given_transport = transport
        self._own_client: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exchanges: WeakSet[HttpResponse] = WeakSet()

    async def send(self, request: ApiRequest, retries: int | None = None) -> HttpResponse:
        """Send a request, again if need be; return its answer when it is a good one."""
        patience = self.retry_policy if retries is None else RetryPolicy(retries=retries)
        return await call_with_retries(
            partial(self._send_once, self._build_request(request)), patience
        )

    async def request_json(self, request: ApiRequest) -> object:
        """Send a request; return the JSON of its answer. Raises UpstreamError."""
        return self._decode_json(await self._read_body(request))

    async def delete(self, path: str) -> None:
        """Have something deleted; the answer may be empty. Raises UpstreamError."""
        if said := await self._read_body(ApiRequest(method="DELETE", path=path)):
            self._decode_json(said)

    async def _read_body(self, request: ApiRequest) -> bytes:
        exchange = await self.send(request)
        return await exchange.read_and_release()

    def _decode_json(self, body: bytes) -> object:
        try:
            return json.decode_lenient(body)
        except json.JSONError:
            raise unexpected_body_error(self.server_name, body, "JSON") from None

    async def close(self) -> None:
        """Close our connections, whatever is under way on them."""
        if self._own_client is not None:
            self._own_client.close()
            self._own_client = None
        for exchange in list(self._exchanges):
            exchange.fail(
                UpstreamError(f"{self.server_name}: the client was closed.", code="closed")
            )
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    async def _send_once(self, request: HttpRequest) -> HttpResponse:
        exchange = await self.transport().open(request)
        if self._given_transport is None:
            self._exchanges.add(exchange)
        if 200 <= exchange.status < 300:
            return exchange
        status, told = exchange.status, exchange.headers
        said = (await exchange.read_and_release_within(ERROR_BODY_TIMEOUT)).decode(errors="replace")
        if place := redirect_target(status, told, request.url, self.base_url):
            raise redirect_error(
                self.server_name, status, redact_credentials(place, request.headers)
            )
        raise http_status_error(
            self.server_name, status, told, redact_credentials(said, request.headers).encode()
        )

    def _build_request(self, request: ApiRequest) -> HttpRequest:
        pairs = urlencode(list(request.query))
        body = b"" if request.body is None else encode_body(request.body)
        kind = {"content-type": "application/json"} if body else {}
        return HttpRequest(
            url=f"{self.base_url}/{request.path}" + (f"?{pairs}" if pairs else ""),
            method=request.method,
            headers=kind | self.headers | dict(request.headers),
            body=body,
            timeouts=self.timeouts,
            peer_name=self.server_name,
        )

    def transport(self) -> Transport:
        """Return what carries requests; connections belong to the loop that opened them."""
        if self._given_transport is not None:
            return self._given_transport
        loop = asyncio.get_running_loop()
        if self._own_client is None or self._loop is not loop:
            self._own_client, self._loop = HttpClient(self.timeouts), loop
            self._exchanges.clear()
        return self._own_client


def _normalize_base_url(url: str) -> str:
    """Return what paths are written behind; raises RequestError if none can be."""
    parts = _split_url(url.strip())
    if parts is None:
        message = f"The base_url is no http(s) URL. One looks like {DEFAULT_BASE_URL}."
        raise RequestError(message, param="base_url", code="invalid_value")
    if parts.query or parts.fragment or "@" in parts.netloc:
        message = (
            "A base_url ends with a path: it has no query and no fragment. What it says of who asks"
            " belongs into api_key or headers, where it is shown to nobody else."
        )
        raise RequestError(message, param="base_url", code="invalid_value")
    return parts.geturl().rstrip("/")


def _split_url(url: str) -> SplitResult | None:
    """Take an address apart; None if it leads to no server."""
    try:
        parts = urlsplit(url)
        leads = parts.scheme in DEFAULT_PORTS and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if leads else None


def _build_timeouts(timeout: float | Timeouts | None) -> Timeouts | None:
    if isinstance(timeout, int | float):
        connect = min(timeout, Timeouts().connect)
        return Timeouts(connect=connect, first_byte=timeout, idle=timeout)
    return timeout
