"""`antiphon serve`: load the user's agents, reject unsafe options, and run the server."""

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.cli.load import TargetLoader
from antiphon.cli.main import StartupError, exit_now
from antiphon.engine.sealing import check_keys
from antiphon.protocol.errors import StoreError, end_sentence
from antiphon.server.app import create_app
from antiphon.server.asgi import AsgiApp
from antiphon.server.config.load import GatewayConfig, load_config
from antiphon.server.service import Service, find_service
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.server import GatewayServer, uvicorn_config
from antiphon.store.base import describe_url
from antiphon.transport.proxy import is_loopback


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of the command line; None if an option is not given."""

    host: str = "127.0.0.1"
    port: int = 8000
    targets: Sequence[str] = ()
    folders: Sequence[Path] = ()
    config: Path | None = None
    data: str | None = None
    store: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    seal_keys: str | None = field(default=None, repr=False)
    no_auth: bool = False
    drain_seconds: float | None = None
    allowed_origins: Sequence[str] = ()


def serve(
    options: ServeOptions, listener: socket.socket | None = None, *, is_shared: bool = False, announce: bool = True
) -> None:
    """Serve until a signal arrives, on a listening socket if one is given; raises StartupError.

    With `is_shared` other processes serve the same port, and `announce` prints what is served.
    """
    settings, app = load_application(options)
    if is_shared:
        check_store_is_shared(settings, "--workers")
    if not (settings.api_key or options.no_auth or is_loopback(options.host)):
        advice = "Set --api-key or ANTIPHON_API_KEY, or use --no-auth to serve without a key."
        if app:
            advice = "Use --no-auth if your application checks keys itself, or needs none."
        raise StartupError(f"{options.host} is reachable from other machines. {advice}")
    # With a key or other host names, a proxy may be in front of it.
    if is_loopback(options.host) and not (settings.api_key or settings.allowed_hosts):
        settings = replace(settings, show_exceptions=True)

    def print_banner(url: str) -> None:
        if announce:
            lines = [] if app else banner_lines(settings, url)
            print("\n".join([f"Antiphon serves Open Responses on {url}", *lines]), flush=True)

    with listener or open_socket(options.host, options.port) as listener:
        run = uvicorn_config(app or create_app(settings), options.host, options.port, settings)
        server = GatewayServer(run, on_ready=print_banner, exit_process=exit_now)
        with report_store_errors(settings):
            server.run([listener])


def serve_background(options: ServeOptions) -> None:
    """Run background responses of a shared store, without HTTP, until a signal arrives; raises StartupError."""
    settings, app = load_application(options)
    if app:
        raise StartupError(f"{options.targets[0]} is an ASGI application. A worker takes agents or Settings.")
    check_store_is_shared(settings, "antiphon worker")
    with report_store_errors(settings):
        asyncio.run(run_background(settings))


async def run_background(settings: Settings) -> None:
    """Run background responses until a signal arrives, then drain."""
    service, stop = Service(settings), asyncio.Event()
    loop = asyncio.get_running_loop()

    def receive_signal() -> None:
        service.skip_drain = stop.is_set()  # at the second one
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, receive_signal)
    await service.engine()
    print(f"Antiphon runs background responses that are stored {describe_store(settings)}", flush=True)
    await stop.wait()
    await service.close()


def check_store_is_shared(settings: Settings, what: str) -> None:
    """Raise StartupError if other processes cannot use the store."""
    if settings.store is None and settings.responses_dir is None:
        raise StartupError(f"{what} needs a store that processes share. Leave out --data :memory:, or use --store.")


@contextmanager
def report_store_errors(settings: Settings) -> Generator[None]:
    """Turn an error of the store into a StartupError that says what to do."""
    try:
        yield
    except StoreError as error:
        named = settings.store or "another folder" in str(error)
        advice = "" if named else " Choose another folder with --data."
        raise StartupError(end_sentence(str(error)) + advice) from None


def load_application(options: ServeOptions) -> tuple[Settings, AsgiApp | None]:
    """Return the settings of the options, and the user's ASGI application if one is named; raises StartupError."""
    loaded = TargetLoader().load(options.targets, options.folders)
    if options.api_key == "":
        raise StartupError("the API key is empty. Set ANTIPHON_API_KEY to a secret, or unset it.")
    if options.data == "":
        raise StartupError("--data is empty. Name a folder, or leave --data out.")
    if options.data is not None and options.store:
        raise StartupError("--data and --store name two places. Leave one of them out.")
    if isinstance(loaded, Settings):
        settings = apply_options(loaded, options)
        config = read_configuration(settings, options.config)
        return settings.with_config(config) if config else settings, None
    # The settings of a finished application cannot be changed any more.
    settings = settings_of(loaded)
    if options.config or apply_options(settings, options) != settings:
        advice = "set the configuration, the key, the data folder and the drain time in its own Settings"
        raise StartupError(f"{options.targets[0]} is an ASGI application: {advice}.")
    return settings, loaded


