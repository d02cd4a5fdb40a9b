"""`antiphon serve`: load the user's agents, refuse what is unsafe, and run uvicorn, hardened."""

import asyncio
import errno
import gc
import importlib
import inspect
import logging
import signal
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, FunctionType
from typing import cast

import uvicorn

from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.agents.agent import Agent
from antiphon.cli.exit import exit_now
from antiphon.engine.encryption import check_keys
from antiphon.protocol.errors import StoreError
from antiphon.server.app import create_app
from antiphon.server.asgi import AsgiApp
from antiphon.server.config.address import is_loopback
from antiphon.server.config.load import ConfigError, GatewayConfig
from antiphon.server.config.load import load_config as load_config
from antiphon.server.service import Service
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.http_protocol import ConnectionLimits, http_protocol
from antiphon.server.uvicorn.ws_protocol import websocket_protocol

logger = logging.getLogger("antiphon.serve")

HARD_STOP_SECONDS = 5
"""How long after its drain a server may take to end what it interrupted."""

FORCED_STOP_SECONDS = 1.0
"""The same, once it was told twice to stop."""

PING_SECONDS = 20
"""How often a WebSocket's client is asked whether it is there, and how long it may take to say."""

GC_THRESHOLD = 10_000
"""How many objects may be made before the garbage collector looks at them. A request makes
hundreds, which go with it; at Python's own 700 it would look at every few requests."""


class StartupError(Exception):
    """Why the server was not started, and what to do."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What the command line says; None where it says nothing."""

    host: str = "127.0.0.1"
    port: int = 8000
    target: str | None = None
    config: Path | None = None
    data: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    seal_keys: str | None = field(default=None, repr=False)
    no_auth: bool = False
    drain_seconds: float | None = None


def serve(options: ServeOptions) -> None:
    """Serve until told to stop."""
    loaded = load_target(options.target) if options.target else Settings()
    if options.api_key == "":
        raise StartupError("the API key is empty. Set ANTIPHON_API_KEY to a secret, or unset it.")
    own = not isinstance(loaded, Settings)
    settings = settings_of(loaded) if own else apply_options(loaded, options)
    if own and (options.config or apply_options(settings, options) != settings):
        raise StartupError(
            f"{options.target} is an application of its own: give the configuration, the key, "
            "the data folder and the drain time in its Settings."
        )
    if not (settings.api_key or options.no_auth or is_loopback(options.host)):
        advice = "Set --api-key or ANTIPHON_API_KEY, or say --no-auth if everyone may use it."
        if own:
            advice = "Say --no-auth if your application asks for keys itself, or needs none."
        raise StartupError(f"{options.host} can be reached from other machines. {advice}")
    _log_to_stderr()
    if not own and (read := read_configuration(settings, options.config)):
        settings = settings.with_config(read)
        for name in read.providers:
            if reason := read.reasons.get(name):
                logger.warning("provider %s cannot be asked: %s", name, reason)
    app = loaded if own else create_app(settings)
    with open_socket(options.host, options.port) as taken:
        run = uvicorn_config(app, options.host, options.port, settings)
        GatewayServer(run, None if own else settings).run([taken])


def read_configuration(settings: Settings, path: Path | None) -> GatewayConfig | None:
    """Read the configuration, unless the settings name providers or aliases and nobody a file."""
    if path is None and (settings.providers or settings.aliases):
        return None
    try:
        return load_config(path, agents=settings.agent_models)
    except ConfigError as error:
        raise StartupError(str(error)) from None


def banner_lines(settings: Settings, url: str) -> list[str]:
    """Say what is served and what to try."""
    models = [*settings.agent_models, *settings.aliases]
    providers = settings.ready
    if not (models or providers):
        return []
    # A local server is offered though nobody configured it; it is contacted on first use.
    local = {name for name in BUILT_IN if adapter_class(name).is_local()}
    named = [f"{name} (if it runs)" if name in local else name for name in providers]
    return [
        *([f"models: {', '.join(models)}"] if models else []),
        *([f"providers: {', '.join(named)}"] if named else []),
        CURL_EXAMPLE.format(url=url, model=models[0] if models else f"{providers[0]}/NAME"),
    ]


def service_of(app: object) -> Service | None:
    """Return the service of an application that `create_app` made."""
    service = getattr(getattr(app, "state", None), "service", None)
    return service if isinstance(service, Service) else None


def settings_of(app: object) -> Settings:
    """Return the settings that an application of the user's own has."""
    service = service_of(app)
    return service.settings if service else Settings()


def apply_options(settings: Settings, options: ServeOptions) -> Settings:
    """Return settings with what the command line says."""
    if options.data is not None:
        settings = replace(settings, responses_dir=options.data)
    if options.drain_seconds is not None:
        settings = replace(settings, drain_seconds=options.drain_seconds)
    if options.seal_keys is not None:
        settings = replace(settings, seal_keys=parse_encryption_keys(options.seal_keys))
    return replace(settings, api_key=options.api_key or settings.api_key)


