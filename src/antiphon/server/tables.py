"""The tables of `antiphon.toml`: what may stand there, and what to do about what may not.

A mistake is a ShapeError: the key's dotted path, and a sentence that ends in the fix.
"""

import difflib
import re
import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple, cast

from msgspec import Meta

from antiphon.adapters.base import Capabilities, Transform
from antiphon.adapters.carry import ALL
from antiphon.adapters.faults import SECRETS as KEYS
from antiphon.adapters.registry import BUILT_IN, AdapterError, adapter_class, adapter_names
from antiphon.core.value import ShapeError
from antiphon.core.value import read as read_value
from antiphon.server.address import url_problem
from antiphon.transport.connection import Timeouts

Table = dict[str, object]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class Field(NamedTuple):
    """A key that a table may have: what it holds, and an example of it."""

    kind: object
    example: str
    adapters: tuple[str, ...] = tuple(BUILT_IN)
    """Those of our adapters that read it."""


ROOT = {
    "providers": Field(dict[str, object], '[providers.local] and adapter = "openai" below it'),
    "models": Field(dict[str, object], '[models] and fast = "local/small" below it'),
}
PROVIDER = {
    "adapter": Field(Text, 'adapter = "openai"'),
    "base_url": Field(str, 'base_url = "http://127.0.0.1:9100/v1"'),
    "api_key_env": Field(str, 'api_key_env = "LOCAL_KEY"'),
    "headers": Field(dict[str, str], 'headers = { x-team = "a" }'),
    "endpoint": Field(str, 'endpoint = "https://NAME.openai.azure.com"', ("azure",)),
    "api_version": Field(
        Text, 'api_version = "2025-04-01-preview"', ("azure", "anthropic", "google")
    ),
    "region": Field(Text, 'region = "eu-central-1"', ("bedrock",)),
    "profile": Field(Text, 'profile = "work"', ("bedrock", "azure")),
    "project": Field(Text, 'project = "my-project"', ("google",)),
    "location": Field(Text, 'location = "europe-west1"', ("google",)),
    "strict": Field(bool, "strict = true", ("responses",)),
    "timeouts": Field(dict[str, object], "timeouts = { first_byte = 60 }"),
    "transform_request": Field(str, 'transform_request = "module:function"'),
    "models": Field(dict[str, object], "[providers.local.models.small] and window = 8192 below it"),
}
TIMEOUTS = {name: Field(Seconds, f"{name} = 60") for name in Timeouts.__struct_fields__}
MODEL = {
    "window": Field(Count, "window = 8192"),
    "max_output_tokens": Field(Count, "max_output_tokens = 4096"),
    "lacks": Field(list[str], 'lacks = ["images", "json_schema"]'),
}
SECRETS = frozenset({"api_key", "apikey", "key", "token", "api_token", "secret", "password"})
"""What people call a key that they write into a file."""

NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "array": "an array",
}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
CARRIAGE = frozenset(
    {"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"}
)
BARE = re.compile(r"[A-Za-z0-9_-]+")
WORD = re.compile(r"`(\w+)`")


