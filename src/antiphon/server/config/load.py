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
from antiphon.adapters.provider_config import (
    CREDENTIAL_KEYS,
    ConfigSource,
    ConfigurableProvider,
    Environ,
)
from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.engine.provider_model import is_valid_model_name
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.config.address import invalid_url_problem, is_unencrypted
from antiphon.server.config.tables import (
    ROOT_KEYS,
    URL_KEYS,
    Table,
    check_table,
    dotted_key,
    parse_alias,
    parse_provider_table,
    provider_keys,
    suggest_name,
)
from antiphon.transport.auth import profile_region

logger = logging.getLogger("antiphon.config")

CONFIG_FILE = Path("antiphon.toml")
"""Where the configuration is looked for when nobody says where it is."""


class ConfigError(AntiphonError):
    """What is wrong with the configuration: the file, the key and the fix."""


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
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


def find_config_file(path: Path | str | None = None) -> Path | None:
    """Return the file that is meant: the one given, or the one in this folder, if there is one."""
    if path is not None:
        return Path(path)
    return CONFIG_FILE if CONFIG_FILE.exists() or CONFIG_FILE.is_symlink() else None


def load_config(
    path: Path | str | None = None,
    environ: Environ | None = None,
    *,
    agents: Collection[str] = (),
) -> GatewayConfig:
    """Read the file and the environment; raises ConfigError. Warnings go to the log."""
    source = find_config_file(path)
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
    config = parse_config(
        text, os.environ if environ is None else environ, source=source, agents=agents
    )
    for warning in config.warnings:
        logger.warning("%s", warning)
    return config


def parse_config(
    text: str, environ: Environ, *, source: Path | None = None, agents: Collection[str] = ()
) -> GatewayConfig:
    """Read a configuration; raises ConfigError. `agents` are models that an alias may mean too.

    Nothing but the text and the environment counts, save that hooks are imported; they may lie
    beside the source.
    """
    source = source or CONFIG_FILE
    try:
        root = check_table(tomllib.loads(text), ROOT_KEYS, "")
        return _build_config(root, environ, source, agents)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: this is not TOML: {error}.") from None
    except InvalidValueError as error:
        raise ConfigError(f"{source}: {error.path}: {error.reason}") from None


def _build_config(
    root: Table, environ: Environ, file: Path, agents: Collection[str]
) -> GatewayConfig:
    tables = cast("Table", root.get("providers", {}))
    aliases = cast("Table", root.get("models", {}))
    said = {name: parse_provider_table(name, value, file.parent) for name, value in tables.items()}
    entries = {
        name: ProviderEntry.build(_config_source(name, fields, environ, in_file=True))
        for name, fields in said.items()
    }
    for name in BUILT_IN:
        if name not in said:
            source = _config_source(name, {"adapter": name}, environ, in_file=False)
            entries[name] = ProviderEntry.build(source)
    targets = {name: parse_alias(name, value) for name, value in aliases.items()}
    models = AliasResolver(targets, entries.keys(), agents).resolve()
    wanted = {model.partition("/")[0] for names in models.values() for model in names}
    meant = {
        name: entry
        for name, entry in entries.items()
        if name in said or not entry.reason or (name in wanted and entry.has_location)
    }
    return GatewayConfig(
        providers={name: entry.provider for name, entry in meant.items()},
        keys={name: entry.key for name, entry in meant.items() if entry.key},
        models=models,
        reasons={name: entry.reason for name, entry in entries.items() if entry.reason},
        warnings=[entry.warning for entry in meant.values() if entry.warning],
    )


@dataclass(frozen=True)
class ProviderEntry:
    """One provider, its key, and what is to be said about it."""

    provider: Provider
    key: str = field(repr=False)
    reason: str = ""
    warning: str = ""
    has_location: bool = True
    """Whether anybody has said where the provider is."""

    @classmethod
    def build(cls, source: ConfigSource) -> "ProviderEntry":
        """Combine what the file and the environment say about a provider."""
        kind = adapter_class(str(source.table["adapter"]))
        from_environment = kind.environment_fields(source)
        fields: Table = {**from_environment, **source.table}
        if not CREDENTIAL_KEYS & source.table.keys():
            fields["api_key_env"] = kind.api_key_variable(fields, source)
        provider = cast("Callable[..., Provider]", Provider)(name=source.name, **fields)
        key = source.variable(provider.api_key_env or "")
        missing = [provider.api_key_env] if provider.api_key_env and not key else []
        place = missing_field(kind, fields, source)
        if place:
            missing.insert(0, place[1])
        reason = (
            invalid_url_reason(kind, from_environment)
            or invalid_key_reason(key, provider)
            or missing_variables_reason(missing)
        )
        if reason:
            return cls(provider, "", reason, has_location=not place)
        return cls(
            provider, key, warning=unencrypted_key_warning(provider, key), has_location=not place
        )


