"""`GET /models`: the available models, in OpenAI's format; `/healthz` and `/readyz`.

Agents, aliases and configured models are always listed. The providers' own lists are fetched on demand and cached; a
provider that does not answer is left out. A model need not be listed to be used.
"""

import time

from starlette.routing import BaseRoute

from antiphon.agents.agent import DEFAULT_ENTRY, Agent
from antiphon.protocol.struct import encode
from antiphon.server.asgi import Receive, Scope, Send, send_json
from antiphon.server.endpoints.base import Endpoints, route
from antiphon.server.service import Service
from antiphon.wire import json
from antiphon.wire.openresponses import Dialect


class ModelEndpoints(Endpoints):
    """The list of models, and one model."""

    def __init__(self, service: Service, dialect: type[Dialect]) -> None:
        super().__init__(service, dialect)
        self._created = int(time.time())

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [
            route(f"{prefix}/models", GET=self.list_models),
            route(f"{prefix}/models/{{id:path}}", GET=self.get_model),
        ]

    async def list_models(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        listed = await self._service.provider_models.list_models()
        names = dict.fromkeys([*self._service.models.names, *listed])
        data = [self._describe(name) for name in names]
        await send_json(send, json.encode({"object": "list", "data": data}))

    async def get_model(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`GET /models/{id}`; a model's name may contain slashes."""
        name = str(scope["path_params"]["id"])
        if not self._service.models.find(name):
            raise self._service.models.unknown_model_error(name, param=None)
        await send_json(send, json.encode(self._describe(name)))

    def _describe(self, name: str) -> dict[str, object]:
        # The start of the server stands for a time that providers mostly do not give.
        model: dict[str, object] = {"id": name, "object": "model", "created": self._created, "owned_by": "antiphon"}
        if agent := self._service.models.find_agent(name):
            model["owned_by"] = agent.owned_by
            model["antiphon:agent"] = describe_agent(agent, name)
        return model


def describe_agent(agent: Agent, model: str) -> dict[str, object]:
    """Return what is known of an agent, as one of its models; `entry_points` are the names of all its models."""
    _, _, entry = model.partition("/")
    return {
        "name": agent.name,
        "description": agent.describe(entry or DEFAULT_ENTRY),
        "entry_points": agent.models,
        "context_window": agent.window,
        "framework": agent.framework,
        "metadata": agent.metadata,
    }


class HealthEndpoints(Endpoints):
    """Whether the process is alive, and whether it accepts requests."""

    def routes(self, prefix: str) -> list[BaseRoute]:
        return [route(f"{prefix}/healthz", GET=self.healthz), route(f"{prefix}/readyz", GET=self.readyz)]

    async def healthz(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer 200: the process is alive."""
        await send_json(send, encode({"status": "ok"}))

    async def readyz(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer 200 if requests are accepted; 503 while draining, without a store or with a full disk."""
        # Load balancers stop sending requests before the listening socket closes.
        self._service.reject_when_draining()
        await self._service.check_store()
        await send_json(send, encode({"status": "ready"}))
