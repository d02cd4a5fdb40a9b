"""`GET /models`: the models there are, as OpenAI's clients ask for them.

Agents, aliases and what the configuration names are always there. What providers list themselves is
asked for when somebody wants to know, all at once and briefly, and remembered for a while; one that
does not answer is left out. A model need not be listed to be used.
"""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.errors import RequestError
from antiphon.server.service import Service
from antiphon.server.survey import survey
from antiphon.wire import json

FRESH_SECONDS = 300


class Catalogue:
    """The models of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())
        self._listed: list[str] = []
        self._until = 0.0
        self._asking: asyncio.Lock | None = None

    async def list(self, request: Request) -> Response:
        """List every model."""
        del request
        names = [*self._service.models.names, *await self._theirs()]
        data = [self._described(name) for name in dict.fromkeys(names)]
        return _json({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        """Describe one model; its name may have slashes."""
        name = str(request.path_params["id"])
        if not self._service.models.find(name):
            raise RequestError(
                f"The model '{name}' does not exist. GET /v1/models lists those that do.",
                type="not_found",
                code="model_not_found",
            )
        return _json(self._described(name))

    async def _theirs(self) -> "list[str]":
        """Return what the providers list, as of a while ago at most."""
        settings = self._service.settings
        if not settings.providers:
            return []
        self._asking = self._asking or asyncio.Lock()
        async with self._asking:
            if time.monotonic() > self._until:
                found = await survey(settings.providers, settings.keys, {})
                self._listed = [name for provider in found for name in provider.models]
                self._until = time.monotonic() + FRESH_SECONDS
        return self._listed

    def _described(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "antiphon"}


def _json(value: object) -> Response:
    return Response(json.encode(value), media_type="application/json")