def provider_fields(name: str, value: object, folder: Path) -> Table:
    """Check a provider's table; return its fields as `Provider` has them."""
    path = dotted("providers", name)
    check_name(name, path, "a provider")
    table = _table(value, path, f'[{path}] and adapter = "openai" below it')
    for key in SECRETS & table.keys():
        variable = re.sub(r"\W", "_", name).upper() + "_API_KEY"
        raise ShapeError(
            dotted(path, key),
            "a key does not belong into a file. Put it into an environment variable and name the "
            f'variable here: api_key_env = "{variable}".',
        )
    fields = checked(table, PROVIDER, path)
    fields["adapter"] = adapter = _adapter(name, fields.get("adapter"), path)
    for key in fields:
        readers = PROVIDER[key].adapters
        if adapter in BUILT_IN and adapter not in readers:
            reason = f"the adapter '{adapter}' does not read this, only {' and '.join(readers)}"
            raise ShapeError(dotted(path, key), f"{reason}. Leave it out.")
    if adapter == "azure" and fields.get("profile", "entra") != "entra":
        raise ShapeError(dotted(path, "profile"), 'for azure there is only profile = "entra".')
    if adapter == "azure" and {"base_url", "endpoint"} <= fields.keys():
        reason = "base_url says already where to ask"
        raise ShapeError(dotted(path, "endpoint"), f"{reason}. Give only one of them.")
    _check_addresses(fields, path)
    _check_headers(cast("dict[str, str]", fields.get("headers", {})), dotted(path, "headers"))
    _check_variable(fields, path)
    if "timeouts" in fields:
        place = dotted(path, "timeouts")
        fields["timeouts"] = checked(cast("Table", fields["timeouts"]), TIMEOUTS, place)
    if "transform_request" in fields:
        place = dotted(path, "transform_request")
        fields["transform_request"] = hook(str(fields["transform_request"]), place, folder)
    fields["models"] = {
        model: capabilities(value, dotted(path, "models", model))
        for model, value in cast("Table", fields.get("models", {})).items()
    }
    return fields


def capabilities(value: object, path: str) -> Capabilities:
    """Check what is said about one model."""
    fields = checked(_table(value, path, f"[{path}] and window = 8192 below it"), MODEL, path)
    lacks = cast("list[str]", fields.get("lacks", []))
    for index, feature in enumerate(lacks):
        if feature not in ALL:
            place = f"{dotted(path, 'lacks')}[{index}]"
            raise ShapeError(place, f"there is no feature '{feature}'. {nearest(feature, ALL)}")
    return Capabilities(
        window=cast("int | None", fields.get("window")),
        max_output_tokens=cast("int | None", fields.get("max_output_tokens")),
        lacks=frozenset(lacks),
    )


def alias_targets(name: str, value: object) -> list[str]:
    """Check an alias; return its targets, in order."""
    path = dotted("models", name)
    check_name(name, path, "an alias")
    if isinstance(value, dict):
        advice = f"What is known of a model stands in [providers.NAME.models.{_key(name)}]"
        raise ShapeError(path, f'an alias is a name, or a list of names: "local/small". {advice}.')
    kind = Text if isinstance(value, str) else Annotated[list[str], Meta(min_length=1)]
    found = read(kind, value, path, f'{_key(name)} = "local/small", or a list of such names')
    return [found] if isinstance(found, str) else cast("list[str]", found)


def checked(table: Table, known: Mapping[str, Field], path: str) -> Table:
    """Return a table whose keys are all known, and hold what they should."""
    for key in table:
        if key not in known:
            raise ShapeError(dotted(path, key), f"there is no such key. {nearest(key, known)}")
    return {
        key: read(known[key].kind, value, dotted(path, key), known[key].example)
        for key, value in table.items()
    }


def check_name(name: str, path: str, what: str) -> None:
    """Refuse names that could not be told from a model's, or not be seen."""
    if "/" in name:
        reason = "a slash stands between a provider and its model"
        raise ShapeError(path, f"the name of {what} has no slash; {reason}. Choose another name.")
    if not name or not name.isprintable() or " " in name:
        raise ShapeError(path, f"the name of {what} is one word. Choose another name.")


def nearest(name: str, known: Collection[str]) -> str:
    """Say which name was probably meant, or which there are."""
    if close := difflib.get_close_matches(name, known, 1):
        return f"Did you mean '{close[0]}'?"
    return f"There are {', '.join(sorted(known))}."


def dotted(*names: str) -> str:
    """Write a key as TOML does.

    >>> dotted("providers.local", "models", "qwen2.5")
    'providers.local.models."qwen2.5"'
    """
    head, *rest = names
    return ".".join(([head] if head else []) + [_key(name) for name in rest])


