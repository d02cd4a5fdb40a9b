"""`antiphon models`: the available models, and why others are unavailable."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer
from msgspec import Struct

from antiphon.adapters.registry import find_plugin_problems
from antiphon.cli.load import TargetLoader
from antiphon.cli.main import exit_now
from antiphon.cli.serve import read_configuration, settings_of
from antiphon.server.config.load import find_config_file
from antiphon.server.provider_probe import ProbeResult, ProviderStatus, probe_providers
from antiphon.server.settings import Settings
from antiphon.wire import json

STATUS_COLOURS: Mapping[str, str] = {"ready": "green", "not ready": "red"}
"""Other statuses are yellow."""


class AliasStatus(Struct, frozen=True, kw_only=True):
    """An alias, its models, and whether one of them is available."""

    name: str
    status: ProviderStatus
    targets: Sequence[str]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelsReport:
    """The report that the command prints; its fields are those of the JSON output."""

    config: str | None
    agents: Sequence[str]
    aliases: Sequence[AliasStatus] = ()
    providers: Sequence[ProbeResult] = ()
    problems: Sequence[str] = ()
    """Errors of adapters from installed packages."""


def list_models(targets: Sequence[str], folders: Sequence[Path], path: Path | None, *, as_json: bool) -> None:
    """Print the report and exit; raises StartupError."""
    # The report shows what these loggers would write.
    for name in ("antiphon.survey", "antiphon.config.providers"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    loaded = TargetLoader().load(targets, folders)
    settings = loaded if isinstance(loaded, Settings) else settings_of(loaded)
    config = read_configuration(settings, path)
    source = find_config_file(path) if config else None
    if config:
        settings = settings.with_config(config)
    asyncio.run(print_report(settings, config.reasons if config else {}, source, as_json=as_json))


async def print_report(
    settings: Settings, reasons: Mapping[str, str], source: Path | None, *, as_json: bool
) -> NoReturn:
    """Probe the providers, print the report and exit."""
    agents = settings.agent_models
    providers = await probe_providers(settings.providers, settings.keys, reasons)
    by_name = {result.name: result for result in providers}
    report = ModelsReport(
        config=str(source) if source else None,
        agents=agents,
        aliases=[alias_status(name, targets, by_name, agents) for name, targets in settings.aliases.items()],
        providers=providers,
        problems=find_plugin_problems(),
    )
    # `exit_now`, because a thread that fetches credentials may block for minutes.
    if as_json:
        exit_now(0, json.encode(report) + b"\n")  # bytes: JSON is UTF-8 in any locale
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    table = "\n".join([*format_report(report, coloured=coloured), ""])
    exit_now(0, table.encode(sys.stdout.encoding, "replace"))


def alias_status(
    name: str, targets: Sequence[str], providers: Mapping[str, ProbeResult], agents: Sequence[str]
) -> AliasStatus:
    """Return whether at least one model of an alias is available."""
    unavailable: list[str] = []
    for target in targets:
        provider = providers.get(target.partition("/")[0])
        if target not in agents and (provider is None or provider.status == "not ready"):
            unavailable.append(target)
    reason = f"not ready: {', '.join(unavailable)}" if unavailable else ""
    # One available model is enough: the others are skipped.
    status: ProviderStatus = "not ready" if len(unavailable) == len(targets) else "ready"
    return AliasStatus(name=name, status=status, targets=targets, reason=reason)


def format_report(report: ModelsReport, *, coloured: bool = False) -> Iterator[str]:
    """Return the lines of the report for people."""
    rows = [*report.aliases, *report.providers]
    name_width = max(map(len, [*report.agents, *(row.name for row in rows)]), default=0)
    status_width = max(map(len, ["ready", *(row.status for row in rows)]))

    def format_row(name: str, status: str, *columns: str) -> str:
        label = typer.style(status, STATUS_COLOURS.get(status, "yellow")) if coloured else status
        padded = label + " " * (status_width - len(status))  # colour codes have no width
        return "  ".join(["", f"{name:<{name_width}}", padded, *filter(None, columns)]).rstrip()

    yield f"configuration: {report.config or 'the environment alone'}"
    if report.agents:
        yield "\nagents"
    for name in report.agents:
        hidden = any(name == alias.name for alias in report.aliases)
        yield format_row(name, "ready", "(hidden by the alias of this name)" if hidden else "")
    if report.aliases:
        yield "\naliases"
    for alias in report.aliases:
        note = f"({alias.reason})" if alias.reason and alias.status == "ready" else ""
        yield format_row(alias.name, alias.status, " | ".join(alias.targets), note)
    yield "\nproviders"
    for provider in report.providers:
        count = f"{len(provider.models)} model{'' if len(provider.models) == 1 else 's'}"
        detail = f"{count} at {provider.url}" if provider.status == "ready" else provider.reason
        yield format_row(provider.name, provider.status, strip_control_characters(detail))
        for model in provider.models:
            yield f"    {strip_control_characters(model)}"
    if report.problems:
        yield "\nadapters that cannot be used"
    for problem in report.problems:
        yield f"  {strip_control_characters(problem)}"


def strip_control_characters(text: str) -> str:
    """Return a provider's text without control characters, which could drive the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
