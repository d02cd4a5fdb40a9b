"""The adapters by name: those of this package, and those of installed packages.

A package provides an adapter through the entry point group `antiphon.adapters`:

    [project.entry-points."antiphon.adapters"]
    acme = "acme_antiphon:Acme"

An adapter is imported when it is first used, so a broken one affects no other. A package cannot
replace a built-in adapter.
"""

from importlib import import_module
from typing import TYPE_CHECKING, cast

from antiphon.adapters.base import Adapter, Provider
from antiphon.protocol.errors import AntiphonError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "antiphon.adapters"

BUILT_IN = {
    "openai": "openai:OpenAI",
    "azure": "azure:Azure",
    "anthropic": "anthropic.adapter:Anthropic",
    "bedrock": "bedrock.adapter:Bedrock",
    "google": "google.adapter:Google",
    "ollama": "ollama:Ollama",
    "writer": "writer:Writer",
    "responses": "open_responses.adapter:OpenResponses",
}
"""The module of each adapter in this package, and its class."""

PRIVATE_SLUGS = frozenset({*BUILT_IN, "antiphon"}) - {"openai", "azure", "responses"}
"""The slugs of items and tools that only one adapter understands. Types with the slug `openai` are
defined by OpenAI, and every server of the Responses API may know them."""


class AdapterError(AntiphonError):
    """An adapter does not exist or cannot be used."""


def make_adapter(provider: Provider) -> Adapter:
    """Create the adapter of a provider; raises AdapterError."""
    return adapter_class(provider.adapter)(provider)


def adapter_class(name: str) -> type[Adapter]:
    """Return the adapter class with a name; raises AdapterError."""
    # Imported on demand: a server with one provider should not load the others.
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast("type[Adapter]", getattr(import_module(f"antiphon.adapters.{module}"), attribute))
    found = [plugin for plugin in _plugins() if plugin.name == name]
    if not found:
        raise AdapterError(f"there is no adapter '{name}'. Use one of {', '.join(adapter_names())}")
    # The same class may be registered twice; different classes would make the choice arbitrary.
    if len({plugin.value for plugin in found}) > 1:
        offers = " and ".join(sorted(map(_plugin_origin, found)))
        raise AdapterError(f"both {offers} bring an adapter '{name}'. Uninstall one")
    where = f"the adapter '{name}' of {_plugin_origin(found[0])}"
    try:
        loaded: object = found[0].load()
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        raise AdapterError(f"{where} cannot be loaded: {describe_exception(error)}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Adapter)):
        raise AdapterError(f"{where} is not an adapter: {found[0].value} is no subclass of Adapter")
    return loaded


def adapter_names() -> list[str]:
    """Return the names of all adapters, the built-in ones first."""
    return [*BUILT_IN, *sorted({plugin.name for plugin in _plugins()} - BUILT_IN.keys())]


def find_plugin_problems() -> list[str]:
    """Return what is wrong with the adapters of installed packages. This imports them all."""
    found: list[str] = []
    for plugin in _plugins():
        if plugin.name in BUILT_IN:
            ours = f"'{plugin.name}' is Antiphon's own; its author has to choose another name"
            found.append(f"the adapter of {_plugin_origin(plugin)} is not used: {ours}")
            continue
        try:
            adapter_class(plugin.name)
        except AdapterError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _plugins() -> "tuple[EntryPoint, ...]":
    from importlib.metadata import entry_points  # slow to import

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def describe_exception(error: BaseException) -> str:
    """Return an exception of foreign code in one line."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _plugin_origin(plugin: "EntryPoint") -> str:
    return f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else plugin.value
