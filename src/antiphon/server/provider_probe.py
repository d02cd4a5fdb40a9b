"""What can be reached: every provider is asked for its models, all at once and briefly."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
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
"""Its models are listed; it answers, but lists none; it cannot be asked for a list; it fails."""

NO_MODEL_LIST_STATUSES = frozenset({404, 405, 501})
UNAUTHORIZED_STATUSES = frozenset({401, 403})


class ProbeResult(Struct, frozen=True, kw_only=True):
    """One provider, as far as could be found out."""

    name: str
    adapter: str
    status: ProviderStatus
    reason: str = ""
    url: str = ""
    models: Sequence[str] = ()
    """The models it lists, each as `provider/model`."""


async def probe_providers(
    providers: Sequence[Provider], keys: Mapping[str, str], unavailable: Mapping[str, str]
) -> list[ProbeResult]:
    """Ask every provider that can be asked; `reasons` say why others cannot."""
    client = HttpClient(Timeouts(PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS))
    try:
        asked = (
            probe_provider(p, keys.get(p.name), client, unavailable.get(p.name)) for p in providers
        )
        found = await asyncio.gather(*asked)
    finally:
        client.close()
    others = unavailable.keys() - {provider.name for provider in providers}
    return found + [
        ProbeResult(name=name, adapter=name, status="not ready", reason=unavailable[name])
        for name in unavailable
        if name in others
    ]


async def probe_provider(
    provider: Provider, key: str | None, client: HttpClient, reason: str | None = None
) -> ProbeResult:
    """Ask one provider for its models."""
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
        reason = f"no answer from {url} within {PROBE_SECONDS:g} seconds"
    except AntiphonError as error:
        reason = str(error).removeprefix(f"{provider.name}: ").rstrip(".")
    except (Exception, SystemExit) as error:  # an adapter may be other people's code
        logger.exception("%s: its adapter '%s' broke", provider.name, provider.adapter)
        reason = f"its adapter broke: {describe_exception(error)}"
    return ProbeResult(
        name=provider.name,
        adapter=provider.adapter,
        status=status,
        reason=reason or "",
        url=url,
        models=[f"{provider.name}/{name}" for name in names],
    )


async def _list_models(
    adapter: Adapter, key: str | None, client: HttpClient
) -> tuple[ProviderStatus, str, list[str]]:
    provider = adapter.provider
    listing = adapter.models_request()
    if listing is None:
        return "configured", f"its models cannot be listed; write {provider.name}/NAME", []
    headers = {"accept": "application/json", **listing.headers, **provider.headers}
    request = HttpRequest(
        url=listing.url, method=listing.method, headers=headers, peer_name=provider.name
    )
    until = asyncio.get_running_loop().time() + PROBE_SECONDS
    try:
        async with asyncio.timeout_at(until):
            headers |= await make_signer(adapter.credential(), key).headers(request)
    except TimeoutError:
        return "not ready", f"its credentials could not be had within {PROBE_SECONDS:g} seconds", []
    async with asyncio.timeout_at(until):
        answer = await client.fetch(replace(request, headers=headers))
    if answer.status in NO_MODEL_LIST_STATUSES:
        return "reached", f"{listing.url} answers {answer.status}: no list, or no such address", []
    if place := redirect_target(answer.status, answer.headers, listing.url, adapter.base_url):
        raise redirect_error(provider.name, answer.status, redact_key(place, key or ""))
    if not 200 <= answer.status < 300:
        words = str(adapter.decode_error(answer.status, answer.headers, answer.body))
        words = words.removeprefix(f"{provider.name}: ").rstrip(".")
        if answer.status in UNAUTHORIZED_STATUSES and provider.api_key_env:
            words += f"; check {provider.api_key_env}"
        return "not ready", f"{answer.status} from {listing.url}: {words}", []
    try:
        listed = adapter.decode_models(json.decode_lenient(answer.body))
    except json.JSONError:
        return "reached", f"{listing.url} answers with something that is not JSON", []
    return "ready", "", [repair_surrogates(name) for name in listed]
