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

from antiphon.adapters.registry import problems
from antiphon.cli.leave import leave
from antiphon.cli.serve import configuration, load, settings_of
from antiphon.server.config import find
from antiphon.server.settings import Settings
from antiphon.server.survey import Found, Status, survey
from antiphon.wire import json

COLOURS: Mapping[str, str] = {"ready": "green", "not ready": "red"}
"""The other states are yellow."""


class Alias(Struct, frozen=True, kw_only=True):
    """Another name, the models it means, and whether one of them can be asked."""

    name: str
    status: Status
    targets: Sequence[str]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Everything that can be asked for, or could."""

    config: str | None
    agents: Sequence[str]
    aliases: Sequence[Alias] = ()
    providers: Sequence[Found] = ()
    problems: Sequence[str] = ()
    """What is wrong with adapters that installed packages bring."""


def models(target: str | None, path: Path | None, *, as_json: bool) -> None:
    """Print what there is, and leave; raises Refused for a configuration that cannot be read."""
    logging.getLogger("antiphon.survey").addHandler(logging.NullHandler())  # the table says it
    loaded = load(target) if target else Settings()
    settings = loaded if isinstance(loaded, Settings) else settings_of(loaded)
    read = configuration(settings, path)
    source = find(path) if read else None
    if read:
        settings = settings.with_config(read)
    known = Overview(
        config=str(source) if source else None,
        agents=settings.agent_models,
        problems=problems(),
    )
    asyncio.run(tell(known, settings, read.reasons if read else {}, as_json=as_json))


async def tell(
    known: Overview, settings: Settings, reasons: Mapping[str, str], *, as_json: bool
) -> NoReturn:
    """Print what there is, and leave: whoever looks for credentials may do so for ever."""
    found = surveyed(known, settings, await survey(settings.providers, settings.keys, reasons))
    if as_json:
        leave(0, json.encode(found) + b"\n")  # bytes: JSON is UTF-8, whatever a terminal shows
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    table = "\n".join([*lines(found, coloured=coloured), ""])
    leave(0, table.encode(sys.stdout.encoding, "replace"))


def surveyed(known: Overview, settings: Settings, providers: Sequence[Found]) -> Overview:
    """Add to what is known what the providers were found to be."""
    names = {one.name: one for one in providers}
    aliases = [alias(name, list(to), names, known.agents) for name, to in settings.aliases.items()]
    return replace(known, aliases=aliases, providers=providers)


def alias(
    name: str, targets: Sequence[str], providers: Mapping[str, Found], agents: Sequence[str]
) -> Alias:
    """Tell whether one of an alias's models can be asked."""
    failing: list[str] = []
    for target in targets:
        provider = providers.get(target.partition("/")[0])
        if target not in agents and (provider is None or provider.status == "not ready"):
            failing.append(target)
    reason = f"not ready: {', '.join(failing)}" if failing else ""
    status: Status = "not ready" if len(failing) == len(targets) else "ready"
    return Alias(name=name, status=status, targets=targets, reason=reason)


# --- as a table -----------------------------------------------------------------------------------


def lines(found: Overview, *, coloured: bool = False) -> Iterator[str]:
    """Write an overview for people."""
    states = [*found.aliases, *found.providers]
    width = max(map(len, [*found.agents, *(one.name for one in states)]), default=0)
    wide = max(map(len, ["ready", *(one.status for one in states)]))

    def row(name: str, status: str, *words: str) -> str:
        mark = typer.style(status, COLOURS.get(status, "yellow")) if coloured else status
        padded = mark + " " * (wide - len(status))
        return "  ".join(["", f"{name:<{width}}", padded, *filter(None, words)]).rstrip()

    yield f"configuration: {found.config or 'the environment alone'}"
    if found.agents:
        yield "\nagents"
    for name in found.agents:
        yield row(name, "ready")
    if found.aliases:
        yield "\naliases"
    for one in found.aliases:
        several = " | ".join(one.targets)
        note = f"({one.reason})" if one.reason and one.status == "ready" else ""
        yield row(one.name, one.status, several, note)
    yield "\nproviders"
    for one in found.providers:
        count = f"{len(one.models)} model{'' if len(one.models) == 1 else 's'}"
        words = f"{count} at {one.url}" if one.status == "ready" else one.reason
        yield row(one.name, one.status, printable(words))
        for model in one.models:
            yield f"    {printable(model)}"
    if found.problems:
        yield "\nadapters that cannot be used"
    for problem in found.problems:
        yield f"  {printable(problem)}"


def printable(words: str) -> str:
    """Return what a provider said without anything that a terminal would obey."""
    return "".join(sign if sign.isprintable() else "?" for sign in words)
