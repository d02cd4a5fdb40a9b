"""`antiphon models`: what can be asked for, and why something cannot."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import typer
from msgspec import Struct

from antiphon.adapters.registry import find_plugin_problems
from antiphon.cli.exit import exit_now
from antiphon.cli.serve import load_target, read_configuration, settings_of
from antiphon.server.config.load import find_config_file
from antiphon.server.provider_probe import ProbeResult, ProviderStatus, probe_providers
from antiphon.server.settings import Settings
from antiphon.wire import json

STATUS_COLOURS: Mapping[str, str] = {"ready": "green", "not ready": "red"}
"""The other states are yellow."""


class AliasStatus(Struct, frozen=True, kw_only=True):
    """Another name, the models it means, and whether one of them can be asked."""

    name: str
    status: ProviderStatus
    targets: Sequence[str]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelsReport:
    """Everything that can be asked for, or could."""

    config: str | None
    agents: Sequence[str]
    aliases: Sequence[AliasStatus] = ()
    providers: Sequence[ProbeResult] = ()
    problems: Sequence[str] = ()
    """What is wrong with adapters that installed packages bring."""


def list_models(target: str | None, path: Path | None, *, as_json: bool) -> None:
    """Print what there is, and leave; raises Refused for a configuration that cannot be read."""
    logging.getLogger("antiphon.survey").addHandler(logging.NullHandler())  # the table says it
    loaded = load_target(target) if target else Settings()
    settings = loaded if isinstance(loaded, Settings) else settings_of(loaded)
    read = read_configuration(settings, path)
    source = find_config_file(path) if read else None
    if read:
        settings = settings.with_config(read)
    known = ModelsReport(
        config=str(source) if source else None,
        agents=settings.agent_models,
        problems=find_plugin_problems(),
    )
    asyncio.run(print_report(known, settings, read.reasons if read else {}, as_json=as_json))


async def print_report(
    report: ModelsReport, settings: Settings, reasons: Mapping[str, str], *, as_json: bool
) -> NoReturn:
    """Print what there is, and leave: whoever looks for credentials may do so for ever."""
    found = add_probe_results(
        report, settings, await probe_providers(settings.providers, settings.keys, reasons)
    )
    if as_json:
        exit_now(0, json.encode(found) + b"\n")  # bytes: JSON is UTF-8, whatever a terminal shows
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    table = "\n".join([*format_report(found, coloured=coloured), ""])
    exit_now(0, table.encode(sys.stdout.encoding, "replace"))


def add_probe_results(
    report: ModelsReport, settings: Settings, providers: Sequence[ProbeResult]
) -> ModelsReport:
    """Add to what is known what the providers were found to be."""
    names = {one.name: one for one in providers}
    aliases = [
        alias_status(name, list(to), names, report.agents) for name, to in settings.aliases.items()
    ]
    return replace(report, aliases=aliases, providers=providers)


def alias_status(
    name: str, targets: Sequence[str], providers: Mapping[str, ProbeResult], agents: Sequence[str]
) -> AliasStatus:
    """Tell whether one of an alias's models can be asked."""
    failing: list[str] = []
    for target in targets:
        provider = providers.get(target.partition("/")[0])
        if target not in agents and (provider is None or provider.status == "not ready"):
            failing.append(target)
    reason = f"not ready: {', '.join(failing)}" if failing else ""
    status: ProviderStatus = "not ready" if len(failing) == len(targets) else "ready"
    return AliasStatus(name=name, status=status, targets=targets, reason=reason)


# --- as a table -----------------------------------------------------------------------------------


def format_report(report: ModelsReport, *, coloured: bool = False) -> Iterator[str]:
    """Write an overview for people."""
    states = [*report.aliases, *report.providers]
    width = max(map(len, [*report.agents, *(one.name for one in states)]), default=0)
    wide = max(map(len, ["ready", *(one.status for one in states)]))

    def row(name: str, status: str, *words: str) -> str:
        mark = typer.style(status, STATUS_COLOURS.get(status, "yellow")) if coloured else status
        padded = mark + " " * (wide - len(status))
        return "  ".join(["", f"{name:<{width}}", padded, *filter(None, words)]).rstrip()

    yield f"configuration: {report.config or 'the environment alone'}"
    if report.agents:
        yield "\nagents"
    for name in report.agents:
        yield row(name, "ready")
    if report.aliases:
        yield "\naliases"
    for one in report.aliases:
        several = " | ".join(one.targets)
        note = f"({one.reason})" if one.reason and one.status == "ready" else ""
        yield row(one.name, one.status, several, note)
    yield "\nproviders"
    for one in report.providers:
        count = f"{len(one.models)} model{'' if len(one.models) == 1 else 's'}"
        words = f"{count} at {one.url}" if one.status == "ready" else one.reason
        yield row(one.name, one.status, strip_control_characters(words))
        for model in one.models:
            yield f"    {strip_control_characters(model)}"
    if report.problems:
        yield "\nadapters that cannot be used"
    for problem in report.problems:
        yield f"  {strip_control_characters(problem)}"


def strip_control_characters(words: str) -> str:
    """Return what a provider said without anything that a terminal would obey."""
    return "".join(sign if sign.isprintable() else "?" for sign in words)
