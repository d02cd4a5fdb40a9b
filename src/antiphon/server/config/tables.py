"""The tables of `antiphon.toml`: their keys, types, bounds and examples.

A mistake is an InvalidValueError: the key's dotted path, and a sentence that ends in the fix. Functions with a list of
errors add mistakes to it, so that all of them are reported at once. URLs are checked here as well.
"""

import re
import sys
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints
from urllib.parse import urlsplit

from msgspec import Meta, convert

from antiphon.adapters.base import Capabilities, Provider, Transform
from antiphon.adapters.errors import SECRET_PATTERN as KEYS
from antiphon.adapters.features import ALL_FEATURES
from antiphon.adapters.registry import BUILT_IN, AdapterError, adapter_class, adapter_names
from antiphon.protocol.errors import suggest_closest
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.struct import decode_as as read_value
from antiphon.transport.connection import Timeouts
from antiphon.transport.proxy import is_loopback


def is_unencrypted(url: str) -> bool:
    """Return whether a URL is plain HTTP to another machine."""
    parts = urlsplit(url)
    return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")


def invalid_url_problem(url: str) -> str | None:
    """Return why a URL is invalid, or None."""
    try:
        parts = urlsplit(url)
        host = parts.port != 0 and parts.hostname
    except ValueError:
        return "is not an http(s) URL"
    # Checked first: the message for any other problem repeats the URL.
    if parts.username is not None or parts.password is not None:
        return "contains a user name or password"
    is_http = parts.scheme.lower() in ("http", "https")
    if is_http and ("?" in url or "#" in url):
        return "has a query or a fragment"
    if not (is_http and host and url.isascii() and url.isprintable()) or " " in url:
        return "is not an http(s) URL"
    return None


Table = dict[str, Any]
Errors = list[InvalidValueError]
NonEmptyText = Annotated[str, Meta(min_length=1)]

# All numbers of the file and of `Settings`. The bound keeps sums with a clock's time exact; no
# memory has that many bytes, and no process lives that many seconds.
MAX_NUMBER = 10**12
NonNegativeInt = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
PositiveInt = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
NonNegativeSeconds = Annotated[float, Meta(ge=0, le=MAX_NUMBER)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=MAX_NUMBER)]
TimeoutSeconds = Annotated[float, Meta(gt=0, le=86_400)]
"""A provider's timeout; a longer one than a day is a mistake, mostly milliseconds."""

EXAMPLE_ADAPTER = f'adapter = "{next(iter(BUILT_IN))}"'


class TableKey(NamedTuple):
    """A key of a table: its type and an example."""

    type: object
    example: str


ROOT_KEYS = {
    "providers": TableKey(Table, f"[providers.local] and {EXAMPLE_ADAPTER} below it"),
    "models": TableKey(Table, '[models] and fast = "local/small" below it'),
    "server": TableKey(Table, '[server] and allowed_origins = ["https://app.example"] below it'),
}
SERVER_KEYS = {
    "allowed_origins": TableKey(list[str], 'allowed_origins = ["https://app.example"]'),
    "list_threads": TableKey(bool, "list_threads = true"),
    "store": TableKey(NonEmptyText, 'store = "postgresql://antiphon@db.internal/antiphon"'),
}
"""The keys of `[server]`: settings of the same names."""

COMMON_KEYS = {
    "adapter": TableKey(NonEmptyText, EXAMPLE_ADAPTER),
    "base_url": TableKey(str, 'base_url = "http://127.0.0.1:9100/v1"'),
    "api_key_env": TableKey(str, 'api_key_env = "LOCAL_KEY"'),
    "headers": TableKey(dict[str, str], 'headers = { x-team = "a" }'),
    "timeouts": TableKey(Table, "timeouts = { first_byte = 60 }"),
    "transform_request": TableKey(str, 'transform_request = "module:function"'),
    "models": TableKey(Table, "[providers.local.models.small] and window = 8192 below it"),
}
"""The keys of a provider's table that every adapter reads."""

URL_KEYS = frozenset({"base_url", "endpoint"})
TIMEOUT_KEYS = {name: TableKey(TimeoutSeconds, f"{name} = 60") for name in Timeouts.__struct_fields__}
MODEL_KEYS = {
    "window": TableKey(PositiveInt, "window = 8192"),
    "max_output_tokens": TableKey(PositiveInt, "max_output_tokens = 4096"),
    "lacks": TableKey(list[str], 'lacks = ["images", "json_schema"]'),
}
SECRET_KEYS = frozenset({"api_key", "apikey", "key", "token", "api_token", "secret", "password"})
"""Common names for an API key that a user writes into the file."""

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
RESERVED_HEADERS = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"})
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
QUOTED_VALUE = re.compile(r"got '[^'].*", re.DOTALL)


