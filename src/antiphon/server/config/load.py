"""Reads the configuration from `antiphon.toml` and the environment.

The environment supplies what the file leaves out, so most providers need no file. API keys come
from the environment only; the file names the variables that hold them. No key is sent to a
`base_url` of the file unless the provider's `api_key_env` is set.
"""

import logging
import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from antiphon.adapters.base import CREDENTIAL_KEYS, ConfigSource, ConfigurableProvider, Environ, Provider
from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.engine.provider_model import is_valid_model_name
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.config import tables
from antiphon.server.config.tables import Table, dotted_key
from antiphon.transport.auth import profile_region

logger = logging.getLogger("antiphon.config")

CONFIG_FILE = Path("antiphon.toml")
"""The default configuration file."""


class ConfigError(AntiphonError):
    """A mistake in the configuration: the file, the key and the fix."""


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Providers, their API keys, and aliases of models."""

    providers: dict[str, Provider] = field(default_factory=dict[str, Provider])
    keys: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """API keys by provider."""

    models: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The models of each alias, in the order in which they are tried."""

    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why a provider is unavailable; includes built-in ones that are not configured."""

    warnings: list[str] = field(default_factory=list[str])

    @property
    def ready(self) -> list[str]:
        """The names of the available providers."""
        return [name for name in self.providers if name not in self.reasons]


def find_config_file(path: Path | str | None = None) -> Path | None:
    """Return the given file, or `./antiphon.toml` if it exists, or None."""
    if path is not None:
        return Path(path)
    return CONFIG_FILE if CONFIG_FILE.exists() or CONFIG_FILE.is_symlink() else None


def load_config(
    path: Path | str | None = None, environ: Environ | None = None, *, agents: Collection[str] = ()
) -> GatewayConfig:
    """Read the file and the environment; raises ConfigError. Warnings go to the log."""
    source = find_config_file(path)
    try:
        # "-sig", because Windows editors put a byte order mark first.
        text = source.read_text(encoding="utf-8-sig") if source else ""
    except FileNotFoundError:
        if source and source.is_symlink():
            raise ConfigError(f"{source}: this link is broken. Fix or remove it.") from None
        raise ConfigError(f"{source}: there is no such file. Check --config.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: this is not UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{source}: cannot read the file: {error.strerror}.") from None
    config = parse_config(text, os.environ if environ is None else environ, source=source, agents=agents)
    for warning in config.warnings:
        logger.warning("%s", warning)
    return config


def parse_config(
    text: str, environ: Environ, *, source: Path | None = None, agents: Collection[str] = ()
) -> GatewayConfig:
    """Parse a configuration; raises ConfigError. `agents` are models that an alias may name.

    The result depends on the text and the environment only, except that hooks are imported, also
    from the folder of the source.
    """
    source = source or CONFIG_FILE
    try:
        root = tables.check_table(tomllib.loads(text), tables.ROOT_KEYS, "")
        return _build_config(root, environ, source, agents)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: this is not TOML: {error}.") from None
    except InvalidValueError as error:
        raise ConfigError(f"{source}: {error.path}: {error.reason}") from None


def _build_config(root: Table, environ: Environ, file: Path, agents: Collection[str]) -> GatewayConfig:
    providers = cast("Table", root.get("providers", {}))
    in_file = {name: tables.parse_provider_table(name, value, file.parent) for name, value in providers.items()}
    make_source = partial(ConfigSource, environ=environ, profile_region=profile_region)
    sources = [make_source(name=name, table=table, in_file=True) for name, table in in_file.items()]
    sources += [
        make_source(name=name, table={"adapter": name}, in_file=False) for name in BUILT_IN if name not in in_file
    ]
    entries = {source.name: ProviderEntry.build(source) for source in sources}
    aliases = cast("Table", root.get("models", {}))
    targets = {name: tables.parse_alias(name, value) for name, value in aliases.items()}
    models = resolve_aliases(targets, entries.keys(), agents)
    aliased = {model.partition("/")[0] for names in models.values() for model in names}
    # A provider that an alias names is kept without its key: requests then fail with the name of
    # the missing variable, instead of "no such model".
    included = {
        name: entry
        for name, entry in entries.items()
        if name in in_file or not entry.reason or (name in aliased and entry.has_location)
    }
    return GatewayConfig(
        providers={name: entry.provider for name, entry in included.items()},
        keys={name: entry.key for name, entry in included.items() if entry.key},
        models=models,
        reasons={name: entry.reason for name, entry in entries.items() if entry.reason},
        warnings=[entry.warning for entry in included.values() if entry.warning],
    )


@dataclass(frozen=True)
class ProviderEntry:
    """One provider, its key, and why it is unavailable or unsafe."""

    provider: Provider
    key: str = field(repr=False)
    reason: str = ""
    warning: str = ""
    has_location: bool = True
    """Whether the provider's address is known."""

    @classmethod
    def build(cls, source: ConfigSource) -> "ProviderEntry":
        """Combine what the file and the environment say about a provider."""
        kind = adapter_class(str(source.table["adapter"]))
        from_environment = kind.environment_fields(source)
        fields: Table = {**from_environment, **source.table}
        # A table that says which key is sent where is complete: the adapter's own variable might
        # hold the key of another account.
        if not CREDENTIAL_KEYS & source.table.keys():
            fields["api_key_env"] = kind.api_key_variable(fields, source)
        provider = cast("Callable[..., Provider]", Provider)(name=source.name, **fields)
        key = source.variable(provider.api_key_env or "")
        location = missing_field(kind, fields, source)
        missing = [location[1]] if location else []
        if provider.api_key_env and not key:
            missing.append(provider.api_key_env)
        reason = invalid_url_reason(kind, from_environment) or invalid_key_reason(key, provider)
        if missing and not reason:
            reason = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        if reason:
            return cls(provider, "", reason, has_location=not location)
        warning = unencrypted_key_warning(provider, key)
        return cls(provider, key, warning=warning, has_location=not location)