def hook(target: str, path: str, folder: Path) -> Transform:
    """Import a function that is named as `module:function`."""
    name, _, attribute = target.partition(":")
    if not all(map(str.isidentifier, [*name.split("."), attribute])):
        raise ShapeError(path, f"'{target}' is not written as \"module:function\".")
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.insert(0, place)
    try:
        found: object = getattr(import_module(name), attribute, None)
    except ImportError as error:
        reason = f"'{name}' cannot be imported: {error}"
        raise ShapeError(path, f"{reason}. Modules are looked for in {place} too.") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code that runs
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ShapeError(path, f"'{name}' cannot be imported: {what}. Mend it.") from None
    if not callable(found):
        raise ShapeError(path, f"{name} has no function '{attribute}'.")
    return cast("Transform", found)


def _key(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return name if BARE.fullmatch(name) else f'"{escaped}"'


def _table(value: object, path: str, example: str) -> Table:
    return cast("Table", read(dict[str, object], value, path, example))


def read(kind: object, value: object, path: str, example: str) -> object:
    """Return a value that is of its kind; raises a ShapeError that says what to write."""
    try:
        return read_value(kind, value, path)
    except ShapeError as error:
        reason = WORD.sub(lambda found: NAMES.get(found[1], found[0]), error.reason)
        raise ShapeError(error.path, f"{reason}. Write {example}.") from None


def _adapter(name: str, adapter: object, path: str) -> str:
    """Return the adapter of a provider; one that is called like an adapter need not say it."""
    chosen = str(adapter or name)
    try:
        adapter_class(chosen)
    except AdapterError as error:
        reason, known = f"{error}.", adapter_names()
        if chosen in known:
            pass  # it is there, and cannot be used
        elif not adapter:
            reason = "this key is missing. "
            reason += f'Write adapter = "openai", or another of {", ".join(known)}.'
        elif close := difflib.get_close_matches(chosen, known, 1):
            reason = f"there is no adapter '{chosen}'. Did you mean '{close[0]}'?"
        raise ShapeError(dotted(path, "adapter"), reason) from None
    return chosen


def _check_addresses(fields: Table, path: str) -> None:
    for key in ("base_url", "endpoint"):
        problem = url_problem(str(fields[key])) if key in fields else None
        if problem and "password" in problem:
            advice = "Put the key into an environment variable and name it in api_key_env"
            raise ShapeError(dotted(path, key), f"{problem}. {advice}.")
        if problem:
            reason = f"'{fields[key]}' {problem}. Write {PROVIDER[key].example}"
            raise ShapeError(dotted(path, key), f"{reason}.")


def _check_headers(headers: Mapping[str, str], path: str) -> None:
    for name, value in headers.items():
        if not HEADER.fullmatch(name):
            raise ShapeError(dotted(path, name), "no header can have this name. Use a-z and -.")
        if name.lower() in CARRIAGE:
            reason = "this header says how a request is carried, and is written for each one"
            raise ShapeError(dotted(path, name), f"{reason}. Leave it out.")
        if not value.isascii() or not value.isprintable():
            reason = "no header can hold this. Use printable ASCII characters"
            raise ShapeError(dotted(path, name), f"{reason}.")


def is_random(name: str) -> bool:
    """Tell whether nobody can have thought of a name: long, without a pause, digits all over it."""
    numbers = re.findall("[0-9]+", name)
    mixed = not (name.isupper() or name.islower())
    return len(name) >= 20 and "_" not in name and len(numbers) >= (1 if mixed else 3)


def _check_variable(fields: Table, path: str) -> None:
    name = str(fields.get("api_key_env", "NONE"))
    if not VARIABLE.fullmatch(name) or is_random(name) or KEYS.search(name):
        raise ShapeError(
            dotted(path, "api_key_env"),
            "this is not the name of an environment variable. If it is the key itself, put it into "
            'a variable and name that here: api_key_env = "LOCAL_KEY".',
        )