@cache
def provider_keys() -> Mapping[str, TableKey]:
    """Return the keys of a provider's table: the common ones and those of the adapters."""
    types = {key: bool if kind is bool else NonEmptyText for key, kind in get_type_hints(Provider).items()}
    types |= dict.fromkeys(URL_KEYS, str)  # an empty one is reported as an invalid URL
    keys = dict(COMMON_KEYS)
    for adapter in BUILT_IN:
        for key, value in adapter_class(adapter).table_keys.items():
            keys.setdefault(key, TableKey(types[key], f"{key} = {value}"))
    return keys


@contextmanager
def collect_errors(errors: Errors | None) -> Generator[None]:
    """Add an InvalidValueError to a list; raise it if there is no list."""
    try:
        yield
    except InvalidValueError as error:
        if errors is None:
            raise
        errors.append(error)


def parse_provider_table(name: str, value: object, folder: Path, errors: Errors) -> Table:
    """Check a provider's table; return the fields of its `Provider`."""
    path = dotted_key("providers", name)
    check_name(name, path, "a provider")
    table: Table = read_field(Table, value, path, f"[{path}] and {EXAMPLE_ADAPTER} below it")
    # Checked before anything else, so that no other message repeats the secret.
    for key in SECRET_KEYS & table.keys():
        variable = re.sub(r"\W", "_", name).upper() + "_API_KEY"
        raise InvalidValueError(
            dotted_key(path, key),
            "keys must not be stored in the file. Put it into an environment variable and name the "
            f'variable here: api_key_env = "{variable}".',
        )
    fields = check_table(table, provider_keys(), path, errors)
    fields["adapter"] = adapter = _check_adapter(name, fields.get("adapter"), path)
    kind = adapter_class(adapter)
    for key in fields:
        # Adapters of other packages may read any key.
        if adapter in BUILT_IN and key not in {*COMMON_KEYS, *kind.table_keys}:
            readers = " and ".join(other for other in BUILT_IN if key in adapter_class(other).table_keys)
            reason = f"the adapter '{adapter}' does not read this, only {readers}"
            errors.append(InvalidValueError(dotted_key(path, key), f"{reason}. Leave it out."))
    try:
        kind.check_table(fields)
    except InvalidValueError as error:
        errors.append(InvalidValueError(dotted_key(path, error.path), error.reason))
    _check_addresses(fields, path, errors)
    _check_headers(fields.get("headers", {}), dotted_key(path, "headers"), errors)
    _check_key_variable(fields.get("api_key_env", "NONE"), dotted_key(path, "api_key_env"), errors)
    fields["timeouts"] = check_table(fields.get("timeouts", {}), TIMEOUT_KEYS, dotted_key(path, "timeouts"), errors)
    fields["models"] = {
        model: parse_model_table(value, dotted_key(path, "models", model), errors)
        for model, value in fields.get("models", {}).items()
    }
    if "transform_request" in fields:
        place = dotted_key(path, "transform_request")
        fields["transform_request"] = import_hook(fields["transform_request"], place, folder)
    return fields


def parse_model_table(value: object, path: str, errors: Errors) -> Capabilities:
    """Check the table of one model."""
    table = read_field(Table, value, path, f"[{path}] and window = 8192 below it")
    fields = check_table(table, MODEL_KEYS, path, errors)
    for index, feature in enumerate(fields.get("lacks", [])):
        if feature not in ALL_FEATURES:
            place = f"{dotted_key(path, 'lacks')}[{index}]"
            reason = f"there is no feature '{feature}'. {suggest_name(feature, ALL_FEATURES)}"
            errors.append(InvalidValueError(place, reason))
    return convert(fields, Capabilities)


def parse_alias(name: str, value: object) -> list[str]:
    """Check an alias; return its targets in order."""
    path = dotted_key("models", name)
    check_name(name, path, "an alias")
    if isinstance(value, dict):
        advice = f"Capabilities of a model belong in [providers.NAME.models.{_quote_key(name)}]"
        raise InvalidValueError(path, f'an alias is a name, or a list of names: "local/small". {advice}.')
    kind = NonEmptyText if isinstance(value, str) else Annotated[list[str], Meta(min_length=1)]
    found = read_field(kind, value, path, f'{_quote_key(name)} = "local/small", or a list of such names')
    return [found] if isinstance(found, str) else found


def check_table(table: Table, known: Mapping[str, TableKey], path: str, errors: Errors | None = None) -> Table:
    """Return the valid entries of a table; raise the first mistake if there is no list of errors."""
    checked: Table = {}
    for key, value in table.items():
        place = dotted_key(path, key)
        with collect_errors(errors):
            if key not in known:
                raise InvalidValueError(place, f"there is no such key. {suggest_name(key, known)}")
            checked[key] = read_field(known[key].type, value, place, known[key].example)
    return checked