def missing_field(kind: type[ConfigurableProvider], fields: Table, source: ConfigSource) -> tuple[str, str] | None:
    """Return a field that nothing sets, and its variable; raise if the file has to set it."""
    try:
        missing = kind.missing_field(fields, source)
    except InvalidValueError as error:
        raise InvalidValueError(dotted_key("providers", source.name, error.path), error.reason) from None
    if missing and source.in_file:
        key, variable = missing
        advice = tables.provider_keys()[key].example
        if source.has_adapter_name:  # the variables describe no other provider
            advice += f", or set {variable}"
        path = dotted_key("providers", source.name, key)
        raise InvalidValueError(path, f"this key is missing. Write {advice}.")
    return missing


def invalid_url_reason(kind: type[ConfigurableProvider], fields: Mapping[str, str]) -> str:
    """Return why a variable does not hold an address, if one should and does not."""
    for name in tables.URL_KEYS & fields.keys():
        if problem := tables.invalid_url_problem(fields[name]):
            return f"{kind.field_variables[name][0]} {problem}"
    return ""


def invalid_key_reason(key: str, provider: Provider) -> str:
    """Return why a key is invalid: it would break the header in which it is sent."""
    if not key or (key.isascii() and key.isprintable() and " " not in key):
        return ""
    return f"{provider.api_key_env} does not hold a valid key"


def unencrypted_key_warning(provider: Provider, key: str) -> str:
    """Return the warning for a key that is sent over plain HTTP, or an empty string."""
    url = provider.base_url or provider.endpoint
    if not (key and url and tables.is_unencrypted(url)):
        return ""
    return (
        f"{provider.name}: the key in {provider.api_key_env} is sent to {url} unencrypted, "
        "and can be read on the way. Use https."
    )


def resolve_aliases(
    aliases: Mapping[str, list[str]], providers: Collection[str], agents: Collection[str]
) -> dict[str, list[str]]:
    """Return the models of each alias, in order; raises InvalidValueError. Aliases may name other aliases."""

    def resolve(alias: str, seen: tuple[str, ...]) -> list[str]:
        path, targets = dotted_key("models", alias), aliases[alias]
        if alias in seen:
            circle = " -> ".join([*seen[seen.index(alias) :], alias])
            raise InvalidValueError(path, f"circular alias: {circle}. Name a model instead.")
        models: list[str] = []
        for index, target in enumerate(targets):
            if target in aliases:
                models += resolve(target, (*seen, alias))
                continue
            if target not in agents:
                check_target(target, f"{path}[{index}]" if len(targets) > 1 else path)
            models.append(target)
        return list(dict.fromkeys(models))

    def check_target(target: str, path: str) -> None:
        provider, _, model = target.partition("/")
        if provider not in providers:
            known = {*aliases, *providers, *(agent.split("/")[0] for agent in agents)}
            reason = f"'{target}' does not exist: there is no provider or alias '{provider}'"
            raise InvalidValueError(path, f"{reason}. {tables.suggest_name(provider, known)}")
        if not model:
            raise InvalidValueError(path, f"'{target}' names a provider without a model. Write {provider}/NAME.")
        if not is_valid_model_name(model):
            raise InvalidValueError(path, f"'{model}' is not a valid model name. Write {provider}/NAME.")

    for alias in aliases:
        if alias in providers:
            path = dotted_key("models", alias)
            raise InvalidValueError(path, "a provider has this name already. Choose another name.")
    return {alias: resolve(alias, ()) for alias in aliases}
