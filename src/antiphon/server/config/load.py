"""Reads the configuration from `antiphon.toml` and the environment.

The environment supplies what the file leaves out, so most providers need no file. API keys come
from the environment only; the file names the variables that hold them. No key is sent to a
`base_url` of the file unless the provider's `api_key_env` is set.
"""

import logging
import os
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from antiphon.adapters.base import CREDENTIAL_KEYS, ConfigSource, ConfigurableProvider, Environ, Provider
from antiphon.adapters.registry import BUILT_IN, adapter_class
from antiphon.engine.provider_model import is_valid_model_name
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.config import tables
from antiphon.server.config.tables import Errors, Table, dotted_key
from antiphon.transport.auth import profile_region

logger = logging.getLogger("antiphon.config")
# Apart, because `antiphon models` shows this in its report.
provider_logger = logging.getLogger("antiphon.config.providers")

CONFIG_FILE = Path("antiphon.toml")
"""The default configuration file."""


class ConfigError(AntiphonError):
    """A mistake in the configuration: the file, the key and the fix."""


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Providers, their API keys, aliases of models, and settings of the server."""

    providers: dict[str, Provider] = field(default_factory=dict[str, Provider])
    keys: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """API keys by provider."""

    models: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The models of each alias, in the order in which they are tried."""

    server: Table = field(default_factory=Table)
    """Settings of the server, by name."""

    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why a provider is unavailable; includes built-in ones that are not configured."""

    warnings: list[str] = field(default_factory=list[str])


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
    for name in filter(config.reasons.get, config.providers):
        provider_logger.warning("provider %s is unavailable: %s", name, config.reasons[name])
    return config


def parse_config(
    text: str, environ: Environ, *, source: Path | None = None, agents: Collection[str] = ()
) -> GatewayConfig:
    """Parse a configuration; raises ConfigError. `agents` are models that an alias may name.

    The result depends on the text and the environment only, except that hooks are imported, also
    from the folder of the source.
    """
    source = source or CONFIG_FILE
    errors: Errors = []
    try:
        config = _build_config(tomllib.loads(text), environ, source, agents, errors)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: this is not TOML: {error}.") from None
    # The first error of a key may have led to others.
    by_key = {error.path: f"{error.path}: {error.reason}" for error in reversed(errors)}
    if by_key:
        heading = [f"{len(by_key)} mistakes:"] if len(by_key) > 1 else []
        raise ConfigError(f"{source}: " + "\n  ".join([*heading, *reversed(by_key.values())]))
    return config


def _build_config(text: Table, environ: Environ, file: Path, agents: Collection[str], errors: Errors) -> GatewayConfig:
    root = tables.check_table(text, tables.ROOT_KEYS, "", errors)
    server = tables.check_table(root.get("server", {}), tables.SERVER_KEYS, "server", errors)
    in_file: dict[str, Table] = root.get("providers", {})
    provider_tables: dict[str, Table] = {}
    for name, value in in_file.items():
        before = len(errors)
        with tables.collect_errors(errors):
            table = tables.parse_provider_table(name, value, file.parent, errors)
            if len(errors) == before:
                provider_tables[name] = table
    provider_tables |= {name: {"adapter": name} for name in BUILT_IN if name not in in_file}
    # An invalid alias is known all the same, so that those which name it are not reported too.
    targets: dict[str, list[str]] = {name: [] for name in root.get("models", {})}
    for name, value in root.get("models", {}).items():
        with tables.collect_errors(errors):
            targets[name] = tables.parse_alias(name, value)
    config = GatewayConfig(models=resolve_aliases(targets, {*in_file, *BUILT_IN}, agents, errors), server=server)
    aliased = {model.partition("/")[0] for names in config.models.values() for model in names}
    for alias in filter(agents.__contains__, config.models):
        config.warnings.append(
            f"{file}: {dotted_key('models', alias)}: this alias hides the agent '{alias}': requests for it go to "
            f"{' or '.join(config.models[alias])}. Rename the alias or the agent to use both."
        )
    make_source = partial(ConfigSource, environ=environ, profile_region=profile_region)
    for name, table in provider_tables.items():
        source = make_source(name=name, table=table, in_file=name in in_file)
        with tables.collect_errors(errors):
            add_provider(config, source, is_aliased=name in aliased)
    return config


def add_provider(config: GatewayConfig, source: ConfigSource, *, is_aliased: bool) -> None:
    """Add what the file and the environment say about a provider, or why it is unavailable."""
    kind = adapter_class(str(source.table["adapter"]))
    from_environment = kind.environment_fields(source)
    fields: Table = {**from_environment, **source.table}
    # A table that says which key is sent where is complete: the adapter's own variable might
    # hold the key of another account.
    if not CREDENTIAL_KEYS & source.table.keys():
        fields["api_key_env"] = kind.api_key_variable(fields, source)
    provider = Provider(name=source.name, **fields)
    key = source.variable(provider.api_key_env or "")
    location = missing_field(kind, fields, source)
    missing = [location[1]] if location else []
    if provider.api_key_env and not key:
        missing.append(provider.api_key_env)
    reason = ""
    if missing:
        reason = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
    # Such a key would break the header in which it is sent.
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        reason = f"{provider.api_key_env} does not hold a valid key"
    for name in tables.URL_KEYS & from_environment.keys():
        if problem := tables.invalid_url_problem(from_environment[name]):
            reason = f"{kind.field_variables[name][0]} {problem}"
    if reason:
        config.reasons[source.name] = reason
    elif key:
        config.keys[source.name] = key
    # A provider that an alias names is kept without its key: requests then fail because of the
    # key, which the log names, instead of "no such model".
    if source.in_file or not reason or (is_aliased and not location):
        config.providers[source.name] = provider
    url = provider.base_url or provider.endpoint
    if key and not reason and url and tables.is_unencrypted(url):
        config.warnings.append(
            f"{provider.name}: the key in {provider.api_key_env} is sent to {url} unencrypted, "
            "and can be read on the way. Use https."
        )


def missing_field(kind: type[ConfigurableProvider], fields: Table, source: ConfigSource) -> tuple[str, str] | None:
    """Return a field that nothing sets, and its variable; raise if the file has to set it."""
    place = partial(dotted_key, "providers", source.name)
    try:
        missing = kind.missing_field(fields, source)
    except InvalidValueError as error:
        raise InvalidValueError(place(error.path), error.reason) from None
    if missing and source.in_file:
        key, variable = missing
        # The variables describe no other provider.
        alternative = f", or set {variable}" if source.has_adapter_name else ""
        raise InvalidValueError(
            place(key), f"this key is missing. Write {tables.provider_keys()[key].example}{alternative}."
        )
    return missing


def resolve_aliases(
    aliases: dict[str, list[str]], providers: Collection[str], agents: Collection[str], errors: Errors
) -> dict[str, list[str]]:
    """Return the models of each valid alias, in order. Aliases may name other aliases."""

    def resolve(alias: str, seen: tuple[str, ...]) -> list[str]:
        path, targets = dotted_key("models", alias), aliases[alias]
        if alias in providers:
            raise InvalidValueError(path, "a provider has this name already. Choose another name.")
        if alias in seen:
            circle = seen[seen.index(alias) :]
            aliases.update({name: [] for name in circle})  # or each of them would report it
            raise InvalidValueError(path, f"circular alias: {' -> '.join([*circle, alias])}. Name a model instead.")
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

    resolved: dict[str, list[str]] = {}
    for alias in aliases:
        with tables.collect_errors(errors):
            resolved[alias] = resolve(alias, ())
    return resolved
