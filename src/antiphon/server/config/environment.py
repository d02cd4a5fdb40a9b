"""What the environment says about providers, in the variables that their own SDKs read."""

from collections.abc import Mapping

from antiphon.adapters.base import Adapter
from antiphon.protocol.errors import UpstreamError
from antiphon.server.config.address import invalid_url_problem, ollama_url
from antiphon.transport.auth import LIBRARY_ERRORS, import_extra

Environ = Mapping[str, str]

FIELD_VARIABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
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

REQUIRED_FIELD = {"azure": "endpoint", "bedrock": "region"}
"""What says where to ask, for adapters that no single address belongs to."""

AWS_PROFILE = "AWS_PROFILE"
CREDENTIAL_HINTS = {
    "bedrock": (
        "AWS_ACCESS_KEY_ID",
        AWS_PROFILE,
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
    ),
}
"""Adapters that can do without a key, and the variables which say that they may."""

URL_FIELDS = frozenset({"base_url", "endpoint"})
GEMINI_API_KEYS = frozenset({"base_url", "api_key_env"})
"""Keys of a table which say that Google's models are not asked for where the environment says."""

BEDROCK_LOCATION_KEYS = frozenset({"base_url", "region"})
"""What says where Bedrock is asked, before the region of a profile does."""

USE_VERTEX_VARIABLE = "GOOGLE_GENAI_USE_VERTEXAI"


def read_variable(variable: str, environ: Environ) -> str:
    """Return what a variable holds; nothing and blanks are the same."""
    return environ.get(variable, "").strip()


def environment_fields(adapter: str, environ: Environ) -> dict[str, str]:
    """Return the fields that the environment gives to the provider called like its adapter."""
    found: dict[str, str] = {}
    for field, variables in FIELD_VARIABLES.get(adapter, {}).items():
        values = [read_variable(variable, environ) for variable in variables]
        if value := next(filter(None, values), None):
            found[field] = ollama_url(value) if adapter == "ollama" else value
    return found


def additional_fields(
    table: Mapping[str, object], name: str, environ: Environ, *, from_environment_only: bool
) -> dict[str, str]:
    """Return the fields that the environment adds to what is said about a provider.

    A provider that is said to be elsewhere, or has a name of its own, is not where the environment
    says; only the region of everything on this machine, or of its AWS profile, is its region too.
    `alone` is whether nothing but the environment speaks of it.
    """
    adapter = str(table["adapter"])
    given = environment_fields(adapter, environ)
    counted = frozenset(given)
    if name != adapter or "base_url" in table:
        counted = frozenset({"region"})
    elif adapter == "google":
        counted = google_fields(table, environ)
    given = {field: given[field] for field in given if field in counted}
    if adapter == "bedrock" and BEDROCK_LOCATION_KEYS.isdisjoint({*given, *table}):
        profile = str(table.get("profile") or read_variable(AWS_PROFILE, environ)) or None
        meant = not from_environment_only or has_credential_hint(adapter, environ)
        if meant and (region := profile_region(profile, environ)):
            given["region"] = region
    return given


def google_fields(table: Mapping[str, object], environ: Environ) -> frozenset[str]:
    """Return the fields that count: those of Vertex AI, or those of the Gemini API."""
    if uses_vertex(environ) and not GEMINI_API_KEYS & table.keys():
        return frozenset({"project", "location"})
    return frozenset() if "project" in table else frozenset({"base_url"})


def has_credential_hint(adapter: str, environ: Environ) -> bool:
    """Tell whether the environment says that an adapter may do without a key."""
    return any(read_variable(name, environ) for name in CREDENTIAL_HINTS.get(adapter, ()))


def missing_project(
    table: Mapping[str, object], name: str, environ: Environ
) -> tuple[str, str] | None:
    """Return the field and the variable that are missing where Vertex AI is meant; None if not."""
    adapter = str(table["adapter"])
    meant = (
        adapter == name == "google" and not GEMINI_API_KEYS & table.keys() and uses_vertex(environ)
    )
    if not meant or "project" in table or "project" in environment_fields(adapter, environ):
        return None
    return "project", FIELD_VARIABLES[adapter]["project"][0]


def uses_vertex(environ: Environ) -> bool:
    """Tell whether Google's models are to be asked for at Vertex AI."""
    return read_variable(USE_VERTEX_VARIABLE, environ).lower() in ("true", "1")


def invalid_url_reason(adapter: str, fields: Mapping[str, str]) -> str:
    """Say which of the fields that the environment gave is no address, and should be."""
    for field in URL_FIELDS & fields.keys():
        if problem := invalid_url_problem(fields[field]):
            return f"{FIELD_VARIABLES[adapter][field][0]} {problem}"
    return ""


def api_key_variable(
    adapter_type: type[Adapter],
    fields: Mapping[str, object],
    environ: Environ,
    *,
    from_environment_only: bool,
) -> str | None:
    """Return the variable that holds a provider's key, or ought to; None if it needs no key.

    `alone` is whether nothing but the environment speaks of the provider.
    """
    if "project" in fields:
        return None
    if found := next((name for name in adapter_type.key_env if read_variable(name, environ)), None):
        return found
    adapter = str(fields["adapter"])
    if adapter in CREDENTIAL_HINTS and (
        not from_environment_only or has_credential_hint(adapter, environ)
    ):
        return None
    near = "base_url" in fields or (adapter_type.default_url or "").startswith("http:")
    return None if near or not adapter_type.key_env else adapter_type.key_env[0]


def missing_location(
    adapter_type: type[Adapter], fields: Mapping[str, object], *, from_environment_only: bool
) -> tuple[str, str] | None:
    """Return the field that ought to say where a provider is and the variable that may, if none."""
    adapter = str(fields["adapter"])
    field = REQUIRED_FIELD.get(adapter)
    if field is None or field in fields or "base_url" in fields or adapter_type.default_url:
        return None
    if field == "region" and (not from_environment_only or fields.get("api_key_env")):
        return None  # the adapter has a region to begin with; here it tells credentials from hints
    return field, FIELD_VARIABLES[adapter][field][0]


AWS_FILE_VARIABLES = {
    "config_file": "AWS_CONFIG_FILE",
    "credentials_file": "AWS_SHARED_CREDENTIALS_FILE",
}
"""What botocore calls AWS's files, and the variables that say where they are."""


def profile_region(profile: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the region of a profile, or of the default one; None if nobody has named one.

    What is wrong with a profile is said when its credentials are wanted.
    """
    try:
        errors = import_extra("botocore.exceptions", "bedrock")
        session = import_extra("botocore.session", "bedrock").Session(profile=profile)
    except UpstreamError:
        return None  # the extra is not installed
    for name, variable in AWS_FILE_VARIABLES.items():
        if path := environ.get(variable):
            session.set_config_variable(name, path)
    try:
        return session.get_scoped_config().get("region")
    except (errors.BotoCoreError, *LIBRARY_ERRORS):
        return None
