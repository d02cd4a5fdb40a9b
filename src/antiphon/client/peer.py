"""The way to one server: its address, our key, its connections, and our patience with it."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from urllib.parse import SplitResult, urlencode, urlsplit
from weakref import WeakSet

from antiphon.adapters.astray import moved, moved_to
from antiphon.client.ask import Ask
from antiphon.client.errors import hushed, refused, unlike
from antiphon.client.fields import encoded
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.transport.connection import Timeouts
from antiphon.transport.exchange import Exchange
from antiphon.transport.http import PORTS, HttpRequest, Transport
from antiphon.transport.http import Client as HttpClient
from antiphon.transport.retry import Patience, patiently
from antiphon.wire import json

BASE_URL = "http://127.0.0.1:8000/v1"

REFUSAL_SECONDS = 5.0
"""How long a server may take to say why it refuses, once its status has come."""


class Peer:
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
        self.base_url = _address(base_url or os.environ.get("ANTIPHON_BASE_URL") or BASE_URL)
        self.timeouts = _timeouts(timeout)
        self.patience = Patience(retries=retries)
        self.who = urlsplit(self.base_url).netloc or self.base_url
        """The server's name in our errors."""
        given = os.environ.get("ANTIPHON_API_KEY") if api_key is None else api_key
        self.key = (given or "").strip() or None
        shown = {"authorization": f"Bearer {self.key}"} if self.key else {}
        self.headers = shown | {name.lower(): v for name, v in (headers or {}).items()}
        """What every request says beside its own: who asks, and what the caller added."""
        self._given = transport
        self._own: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: WeakSet[Exchange] = WeakSet()

    async def open(self, ask: Ask, retries: int | None = None) -> Exchange:
        """Send a request, again if need be; return its answer when it is a good one."""
        patience = self.patience if retries is None else Patience(retries=retries)
        return await patiently(partial(self._once, self._request(ask)), patience)

    async def ask(self, ask: Ask) -> object:
        """Send a request; return the JSON of its answer. Raises UpstreamError."""
        return self._read(await self._said(ask))

    async def delete(self, path: str) -> None:
        """Have something deleted; the answer may be empty. Raises UpstreamError."""
        if said := await self._said(Ask(method="DELETE", path=path)):
            self._read(said)

    async def _said(self, ask: Ask) -> bytes:
        exchange = await self.open(ask)
        return await exchange.taken()

    def _read(self, said: bytes) -> object:
        try:
            return json.decode_lenient(said)
        except json.JSONError:
            raise unlike(self.who, said, "JSON") from None

    async def close(self) -> None:
        """Close our connections, whatever is under way on them."""
        if self._own is not None:
            self._own.close()
            self._own = None
        for exchange in list(self._answers):
            exchange.fail(UpstreamError(f"{self.who}: the client was closed.", code="closed"))
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    async def _once(self, request: HttpRequest) -> Exchange:
        exchange = await self.transport().open(request)
        if self._given is None:
            self._answers.add(exchange)
        if 200 <= exchange.status < 300:
            return exchange
        status, told = exchange.status, exchange.headers
        said = (await exchange.taken_soon(REFUSAL_SECONDS)).decode(errors="replace")
        if place := moved_to(status, told, request.url, self.base_url):
            raise moved(self.who, status, hushed(place, request.headers))
        raise refused(self.who, status, told, hushed(said, request.headers).encode())

    def _request(self, ask: Ask) -> HttpRequest:
        pairs = urlencode(list(ask.query))
        body = b"" if ask.body is None else encoded(ask.body)
        kind = {"content-type": "application/json"} if body else {}
        return HttpRequest(
            url=f"{self.base_url}/{ask.path}" + (f"?{pairs}" if pairs else ""),
            method=ask.method,
            headers=kind | self.headers | dict(ask.headers),
            body=body,
            timeouts=self.timeouts,
            who=self.who,
        )

    def transport(self) -> Transport:
        """Return what carries requests; connections belong to the loop that opened them."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if self._own is None or self._loop is not loop:
            self._own, self._loop = HttpClient(self.timeouts), loop
            self._answers.clear()
        return self._own


def _address(url: str) -> str:
    """Return what paths are written behind; raises RequestError if none can be."""
    parts = _parts(url.strip())
    if parts is None:
        message = f"The base_url is no http(s) URL. One looks like {BASE_URL}."
        raise RequestError(message, param="base_url", code="invalid_value")
    if parts.query or parts.fragment or "@" in parts.netloc:
        message = (
            "A base_url ends with a path: it has no query and no fragment. What it says of who asks"
            " belongs into api_key or headers, where it is shown to nobody else."
        )
        raise RequestError(message, param="base_url", code="invalid_value")
    return parts.geturl().rstrip("/")


def _parts(url: str) -> SplitResult | None:
    """Take an address apart; None if it leads to no server."""
    try:
        parts = urlsplit(url)
        leads = parts.scheme in PORTS and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if leads else None


def _timeouts(timeout: float | Timeouts | None) -> Timeouts | None:
    if isinstance(timeout, int | float):
        connect = min(timeout, Timeouts().connect)
        return Timeouts(connect=connect, first_byte=timeout, idle=timeout)
    return timeout