def parse_encryption_keys(text: str) -> list[str]:
    """Read keys that are separated by commas, the newest first."""
    keys = text.replace(",", " ").split()
    try:
        check_keys(keys)
    except ValueError as error:
        advice = "Make one with: openssl rand -base64 32"
        raise StartupError(f"the seal's keys cannot be used. {error} {advice}") from None
    return keys


def load_target(target: str) -> Settings | AsgiApp:
    """Import what `module:attr` names, as settings or as an application."""
    name, _, attribute = target.partition(":")
    name = name.removesuffix(".py")
    if not all(map(str.isidentifier, name.split("."))):
        raise StartupError(
            f"'{name}' is no module's name. Write it as in an import: package.module."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise StartupError(f"no module '{error.name}'. Is {name}.py in this folder?") from None
        raise StartupError(f"{name} needs '{error.name}', which is not installed.") from None
    if not attribute:
        found = [value for value in vars(module).values() if isinstance(value, Agent)]
        if not found:
            raise StartupError(f"{name} has no agents. Make one with @agent('name').")
        return Settings(agents=found)
    value: object = getattr(module, attribute, None)
    match value:
        case None:
            raise StartupError(f"{name} has no '{attribute}'.")
        case Agent():
            return Settings(agents=[value])
        case Settings():
            return value
        case list() | tuple() if all(isinstance(a, Agent) for a in cast("list[object]", value)):
            return Settings(agents=list(cast("list[Agent]", value)))
        case FunctionType() if len(inspect.signature(value).parameters) != 3:
            raise StartupError(
                f"{target} is a plain function. Make it an agent with @agent('name')."
            )
        case _ if callable(value):
            return cast("AsgiApp", value)
        case _:
            kind = type(value).__name__
            raise StartupError(f"{target} is a {kind}, not an agent, a list of agents or an app.")


CURL_EXAMPLE = """\
try:    curl -N {url}/v1/responses -H 'Content-Type: application/json' \\
          -d '{{"model": "{model}", "input": "Hello!", "stream": true}}'"""


def open_socket(host: str, port: int) -> socket.socket:
    """Take an address; raises Refused with the reason it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "somebody does already" if taken else (error.strerror or "no such address")
        advice = "Choose another port with --port." if taken else "Check --host and --port."
        raise StartupError(f"cannot listen on {host}:{port}: {reason}. {advice}") from None


class GatewayServer(uvicorn.Server):
    """A server that says where it is and what to try."""

    def __init__(self, config: uvicorn.Config, settings: Settings | None) -> None:
        super().__init__(config)
        self._settings = settings
        self._service = service_of(config.app)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        if self._service:
            try:
                await self._service.engine()
            except StoreError as error:
                raise StartupError(f"{error} Choose another folder with --data.") from None
        await super().startup(sockets)
        if not self.started or not self.servers:
            return
        tune_garbage_collector()
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        lines = [f"Antiphon serves Open Responses on {url}"]
        lines += banner_lines(self._settings, url) if self._settings else []
        print("\n".join(lines), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; whoever presses Ctrl-C again does not want to wait."""
        super().handle_exit(sig, frame)
        if self.force_exit and self._service:
            self._service.skip_drain()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what runs end in its time, and interrupt the rest; or at once, if told so again."""
        ending = asyncio.create_task(self._drain_and_shutdown(sockets))
        while not (self.force_exit or ending.done()):
            await asyncio.sleep(0.05)
        if self.force_exit:
            await asyncio.wait([ending, *self.server_state.tasks], timeout=FORCED_STOP_SECONDS)
            exit_now(128 + signal.SIGINT)
        await ending

    async def _drain_and_shutdown(self, sockets: list[socket.socket] | None) -> None:
        draining = asyncio.create_task(self._service.drain()) if self._service else None
        await super().shutdown(sockets)
        if draining:
            await draining


def tune_garbage_collector() -> None:
    """Have the garbage collector pass over all that is there to stay, and look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def uvicorn_config(
    app: AsgiApp, host: str, port: int, settings: Settings | None = None
) -> uvicorn.Config:
    """Return how uvicorn is run here."""
    limits = ConnectionLimits()
    settings = settings or Settings()
    return uvicorn.Config(
        cast("type[object]", app),  # pyright: ignore[reportArgumentType]
        host=host,
        port=port,
        http=http_protocol(limits),
        ws=websocket_protocol(limits, settings.drain_seconds),
        ws_max_size=settings.body_limit,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,
        timeout_keep_alive=int(limits.keep_alive_seconds),
        timeout_graceful_shutdown=int(settings.drain_seconds) + HARD_STOP_SECONDS,
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
