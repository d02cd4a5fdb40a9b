"""`antiphon serve`: load the user's agents, refuse what is unsafe, and run uvicorn, hardened."""

import importlib
import ipaddress
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import uvicorn

from antiphon.agents.agent import Agent
from antiphon.server.app import create_app
from antiphon.server.http import App
from antiphon.server.protocol import Limits, hardened
from antiphon.server.settings import Settings

DRAIN_SECONDS = 10


class Refused(Exception):
    """Why the server was not started, and what to do."""


def serve(*, host: str, port: int, target: str | None, api_key: str | None, no_auth: bool) -> None:
    """Serve until told to stop."""
    loaded = load(target) if target else Settings()
    if api_key == "":
        raise Refused("the API key is empty. Set ANTIPHON_API_KEY to a secret, or unset it.")
    if isinstance(loaded, Settings):
        settings = replace(loaded, api_key=api_key or loaded.api_key)
        has_key = settings.api_key is not None
        models = [name for agent in settings.all_agents for name in agent.models]
        app: App = create_app(settings)
    else:
        if api_key:
            raise Refused(f"{target} is an application of its own: give the key in its Settings.")
        app, has_key, models = loaded, False, []
    if not (has_key or no_auth or is_loopback(host)):
        key = "Set --api-key or ANTIPHON_API_KEY, or say --no-auth if everyone may use this server."
        own = "Say --no-auth if your application asks for keys itself, or everyone may use it."
        advice = key if isinstance(loaded, Settings) else own
        raise Refused(f"{host} can be reached from other machines. {advice}")
    _log_to_stderr()
    Announced(config(app, host, port), models).run()


def load(target: str) -> Settings | App:
    """Import what `module:attr` names, as settings or as an application."""
    name, _, attribute = target.partition(":")
    name = name.removesuffix(".py")
    if not all(map(str.isidentifier, name.split("."))):
        raise Refused(f"'{name}' is no module's name. Write it as in an import: package.module.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise Refused(f"no module '{error.name}'. Is {name}.py in this folder?") from None
        raise Refused(f"{name} needs '{error.name}', which is not installed.") from None
    if not attribute:
        found = [value for value in vars(module).values() if isinstance(value, Agent)]
        if not found:
            raise Refused(f"{name} has no agents. Make one with @agent('name').")
        return Settings(agents=found)
    value: object = getattr(module, attribute, None)
    match value:
        case None:
            raise Refused(f"{name} has no '{attribute}'.")
        case Agent():
            return Settings(agents=[value])
        case Settings():
            return value
        case list() | tuple() if all(isinstance(a, Agent) for a in cast("list[object]", value)):
            return Settings(agents=list(cast("list[Agent]", value)))
        case _ if callable(value):
            return cast("App", value)
        case _:
            kind = type(value).__name__
            raise Refused(f"{target} is a {kind}, not an agent, a list of agents or an app.")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


TRY = """\
try:    curl -N {url}/v1/responses -H 'Content-Type: application/json' \\
          -d '{{"model": "{model}", "input": "Hello!", "stream": true}}'"""


class Announced(uvicorn.Server):
    """A server that says where it is and what to try."""

    def __init__(self, config: uvicorn.Config, models: list[str]) -> None:
        super().__init__(config)
        self._models = models

    async def startup(self, sockets: list[object] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Listen, then say so."""
        await super().startup(sockets)  # pyright: ignore[reportArgumentType]
        if not self.started or not self.servers:
            return
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        lines = [f"Antiphon serves Open Responses on {url}"]
        if self._models:
            lines += [
                f"models: {', '.join(self._models)}",
                TRY.format(url=url, model=self._models[0]),
            ]
        print("\n".join(lines), flush=True)


def config(app: App, host: str, port: int) -> uvicorn.Config:
    """Return how uvicorn is run here."""
    limits = Limits()
    return uvicorn.Config(
        cast("type[object]", app),  # pyright: ignore[reportArgumentType]
        host=host,
        port=port,
        http=hardened(limits),
        timeout_keep_alive=int(limits.keep_alive_seconds),
        timeout_graceful_shutdown=DRAIN_SECONDS,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name, level in (("antiphon", logging.INFO), ("uvicorn", logging.WARNING)):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
