"""The configuration: `antiphon.toml` and the environment, read into values.

What the file leaves out is taken from the environment, so most providers need no file at all. Keys
come from the environment alone; the file names the variables that hold them. Where the file gives
an address, no key is sent that it does not name.
"""

import logging
import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from antiphon.adapters.base import Provider
from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.core.errors import AntiphonError
from antiphon.core.value import ShapeError
from antiphon.server.address import is_exposed
from antiphon.server.aliases import Names
from antiphon.server.environ import (
    Environ,
    fields_beside,
    key_variable,
    no_address,
    no_project,
    place_variable,
    value_of,
)
from antiphon.server.tables import (
    PROVIDER,
    ROOT,
    Table,
    alias_targets,
    checked,
    dotted,
    provider_fields,
)

logger = logging.getLogger("antiphon.config")

FILE = Path("antiphon.toml")
"""Where the configuration is looked for when nobody says where it is."""

ANOTHER_WAY = frozenset({"api_key_env", "base_url", "project", "profile"})
"""Keys that say which key is shown to whom; without them the adapter's own variable is meant."""


class ConfigError(AntiphonError):
    """What is wrong with the configuration: the file, the key and the fix."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The providers there are, and other names for their models."""

    providers: dict[str, Provider] = field(default_factory=dict[str, Provider])
    keys: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Each provider's key, for those that have one."""

    models: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Each alias, and the models it means, the first choice first."""

    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why a provider cannot be asked; also for those of ours that are not configured."""

    warnings: list[str] = field(default_factory=list[str])

    @property
    def ready(self) -> list[str]:
        """The providers that can be asked."""
        return [name for name in self.providers if name not in self.reasons]


def find(path: Path | str | None = None) -> Path | None:
    """Return the file that is meant: the one given, or the one in this folder, if there is one."""
    if path is not None:
        return Path(path)
    return FILE if FILE.exists() or FILE.is_symlink() else None


def load(
    path: Path | str | None = None,
    environ: Environ | None = None,
    *,
    agents: Collection[str] = (),
) -> Config:
    """Read the file and the environment; raises ConfigError. Warnings go to the log."""
    source = find(path)
    try:
        text = source.read_text(encoding="utf-8-sig") if source else ""
    except FileNotFoundError:
        if source and source.is_symlink():
            raise ConfigError(
                f"{source}: this link leads nowhere. Mend it, or remove it."
            ) from None
        raise ConfigError(f"{source}: there is no such file. Check --config.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: this is not UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{source}: it cannot be read: {error.strerror}.") from None
    config = read(text, os.environ if environ is None else environ, source=source, agents=agents)
    for warning in config.warnings:
        logger.warning("%s", warning)
    return config


def read(
    text: str, environ: Environ, *, source: Path | None = None, agents: Collection[str] = ()
) -> Config:
    """Read a configuration; raises ConfigError. `agents` are models that an alias may mean too.

    Nothing but the text and the environment counts, save that hooks are imported; they may lie
    beside the source.
    """
    source = source or FILE
    try:
        root = checked(tomllib.loads(text), ROOT, "")
        return _config(root, environ, source, agents)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: this is not TOML: {error}.") from None
    except ShapeError as error:
        raise ConfigError(f"{source}: {error.path}: {error.reason}") from None


def _config(root: Table, environ: Environ, source: Path, agents: Collection[str]) -> Config:
    tables = cast("Table", root.get("providers", {}))
    aliases = cast("Table", root.get("models", {}))
    said = {name: provider_fields(name, value, source.parent) for name, value in tables.items()}
    entries = {name: Entry.of(name, fields, environ, alone=False) for name, fields in said.items()}
    for name in BUILT_IN:
        if name not in said:
            entries[name] = Entry.of(name, {"adapter": name}, environ, alone=True)
    targets = {name: alias_targets(name, value) for name, value in aliases.items()}
    models = Names(targets, entries.keys(), agents).resolved()
    wanted = {model.partition("/")[0] for names in models.values() for model in names}
    meant = {
        name: entry
        for name, entry in entries.items()
        if name in said or not entry.reason or (name in wanted and entry.placed)
    }
    return Config(
        providers={name: entry.provider for name, entry in meant.items()},
        keys={name: entry.key for name, entry in meant.items() if entry.key},
        models=models,
        reasons={name: entry.reason for name, entry in entries.items() if entry.reason},
        warnings=[entry.warning for entry in meant.values() if entry.warning],
    )


@dataclass(frozen=True)
class Entry:
    """One provider, its key, and what is to be said about it."""

    provider: Provider
    key: str = field(repr=False)
    reason: str = ""
    warning: str = ""
    placed: bool = True
    """Whether anybody has said where the provider is."""

    @classmethod
    def of(cls, name: str, said: Mapping[str, object], environ: Environ, *, alone: bool) -> "Entry":
        """Put together what the file and the environment say about a provider."""
        adapter = str(said["adapter"])
        kind = adapter_class(adapter)
        given = fields_beside(said, name, environ, alone=alone)
        fields: Table = {**given, **said}
        lost = no_project(said, name, environ)
        if not (lost or ANOTHER_WAY & said.keys()):
            fields["api_key_env"] = key_variable(kind, fields, environ, alone=alone)
        provider = cast("Callable[..., Provider]", Provider)(name=name, **fields)
        key = value_of(provider.api_key_env or "", environ)
        missing = [provider.api_key_env] if provider.api_key_env and not key else []
        place = lost or place_variable(kind, fields, alone=alone)
        if "location" in said and not (place or "project" in fields):
            raise lonely(name)
        if place:
            if not alone:
                raise homeless(name, adapter, *place)
            missing.insert(0, place[1])
        reason = no_address(adapter, given) or unusable(key, provider) or unset(missing)
        if reason:
            return cls(provider, "", reason, placed=not place)
        return cls(provider, key, warning=exposed(provider, key), placed=not place)


def homeless(name: str, adapter: str, key: str, variable: str) -> ShapeError:
    """Say that a provider's table does not say where it is."""
    # The environment speaks only of providers that are called like their adapters.
    advice = PROVIDER[key].example + (f", or set {variable}" if name == adapter else "")
    return ShapeError(dotted("providers", name, key), f"this key is missing. Write {advice}.")


def lonely(name: str) -> ShapeError:
    """Say that a location alone is no place at Vertex AI."""
    advice = f"this means nothing without a project. Write {PROVIDER['project'].example} beside it."
    return ShapeError(dotted("providers", name, "location"), advice)


def unset(variables: list[str]) -> str:
    """Say which variables have to be set."""
    verb = "is" if len(variables) == 1 else "are"
    return f"{' and '.join(variables)} {verb} not set" if variables else ""


def unusable(key: str, provider: Provider) -> str:
    """Say that a key can be none; it would break the header that it is sent in."""
    if not key or (key.isascii() and key.isprintable() and " " not in key):
        return ""
    return f"{provider.api_key_env} holds something that is not a key"


def exposed(provider: Provider, key: str) -> str:
    """Warn of a key that others can read on its way."""
    url = provider.base_url or provider.endpoint
    if not (key and url and is_exposed(url)):
        return ""
    return (
        f"{provider.name}: the key in {provider.api_key_env} is sent to {url} unencrypted, "
        "and others may read it. Use https."
    )
