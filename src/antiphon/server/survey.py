"""What can be reached: every provider is asked for its models, all at once and briefly."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from antiphon.adapters.astray import moved, moved_to
from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.faults import without_key
from antiphon.adapters.registry import adapter_for, described
from antiphon.core.errors import AntiphonError
from antiphon.core.surrogates import mend
from antiphon.transport.auth import signer
from antiphon.transport.connection import Timeouts
from antiphon.transport.http import Client, HttpRequest
from antiphon.wire import json
from antiphon.wire.upstream import Upstream

logger = logging.getLogger("antiphon.survey")

SECONDS = 5.0
"""How long a provider may take to list its models."""

Status = Literal["ready", "reached", "configured", "not ready"]
"""Its models are listed; it answers, but lists none; it cannot be asked for a list; it fails."""

NO_LIST = frozenset({404, 405, 501})
NO_ENTRY = frozenset({401, 403})


class Found(Struct, frozen=True, kw_only=True):
    """One provider, as far as could be found out."""

    name: str
    adapter: str
    status: Status
    reason: str = ""
    url: str = ""
    models: Sequence[str] = ()
    """The models it lists, each as `provider/model`."""


async def survey(
    providers: Sequence[Provider], keys: Mapping[str, str], reasons: Mapping[str, str]
) -> list[Found]:
    """Ask every provider that can be asked; `reasons` say why others cannot."""
    client = Client(Timeouts(SECONDS, SECONDS, SECONDS))
    try:
        asked = (visit(p, keys.get(p.name), client, reasons.get(p.name)) for p in providers)
        found = await asyncio.gather(*asked)
    finally:
        client.close()
    others = reasons.keys() - {provider.name for provider in providers}
    return found + [
        Found(name=name, adapter=name, status="not ready", reason=reasons[name])
        for name in reasons
        if name in others
    ]


async def visit(
    provider: Provider, key: str | None, client: Client, reason: str | None = None
) -> Found:
    """Ask one provider for its models."""
    if not reason and provider.api_key_env and not key:
        reason = f"{provider.api_key_env} is not set"
    status: Status = "not ready"
    names: list[str] = []
    url = provider.base_url or provider.endpoint or ""
    try:
        adapter = adapter_for(provider)
        url = adapter.base_url or url
        if not reason:
            status, reason, names = await _asked(adapter, key, client)
    except TimeoutError:
        reason = f"no answer from {url} within {SECONDS:g} seconds"
    except AntiphonError as error:
        reason = str(error).removeprefix(f"{provider.name}: ").rstrip(".")
    except (Exception, SystemExit) as error:  # an adapter may be other people's code
        logger.exception("%s: its adapter '%s' broke", provider.name, provider.adapter)
        reason = f"its adapter broke: {described(error)}"
    return Found(
        name=provider.name,
        adapter=provider.adapter,
        status=status,
        reason=reason or "",
        url=url,
        models=[f"{provider.name}/{name}" for name in names],
    )


async def _asked(
    adapter: Adapter, key: str | None, client: Client
) -> tuple[Status, str, list[str]]:
    provider = adapter.provider
    listing = adapter.listing()
    if listing is None:
        return "configured", f"its models cannot be listed; write {provider.name}/NAME", []
    headers = {"accept": "application/json", **listing.headers, **provider.headers}
    described = Upstream(url=listing.url, headers=headers, method=listing.method)
    until = asyncio.get_running_loop().time() + SECONDS
    try:
        async with asyncio.timeout_at(until):
            headers |= await signer(adapter.credential(), key).headers(described, b"")
    except TimeoutError:
        return "not ready", f"its credentials could not be had within {SECONDS:g} seconds", []
    request = HttpRequest(
        url=listing.url, method=listing.method, headers=headers, who=provider.name
    )
    async with asyncio.timeout_at(until):
        answer = await client.fetch(request)
    if answer.status in NO_LIST:
        return "reached", f"{listing.url} answers {answer.status}: no list, or no such address", []
    if place := moved_to(answer.status, answer.headers, listing.url, adapter.base_url):
        raise moved(provider.name, answer.status, without_key(place, key or ""))
    if not 200 <= answer.status < 300:
        words = str(adapter.error(answer.status, answer.headers, answer.body))
        words = words.removeprefix(f"{provider.name}: ").rstrip(".")
        if answer.status in NO_ENTRY and provider.api_key_env:
            words += f"; check {provider.api_key_env}"
        return "not ready", f"{answer.status} from {listing.url}: {words}", []
    try:
        listed = adapter.listed(json.decode_lenient(answer.body))
    except json.JSONError:
        return "reached", f"{listing.url} answers with something that is not JSON", []
    return "ready", "", [mend(name) for name in listed]
