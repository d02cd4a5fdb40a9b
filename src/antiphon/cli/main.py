"""`antiphon`: the commands and their options."""

import io
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer


class StartupError(Exception):
    """Why a command cannot start, and what to do."""


def exit_now(code: int, output: bytes = b"") -> NoReturn:
    """Flush the logs and the output, write `output`, and end the process."""
    logging.shutdown()
    try:
        with suppress(BrokenPipeError):  # the reader has closed the pipe
            sys.stdout.flush()
            sys.stdout.buffer.write(output)
            sys.stdout.flush()
    except OSError as error:
        code = code or 1
        with suppress(OSError):
            print(f"antiphon: cannot write the output: {error}", file=sys.stderr)
    with suppress(OSError):
        sys.stderr.flush()
    # Unlike `sys.exit`, this does not wait for threads.
    os._exit(code)


app = typer.Typer(
    name="antiphon",
    help="One open protocol in front of every model and every agent.",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback(invoke_without_command=True)
# A flag takes no value: without `metavar` Typer's help would show one.
def root(version: Annotated[bool, typer.Option("--version", metavar="", help="Show the version.")] = False) -> None:
    """One open protocol in front of every model and every agent."""
    if version:
        from antiphon import __version__

        typer.echo(f"antiphon {__version__}")
        raise typer.Exit


Target = Annotated[
    list[str],
    typer.Option("--app", metavar="MODULE[:ATTR]", help="Your agents (may be repeated), or your own ASGI application."),
]
Folders = Annotated[
    list[Path],
    typer.Option("--agents", metavar="FOLDER", help="A folder of agents: every module in it (may be repeated)."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Providers and aliases, in TOML.", show_default="./antiphon.toml, if there is one"
    ),
]


DataFolder = Annotated[
    str | None,
    # Not a Path: an empty one would mean the current folder.
    typer.Option(
        "--data", metavar="FOLDER", help="Folder that stores responses, or :memory:.", show_default="./responses"
    ),
]
StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="ANTIPHON_STORE",
        metavar="URL",
        help="PostgreSQL database that stores everything instead, for several servers: postgresql://…",
    ),
]
SealKeys = Annotated[
    str | None,
    typer.Option(
        envvar="ANTIPHON_SEAL_KEYS",
        help="Keys that encrypt content kept by clients, newest first, separated by commas.",
        show_default="a key in the data folder or database",
    ),
]
DrainSeconds = Annotated[
    float | None,
    typer.Option(
        min=0, max=86400, help="How long running responses may take to finish at shutdown.", show_default="25"
    ),
]


@app.command()
def serve(  # noqa: PLR0913 - one parameter per option
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    apps: Target = [],  # noqa: B006 - typer copies it
    folders: Folders = [],  # noqa: B006
    config: ConfigFile = None,
    data: DataFolder = None,
    store: StoreAddress = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="ANTIPHON_API_KEY", help="Bearer token that clients must send.")
    ] = None,
    seal_keys: SealKeys = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", metavar="", help="Serve other machines without a key.")] = False,
    drain_seconds: DrainSeconds = None,
    allowed_origins: Annotated[
        list[str],
        typer.Option(
            "--allow-origin", metavar="ORIGIN", help="A web origin whose pages may use the server (may be repeated)."
        ),
    ] = [],  # noqa: B006
    reload: Annotated[
        bool, typer.Option("--reload", metavar="", help="Restart when a .py, .toml or .yaml file changes here.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="How many processes serve the port.")] = 1,
) -> None:
    """Serve Open Responses over HTTP.

    Models are `demo`, `echo`, the agents of --app and --agents, and the models of every provider in --config or the
    environment, as PROVIDER/MODEL. `antiphon models` lists all models.

    MODULE:ATTR names an agent, a list or dict of agents, Settings, or an ASGI application; MODULE alone means all
    agents of the module. An agent is made with @agent, the OpenAI Agents SDK, Pydantic AI, LangGraph, LangChain or
    Xaibo.
    """
    # Commands import what they need, so that `antiphon --help` does not load the server.
    from antiphon.cli.serve import ServeOptions, log_to_stderr, serve

    options = ServeOptions(
        host=host,
        port=port,
        targets=apps,
        folders=folders,
        config=config,
        data=data,
        store=store,
        api_key=api_key,
        seal_keys=seal_keys,
        no_auth=no_auth,
        drain_seconds=drain_seconds,
        allowed_origins=allowed_origins,
    )
    if reload and workers > 1:
        raise StartupError("--reload serves with one process. Leave out --workers.")
    if reload:
        from antiphon.cli.reload import serve_with_reload

        serve_with_reload(options)
    elif workers > 1:
        from antiphon.cli.processes import serve_with_workers

        serve_with_workers(options, workers)
    else:
        log_to_stderr()
        serve(options)


@app.command()
def worker(  # noqa: PLR0913 - one parameter per option
    apps: Target = [],  # noqa: B006
    folders: Folders = [],  # noqa: B006
    config: ConfigFile = None,
    data: DataFolder = None,
    store: StoreAddress = None,
    seal_keys: SealKeys = None,
    drain_seconds: DrainSeconds = None,
) -> None:
    """Run background responses of servers that share the store, without HTTP.

    Give it the same agents, configuration, store and keys as the servers.
    """
    from antiphon.cli.serve import ServeOptions, log_to_stderr, serve_background

    log_to_stderr()
    serve_background(
        ServeOptions(
            targets=apps,
            folders=folders,
            config=config,
            data=data,
            store=store,
            seal_keys=seal_keys,
            drain_seconds=drain_seconds,
        )
    )


@app.command()
def models(
    apps: Target = [],  # noqa: B006 - typer copies it
    folders: Folders = [],  # noqa: B006
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Write JSON.")] = False,
) -> None:
    """List available models, and why others are unavailable.

    Every configured provider is asked for its models, with a timeout of five seconds.
    """
    from antiphon.cli.models import list_models

    list_models(apps, folders, config, as_json=as_json)


@app.command()
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Log with one JSON event per line; - is standard input.")],
    source: Annotated[
        Literal["blocks", "threads"],
        typer.Option("--from", help="Event model of the log: llm_client's blocks, or threads of VT Code and Codex."),
    ],
    output: Annotated[
        Literal["sse", "response", "input"],
        typer.Option("--to", help="The stream, the response, or the items to send with the next request."),
    ] = "sse",
) -> None:
    """Convert a log of another event model to Open Responses."""
    from antiphon.cli.convert import convert_log

    convert_log(file, source, output)


@contextmanager
def report_startup_errors() -> Generator[None]:
    """Print why a command cannot start, and exit; characters that the terminal cannot encode become question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        yield
    except Exception as error:
        from antiphon.server.config.load import ConfigError, InvalidValueError

        # The last one is what `Settings` raise.
        if not isinstance(error, StartupError | ConfigError | InvalidValueError):
            raise
        typer.echo(f"antiphon: {error}", err=True)
        sys.exit(2)


def main() -> None:
    """Run the command line."""
    with report_startup_errors():
        app(sys.argv[1:] or ["--help"])
