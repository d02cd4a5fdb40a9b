"""What the environment says about providers, in the variables that their own SDKs read."""

from collections.abc import Mapping

from antiphon.adapters.base import Adapter
from antiphon.server.address import ollama_url, url_problem
from antiphon.server.aws import region_of

Environ = Mapping[str, str]

VARIABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "openai": {"base_url": ("OPENAI_BASE_URL",)},
    "anthropic": {"base_url": ("ANTHROPIC_BASE_URL",)},
    "azure": {"endpoint": ("AZURE_OPENAI_ENDPOINT",), "api_version": ("OPENAI_API_VERSION",)},
    "bedrock": {"region": ("AWS_REGION", "AWS_DEFAULT_REGION")},
    "google": {
        "project": ("GOOGLE_CLOUD_PROJECT",),
        "location": ("GOOGLE_CLOUD_LOCATION",),
        "base_url": ("GOOGLE_GEMINI_BASE_URL",),
    },
    "ollama": {"base_url": ("OLLAMA_HOST",)},
    "writer": {"base_url": ("WRITER_BASE_URL",)},
    "responses": {"base_url": ("OPENRESPONSES_BASE_URL",)},
}
"""For each adapter, the fields of a provider and the variables that give them, the best first."""

NEEDED = {"azure": "endpoint", "bedrock": "region"}
"""What says where to ask, for adapters that no single address belongs to."""

PROFILE = "AWS_PROFILE"
HINTS = {
    "bedrock": (
        "AWS_ACCESS_KEY_ID",
        PROFILE,
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
    ),
}
"""Adapters that can do without a key, and the variables which say that they may."""

ADDRESSES = frozenset({"base_url", "endpoint"})
KEYED = frozenset({"base_url", "api_key_env"})
"""Keys of a table which say that Google's models are not asked for where the environment says."""

PLACED = frozenset({"base_url", "region"})
"""What says where Bedrock is asked, before the region of a profile does."""

VERTEX = "GOOGLE_GENAI_USE_VERTEXAI"


def value_of(variable: str, environ: Environ) -> str:
    """Return what a variable holds; nothing and blanks are the same."""
    return environ.get(variable, "").strip()


def fields_in(adapter: str, environ: Environ) -> dict[str, str]:
    """Return the fields that the environment gives to the provider called like its adapter."""
    found: dict[str, str] = {}
    for field, variables in VARIABLES.get(adapter, {}).items():
        values = [value_of(variable, environ) for variable in variables]
        if value := next(filter(None, values), None):
            found[field] = ollama_url(value) if adapter == "ollama" else value
    return found


def fields_beside(
    said: Mapping[str, object], name: str, environ: Environ, *, alone: bool
) -> dict[str, str]:
    """Return the fields that the environment adds to what is said about a provider.

    A provider that is said to be elsewhere, or has a name of its own, is not where the environment
    says; only the region of everything on this machine, or of its AWS profile, is its region too.
    `alone` is whether nothing but the environment speaks of it.
    """
    adapter = str(said["adapter"])
    given = fields_in(adapter, environ)
    counted = frozenset(given)
    if name != adapter or "base_url" in said:
        counted = frozenset({"region"})
    elif adapter == "google":
        counted = google(said, environ)
    given = {field: given[field] for field in given if field in counted}
    if adapter == "bedrock" and PLACED.isdisjoint({*given, *said}):
        profile = str(said.get("profile") or value_of(PROFILE, environ)) or None
        meant = not alone or is_hinted(adapter, environ)
        if meant and (region := region_of(profile, environ)):
            given["region"] = region
    return given


def google(said: Mapping[str, object], environ: Environ) -> frozenset[str]:
    """Return the fields that count: those of Vertex AI, or those of the Gemini API."""
    if is_vertex(environ) and not KEYED & said.keys():
        return frozenset({"project", "location"})
    return frozenset() if "project" in said else frozenset({"base_url"})


def is_hinted(adapter: str, environ: Environ) -> bool:
    """Tell whether the environment says that an adapter may do without a key."""
    return any(value_of(name, environ) for name in HINTS.get(adapter, ()))


def no_project(said: Mapping[str, object], name: str, environ: Environ) -> tuple[str, str] | None:
    """Return the field and the variable that are missing where Vertex AI is meant; None if not."""
    adapter = str(said["adapter"])
    meant = adapter == name == "google" and not KEYED & said.keys() and is_vertex(environ)
    if not meant or "project" in said or "project" in fields_in(adapter, environ):
        return None
    return "project", VARIABLES[adapter]["project"][0]


def is_vertex(environ: Environ) -> bool:
    """Tell whether Google's models are to be asked for at Vertex AI."""
    return value_of(VERTEX, environ).lower() in ("true", "1")


def no_address(adapter: str, fields: Mapping[str, str]) -> str:
    """Say which of the fields that the environment gave is no address, and should be."""
    for field in ADDRESSES & fields.keys():
        if problem := url_problem(fields[field]):
            return f"{VARIABLES[adapter][field][0]} {problem}"
    return ""


def key_variable(
    kind: type[Adapter], fields: Mapping[str, object], environ: Environ, *, alone: bool
) -> str | None:
    """Return the variable that holds a provider's key, or ought to; None if it needs no key.

    `alone` is whether nothing but the environment speaks of the provider.
    """
    if "project" in fields:
        return None
    if found := next((name for name in kind.key_env if value_of(name, environ)), None):
        return found
    adapter = str(fields["adapter"])
    if adapter in HINTS and (not alone or is_hinted(adapter, environ)):
        return None
    near = "base_url" in fields or (kind.default_url or "").startswith("http:")
    return None if near or not kind.key_env else kind.key_env[0]


def place_variable(
    kind: type[Adapter], fields: Mapping[str, object], *, alone: bool
) -> tuple[str, str] | None:
    """Return the field that ought to say where a provider is and the variable that may, if none."""
    adapter = str(fields["adapter"])
    field = NEEDED.get(adapter)
    if field is None or field in fields or "base_url" in fields or kind.default_url:
        return None
    if field == "region" and (not alone or fields.get("api_key_env")):
        return None  # the adapter has a region to begin with; here it tells credentials from hints
    return field, VARIABLES[adapter][field][0]
