"""`GET /models`: the models there are, as OpenAI's clients ask for them.

Agents, aliases and what the configuration names are always there. What providers list themselves is
asked for when somebody wants to know, all at once and briefly, and remembered for a while; one that
does not answer is left out. A model need not be listed to be used.
"""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response

from antiphon.protocol.errors import RequestError
from antiphon.server.provider_probe import probe_providers
from antiphon.server.service import Service
from antiphon.wire import json

MODEL_LIST_TTL_SECONDS = 300


class ModelEndpoints:
    """The models of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())
        self._provider_models: list[str] = []
        self._expires_at = 0.0
        self._refresh_lock: asyncio.Lock | None = None

    async def list_models(self, request: Request) -> Response:
        """List every model."""
        del request
        names = [*self._service.models.names, *await self._list_provider_models()]
        data = [self._describe(name) for name in dict.fromkeys(names)]
        return _json_response({"object": "list", "data": data})

    async def get_model(self, request: Request) -> Response:
        """Describe one model; its name may have slashes."""
        name = str(request.path_params["id"])
        if not self._service.models.find(name):
            raise RequestError(
                f"The model '{name}' does not exist. GET /v1/models lists those that do.",
                type="not_found",
                code="model_not_found",
            )
        return _json_response(self._describe(name))

    async def _list_provider_models(self) -> "list[str]":
        """Return what the providers list, as of a while ago at most."""
        settings = self._service.settings
        if not settings.providers:
            return []
        self._refresh_lock = self._refresh_lock or asyncio.Lock()
        async with self._refresh_lock:
            if time.monotonic() > self._expires_at:
                found = await probe_providers(settings.providers, settings.keys, {})
                self._provider_models = [name for provider in found for name in provider.models]
                self._expires_at = time.monotonic() + MODEL_LIST_TTL_SECONDS
        return self._provider_models

    def _describe(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "antiphon"}


def _json_response(value: object) -> Response:
    return Response(json.encode(value), media_type="application/json")