def _config_source(name: str, table: Table, environ: Environ, *, in_file: bool) -> ConfigSource:
    return ConfigSource(
        name=name, table=table, environ=environ, in_file=in_file, profile_region=profile_region
    )


def missing_field(
    kind: type[ConfigurableProvider], fields: Table, source: ConfigSource
) -> tuple[str, str] | None:
    """Return a field that nothing sets, and its variable; raise if the file has to set it."""
    try:
        missing = kind.missing_field(fields, source)
    except InvalidValueError as error:
        path = dotted_key("providers", source.name, error.path)
        raise InvalidValueError(path, error.reason) from None
    if missing and source.in_file:
        raise missing_key_error(source, *missing)
    return missing


def missing_key_error(source: ConfigSource, key: str, variable: str) -> InvalidValueError:
    """Build the error for a table without a key that says where the provider is."""
    advice = provider_keys()[key].example
    if source.has_adapter_name:  # the variables describe no other provider
        advice += f", or set {variable}"
    path = dotted_key("providers", source.name, key)
    return InvalidValueError(path, f"this key is missing. Write {advice}.")


def invalid_url_reason(kind: type[ConfigurableProvider], fields: Mapping[str, str]) -> str:
    """Return why a variable does not hold an address, if one should and does not."""
    for name in URL_KEYS & fields.keys():
        if problem := invalid_url_problem(fields[name]):
            return f"{kind.field_variables[name][0]} {problem}"
    return ""


def missing_variables_reason(variables: list[str]) -> str:
    """Say which variables have to be set."""
    verb = "is" if len(variables) == 1 else "are"
    return f"{' and '.join(variables)} {verb} not set" if variables else ""


def invalid_key_reason(key: str, provider: Provider) -> str:
    """Say that a key can be none; it would break the header that it is sent in."""
    if not key or (key.isascii() and key.isprintable() and " " not in key):
        return ""
    return f"{provider.api_key_env} holds something that is not a key"


def unencrypted_key_warning(provider: Provider, key: str) -> str:
    """Warn of a key that others can read on its way."""
    url = provider.base_url or provider.endpoint
    if not (key and url and is_unencrypted(url)):
        return ""
    return (
        f"{provider.name}: the key in {provider.api_key_env} is sent to {url} unencrypted, "
        "and others may read it. Use https."
    )


class AliasResolver:
    """Everything that a target may name."""

    def __init__(
        self,
        aliases: Mapping[str, list[str]],
        providers: Collection[str],
        agents: Collection[str],
    ) -> None:
        self._aliases = aliases
        self._providers = providers
        self._agents = agents

    def resolve(self) -> dict[str, list[str]]:
        """Return each alias with the models it means, in order; raises ShapeError."""
        for alias in self._aliases:
            if alias in self._providers:
                reason = "a provider has this name already"
                raise InvalidValueError(
                    dotted_key("models", alias), f"{reason}. Choose another name."
                )
        return {alias: self._resolve_alias(alias, ()) for alias in self._aliases}

    def _resolve_alias(self, alias: str, seen: tuple[str, ...]) -> list[str]:
        path, targets = dotted_key("models", alias), self._aliases[alias]
        if alias in seen:
            circle = " -> ".join([*seen[seen.index(alias) :], alias])
            raise InvalidValueError(
                path, f"this goes round in a circle: {circle}. Name a model instead."
            )
        found: list[str] = []
        for index, target in enumerate(targets):
            if target in self._aliases:
                found += self._resolve_alias(target, (*seen, alias))
            else:
                place = f"{path}[{index}]" if len(targets) > 1 else path
                found.append(self._check_target(target, place))
        return list(dict.fromkeys(found))

    def _check_target(self, target: str, path: str) -> str:
        provider, _, model = target.partition("/")
        if target in self._agents:
            return target
        if provider in self._providers and model:
            if not is_valid_model_name(model):
                reason = f"no model can be called '{model}'"
                raise InvalidValueError(path, f"{reason}. Write {provider}/NAME.")
            return target
        if provider in self._providers:
            reason = f"'{target}' names a provider and no model"
            raise InvalidValueError(path, f"{reason}. Write {provider}/NAME.")
        known = {*self._aliases, *self._providers, *(agent.split("/")[0] for agent in self._agents)}
        reason = f"'{target}' points nowhere: there is no '{provider}'"
        raise InvalidValueError(path, f"{reason}. {suggest_name(provider, known)}")
