"""Which providers are reachable, and which models they list.

All providers are asked at the same time, each with a short timeout.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.errors import redact_key, redirect_error, redirect_target
from antiphon.adapters.registry import describe_exception, make_adapter
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.transport.auth import make_signer
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.connection import Timeouts
from antiphon.wire import json

logger = logging.getLogger("antiphon.survey")

PROBE_SECONDS = 5.0
"""How long a provider may take to list its models."""

ProviderStatus = Literal["ready", "reached", "configured", "not ready"]
"""It listed its models; it responds, but not with a list; it has no list; it is unavailable."""

LIST_TTL_SECONDS = 300
"""How long the providers' lists are cached."""

NO_MODEL_LIST_STATUSES = frozenset({404, 405, 501})
UNAUTHORIZED_STATUSES = frozenset({401, 403})


class ProbeResult(Struct, frozen=True, kw_only=True):
    """What a probe found out about one provider."""

    name: str
    adapter: str
    status: ProviderStatus
    reason: str = ""
    url: str = ""
    models: Sequence[str] = ()
    """The models it lists, each as `provider/model`."""


class ProviderModelList:
    """The models that the providers list, cached for a while."""

    def __init__(self, providers: Sequence[Provider], keys: Mapping[str, str]) -> None:
        self._providers = providers
        self._keys = keys
        self._names: list[str] = []
        self._expires_at = 0.0
        self._lock = asyncio.Lock()

    async def list_models(self) -> list[str]:
        """Return the names as `provider/model`; at most `LIST_TTL_SECONDS` old."""
        if not self._providers:
            return []
        # Concurrent requests wait for one probe instead of starting their own.
        async with self._lock:
            if time.monotonic() > self._expires_at:
                results = await probe_providers(self._providers, self._keys, {})
                self._names = [name for result in results for name in result.models]
                self._expires_at = time.monotonic() + LIST_TTL_SECONDS
        return self._names


async def probe_providers(
    providers: Sequence[Provider], keys: Mapping[str, str], unavailable: Mapping[str, str]
) -> list[ProbeResult]:
    """Probe all providers; `unavailable` gives the reasons why some cannot be asked."""
    with closing(HttpClient(Timeouts(PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS))) as client:
        probes = (probe_provider(p, keys.get(p.name), client, unavailable.get(p.name)) for p in providers)
        results = await asyncio.gather(*probes)
    # Providers that are not configured are listed too, with the variable that would enable them.
    configured = {provider.name for provider in providers}
    return results + [
        ProbeResult(name=name, adapter=name, status="not ready", reason=reason)
        for name, reason in unavailable.items()
        if name not in configured
    ]


async def probe_provider(provider: Provider, key: str | None, client: HttpClient, reason: str | None) -> ProbeResult:
    """Ask one provider for its models, unless there is a `reason` why it cannot be asked."""
    if not reason and provider.api_key_env and not key:
        reason = f"{provider.api_key_env} is not set"
    status: ProviderStatus = "not ready"
    names: list[str] = []
    url = provider.base_url or provider.endpoint or ""
    try:
        adapter = make_adapter(provider)
        url = adapter.base_url or url
        if not reason:
            status, reason, names = await _list_models(adapter, key, client)
    except TimeoutError:
        reason = f"no response from {url} within {PROBE_SECONDS:g} seconds"
    except AntiphonError as error:
        reason = str(error).removeprefix(f"{provider.name}: ").rstrip(".")
    except (Exception, SystemExit) as error:  # an adapter may be third-party code
        logger.exception("%s: its adapter '%s' failed", provider.name, provider.adapter)
        reason = f"its adapter failed: {describe_exception(error)}"
    return ProbeResult(
        name=provider.name,
        adapter=provider.adapter,
        status=status,
        reason=reason or "",
        url=url,
        models=[f"{provider.name}/{name}" for name in names],
    )


async def _list_models(adapter: Adapter, key: str | None, client: HttpClient) -> tuple[ProviderStatus, str, list[str]]:
    provider = adapter.provider
    listing = adapter.models_request()
    if listing is None:
        return "configured", f"its models cannot be listed; write {provider.name}/NAME", []
    headers = {"accept": "application/json", **listing.headers, **provider.headers}
    request = HttpRequest(url=listing.url, method=listing.method, headers=headers, peer_name=provider.name)
    deadline = asyncio.get_running_loop().time() + PROBE_SECONDS
    try:
        async with asyncio.timeout_at(deadline):
            headers |= await make_signer(adapter.credential(), key).headers(request)
    except TimeoutError:
        return "not ready", f"no credentials within {PROBE_SECONDS:g} seconds", []
    async with asyncio.timeout_at(deadline):
        response = await client.open(replace(request, headers=headers))
        body = await response.read_and_release()
    # Some compatible servers implement only the endpoints that create responses.
    if response.status in NO_MODEL_LIST_STATUSES:
        return "reached", f"{listing.url} answers {response.status}: no list, or a wrong address", []
    if location := redirect_target(response.status, response.headers, listing.url, adapter.base_url):
        raise redirect_error(provider.name, response.status, redact_key(location, key or ""))
    if not 200 <= response.status < 300:
        message = str(adapter.decode_error(response.status, response.headers, body))
        message = message.removeprefix(f"{provider.name}: ").rstrip(".")
        # The provider's own message does not know the name of our variable.
        if response.status in UNAUTHORIZED_STATUSES and provider.api_key_env:
            message += f"; check {provider.api_key_env}"
        return "not ready", f"{response.status} from {listing.url}: {message}", []
    try:
        listed = adapter.decode_models(json.decode_lenient(body))
    except json.JSONError:
        return "reached", f"{listing.url} answers with something that is not JSON", []
    return "ready", "", [repair_surrogates(name) for name in listed]