def check_name(name: str, path: str, kind: str) -> None:
    """Raise InvalidValueError for a name that is ambiguous in `provider/model`, or invisible."""
    if "/" in name:
        reason = "a slash separates a provider from its model"
        raise InvalidValueError(path, f"the name of {kind} must not contain a slash; {reason}. Choose another name.")
    if not name or not name.isprintable() or " " in name:
        raise InvalidValueError(path, f"the name of {kind} must be one word. Choose another name.")


def suggest_name(name: str, known: Collection[str]) -> str:
    """Return a suggestion: the closest known name, or all of them."""
    return suggest_closest(name, known).strip() or f"There are {', '.join(sorted(known))}."


def dotted_key(*names: str) -> str:
    """Return a dotted key in TOML's notation.

    >>> dotted_key("providers.local", "models", "qwen2.5")
    'providers.local.models."qwen2.5"'
    """
    head, *rest = names
    return ".".join(([head] if head else []) + [_quote_key(name) for name in rest])


def import_hook(target: str, path: str, folder: Path) -> Transform:
    """Import the function `module:function`; modules are searched for in `folder` too."""
    name, _, attribute = target.partition(":")
    if not all(map(str.isidentifier, [*name.split("."), attribute])):
        raise InvalidValueError(path, f"'{target}' does not have the form \"module:function\".")
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.insert(0, place)
    try:
        found: Any = getattr(import_module(name), attribute, None)
    except ImportError as error:
        reason = f"'{name}' cannot be imported: {error}"
        raise InvalidValueError(path, f"{reason}. Modules are searched for in {place} too.") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InvalidValueError(path, f"'{name}' cannot be imported: {what}. Fix it.") from None
    if not callable(found):
        raise InvalidValueError(path, f"{name} has no function '{attribute}'.")
    return found


def _quote_key(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return name if BARE_KEY.fullmatch(name) else f'"{escaped}"'


def read_field(type: object, value: object, path: str, example: str) -> Any:
    """Return a value of a type; raises InvalidValueError with an example."""
    try:
        return read_value(type, value, path)
    except InvalidValueError as error:
        # A key may have been pasted into any field: the message must not repeat it.
        reason = QUOTED_VALUE.sub("got a string", error.reason).replace("an object", "a table")
        raise InvalidValueError(error.path, f"{reason}. Write {example}.") from None


def _check_adapter(name: str, adapter: object, path: str) -> str:
    """Return the adapter of a provider; the default is the adapter of the same name."""
    chosen = str(adapter or name)
    try:
        adapter_class(chosen)
    except AdapterError as error:
        reason, known = f"{error}.", adapter_names()
        if chosen in known:
            pass  # it is installed, but cannot be loaded
        elif not adapter:
            reason = f"this key is missing. Write {EXAMPLE_ADAPTER}, or another of {', '.join(known)}."
        elif suggestion := suggest_closest(chosen, known):
            reason = f"there is no adapter '{chosen}'.{suggestion}"
        raise InvalidValueError(dotted_key(path, "adapter"), reason) from None
    return chosen


def _check_addresses(fields: Table, path: str, errors: Errors) -> None:
    for key in sorted(URL_KEYS & fields.keys()):
        if problem := invalid_url_problem(fields[key]):
            reason = f"'{fields[key]}' {problem}. Write {provider_keys()[key].example}."
            if "password" in problem:
                reason = f"{problem}. Put the key into an environment variable and name it in api_key_env."
            errors.append(InvalidValueError(dotted_key(path, key), reason))


def _check_headers(headers: Mapping[str, str], path: str, errors: Errors) -> None:
    for name, value in headers.items():
        reason = ""
        if not HEADER_NAME.fullmatch(name):
            reason = "this is not a valid header name. Use a-z and -."
        elif name.lower() in RESERVED_HEADERS:
            reason = "this header is set by the HTTP client for each request. Leave it out."
        elif not value.isascii() or not value.isprintable():
            reason = "this is not a valid header value. Use printable ASCII characters."
        if reason:
            errors.append(InvalidValueError(dotted_key(path, name), reason))


def _check_key_variable(name: str, path: str, errors: Errors) -> None:
    numbers = re.findall("[0-9]+", name)
    is_mixed_case = not (name.isupper() or name.islower())
    # Long, without underscores, with digits throughout.
    looks_random = len(name) >= 20 and "_" not in name and len(numbers) >= (1 if is_mixed_case else 3)
    # Users often paste the key itself. The message must not repeat it.
    if not VARIABLE_NAME.fullmatch(name) or looks_random or KEYS.search(name):
        reason = "this is not the name of an environment variable. If it is the key itself, put it into a variable"
        errors.append(InvalidValueError(path, f'{reason} and name that here: api_key_env = "LOCAL_KEY".'))