def read_configuration(settings: Settings, path: Path | None) -> GatewayConfig | None:
    """Read the configuration; return None if the settings have providers and no file is given. Raises ConfigError."""
    # Settings with providers are complete: a file that happens to lie here must not change them.
    if path is None and (settings.providers or settings.aliases):
        return None
    return load_config(path, agents=settings.agent_models)


def banner_lines(settings: Settings, url: str) -> list[str]:
    """Return the lines that list the models, how long responses are kept, and an example request."""
    models = list(dict.fromkeys([*settings.agent_models, *settings.aliases]))
    providers = settings.ready
    if not (models or providers):
        return []
    # A local server is offered though nobody configured it; it is contacted on first use.
    local = {name for name in BUILT_IN if adapter_class(name).is_local()}
    named = [f"{name} (if it runs)" if name in local else name for name in providers]
    return [
        *([f"models: {', '.join(models)}"] if models else []),
        *([f"providers: {', '.join(named)}"] if named else []),
        f"stored: {describe_store(settings)}, until "
        f"{settings.response_seconds / 86400:g} days after the end of a response or of one that continues it",
        CURL_EXAMPLE.format(
            url=url, key=CURL_KEY if settings.api_key else "", model=models[0] if models else f"{providers[0]}/NAME"
        ),
    ]


def describe_store(settings: Settings) -> str:
    """Return where responses are stored; a password is not shown."""
    if settings.store is not None:
        return f"in {describe_url(settings.store)}"
    return f"in {settings.responses_dir}" if settings.responses_dir else "in memory only"


def settings_of(app: object) -> Settings:
    """Return an application's settings; the defaults if `create_app` did not make it."""
    service = find_service(app)
    return service.settings if service else Settings()


def apply_options(settings: Settings, options: ServeOptions) -> Settings:
    """Return settings changed by the options of the command line."""
    if options.data is not None:
        folder = None if options.data == ":memory:" else Path(options.data)  # the name that SQLite has for it
        settings = replace(settings, responses_dir=folder)
    if options.store:
        settings = replace(settings, store=options.store)
    if options.drain_seconds is not None:
        settings = replace(settings, drain_seconds=options.drain_seconds)
    if options.seal_keys is not None:
        settings = replace(settings, seal_keys=parse_encryption_keys(options.seal_keys))
    origins = settings.allowed_origins
    if options.allowed_origins:
        origins = [*origins, *options.allowed_origins]
    return replace(settings, api_key=options.api_key or settings.api_key, allowed_origins=origins)


def parse_encryption_keys(text: str) -> list[str]:
    """Parse keys that are separated by commas, the newest first; raises StartupError."""
    keys = text.replace(",", " ").split()
    try:
        check_keys(keys)
    except ValueError as error:
        raise StartupError(f"the encryption keys are invalid. {error} Make one with: openssl rand -base64 32") from None
    return keys


CURL_EXAMPLE = """\
try:    curl -N {url}/v1/responses -H 'Content-Type: application/json'{key} \\
          -d '{{"model": "{model}", "input": "Hello!", "stream": true}}'"""
# Not the key itself: what is printed ends up in logs.
CURL_KEY = """ \\
          -H "Authorization: Bearer $ANTIPHON_API_KEY\""""


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises StartupError."""
    # Opened before uvicorn starts, which would only log the error and exit with code 1.
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        message = f"cannot listen on {host}:{port}: {error.strerror or 'no such address'}. Check --host and --port."
        if error.errno == errno.EADDRINUSE:
            option = "PORT= (make) or --port" if os.environ.get("MAKELEVEL") else "--port"
            message = f"port {port} is already in use. Choose another one with {option}."
        raise StartupError(message) from None


@lru_cache(maxsize=1)
def format_second(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


class LogFormatter(logging.Formatter):
    """Formats the time once a second, because there is a line per request."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - overridden
        return format_second(int(record.created)) + f",{int(record.msecs):03}"


def log_to_stderr() -> None:
    """Write the logs of the server to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    # Of uvicorn only warnings: our own access log has a line per request.
    for name, level in (("antiphon", logging.INFO), ("uvicorn", logging.WARNING)):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
