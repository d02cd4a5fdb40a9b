"""The way to one server: its address, our key, its connections, and our patience with it."""

import asyncio
import os
import time
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

from antiphon.client.ask import Ask
from antiphon.core.errors import RequestError, UpstreamError
from antiphon.transport.connection import Timeouts
from antiphon.transport.exchange import Exchange
from antiphon.transport.http import Client as HttpClient
from antiphon.transport.http import HttpRequest, Transport
from antiphon.transport.retry import Patience, delay
from antiphon.wire import json

BASE_URL = "http://127.0.0.1:8000/v1"


class Link:
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
        self.base_url = (base_url or os.environ.get("ANTIPHON_BASE_URL") or BASE_URL).rstrip("/")
        self.timeouts = _timeouts(timeout)
        self.patience = Patience(retries=retries)
        self.who = urlsplit(self.base_url).netloc.rpartition("@")[2] or self.base_url
        """The server's name in our errors."""
        key = os.environ.get("ANTIPHON_API_KEY") if api_key is None else api_key
        shown = {"authorization": f"Bearer {key.strip()}"} if key and key.strip() else {}
        self.headers = shown | {name.lower(): v for name, v in (headers or {}).items()}
        """What every request says beside its own: who asks, and what the caller added."""
        self._given = transport
        self._own: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: WeakSet[Exchange] = WeakSet()

    async def open(self, ask: Ask, retries: int | None = None) -> Exchange:
        """Send a request, again if need be; return its answer when it is a good one."""
        patience = self.patience if retries is None else Patience(retries=retries)
        request = self._request(ask)
        tried = 0
        while True:
            try:
                return await self._once(request)
            except UpstreamError as error:
                wait = delay(error, tried, patience, now=time.time())
                if wait is None:
                    raise
            await asyncio.sleep(wait)
            tried += 1

    async def ask(self, ask: Ask) -> object:
        """Send a request; return the JSON of its answer. Raises UpstreamError."""
        exchange = await self.open(ask)
        try:
            body = await exchange.read()
        finally:
            exchange.release()
        try:
            return json.decode_lenient(body)
        except json.JSONError:
            kind = exchange.headers.get("content-type", "something else")[:80]
            raise self.wrong(f"answered with {kind} instead of JSON.") from None

    def wrong(self, message: str) -> UpstreamError:
        """Make the error for an answer that is not one."""
        return UpstreamError(f"{self.who}: {message}", code="upstream_invalid")

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
        try:
            body = await exchange.read()
        finally:
            exchange.release()
        raise refusal(self.who, exchange.status, exchange.headers, body)

    def _request(self, ask: Ask) -> HttpRequest:
        pairs = urlencode(list(ask.query))
        try:
            body = b"" if ask.body is None else json.encode(ask.body)
        except json.JSONError as error:
            raise RequestError(str(error), code="invalid_json") from None
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
            self._own, self._loop = HttpClient(), loop
            self._answers.clear()
        return self._own


def refusal(who: str, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
    """Read the answer of a server that refuses."""
    from antiphon.adapters.base import Provider  # start-up time
    from antiphon.adapters.responses import Responses

    return Responses(Provider(name=who, adapter="responses")).error(status, headers, body)


def _timeouts(timeout: float | Timeouts | None) -> Timeouts | None:
    if isinstance(timeout, int | float):
        connect = min(timeout, Timeouts().connect)
        return Timeouts(connect=connect, first_byte=timeout, idle=timeout)
    return timeout
