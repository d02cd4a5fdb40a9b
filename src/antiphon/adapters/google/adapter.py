"""The adapter for Google's Gemini, on the Gemini API and on Vertex AI.

Dialect notes: a provider with a `project` is Vertex AI, which takes Google's own credentials and
has the project and the location in its URLs. Any other is the Gemini API, with a key.
"""

import math
import re
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, ConfigSource, Decoder, Prompt, Provider, collect_names
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.google.decode import GoogleDecoder
from antiphon.adapters.google.encode import encode_body, is_before_gemini_3
from antiphon.adapters.json_access import parse_json
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.struct import InvalidValueError, JsonObject, as_array, as_object, as_string
from antiphon.protocol.tools import WEB_SEARCH_TYPES
from antiphon.transport.request import Credential, GoogleToken, Key, Upstream

API_VERSION_SUFFIX = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?$")
USE_VERTEX_VARIABLE = "GOOGLE_GENAI_USE_VERTEXAI"
VERTEX_HOSTS = {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}
"""The host names of locations that span several regions. Those of regions begin with the region."""


class Google(Adapter):
    """Gemini at one address."""

    name = "google"
    raw_tool_slug = "google:"
    default_url = "https://generativelanguage.googleapis.com/v1beta"
    key_env = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    field_variables: ClassVar = {
        "project": ("GOOGLE_CLOUD_PROJECT",),
        "location": ("GOOGLE_CLOUD_LOCATION",),
        "base_url": ("GOOGLE_GEMINI_BASE_URL",),
    }
    table_keys: ClassVar = {"api_version": '"v1beta"', "project": '"my-project"', "location": '"europe-west1"'}
    features = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens
        logprobs service_tier reasoning tools tool_choice json_object json_schema
        tools_with_format images image_urls files file_urls videos audio""".split()
    )
    hosted_tools = WEB_SEARCH_TYPES

    @classmethod
    def environment_fields(cls, source: ConfigSource) -> dict[str, str]:
        """Return the fields of Vertex AI or those of the Gemini API, never both."""
        found = super().environment_fields(source)
        if cls.means_vertex(source):
            fields = {"project", "location"}
        else:
            fields = set[str]() if "project" in source.table else {"base_url"}
        return {field: found[field] for field in found if field in fields}

    @classmethod
    def means_vertex(cls, source: ConfigSource) -> bool:
        """Return whether a variable chooses Vertex AI, and nothing in the table contradicts it."""
        chosen = source.variable(USE_VERTEX_VARIABLE).lower() in ("true", "1")
        return chosen and not {"base_url", "api_key_env"} & source.table.keys()

    @classmethod
    def api_key_variable(cls, fields: Mapping[str, object], source: ConfigSource) -> str | None:
        """Return the variable of the Gemini API's key; Vertex AI needs none."""
        if "project" in fields or (source.has_adapter_name and cls.means_vertex(source)):
            return None
        return super().api_key_variable(fields, source)

    @classmethod
    def missing_field(cls, fields: Mapping[str, object], source: ConfigSource) -> tuple[str, str] | None:
        """Return the project as missing where Vertex AI is meant; a location alone is an error."""
        if "project" in fields:
            return None
        if source.has_adapter_name and cls.means_vertex(source):
            return "project", cls.field_variables["project"][0]
        if "location" in source.table:
            advice = f"Write project = {cls.table_keys['project']} beside it"
            raise InvalidValueError("location", f"this has no effect without a project. {advice}.")
        return None

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self._api_root = api_root_url(provider, self.base_url)
        self.base_url = self._api_root
        if provider.project and "/projects/" not in self._api_root:
            path = f"projects/{provider.project}/locations/{provider.location or 'global'}"
            self.base_url = f"{self._api_root}/{path}"

    def missing_features(self, model: str) -> frozenset[str]:
        """Return JSON together with tools for models before Gemini 3."""
        return frozenset({"tools_with_format"}) if is_before_gemini_3(model) else frozenset()

    def encode(self, prompt: Prompt) -> Upstream:
        method = "streamGenerateContent?alt=sse" if prompt.stream else "generateContent"
        return Upstream(url=f"{self._model_url(prompt)}:{method}", body=encode_body(prompt))

    def decoder(self, prompt: Prompt) -> Decoder:
        return GoogleDecoder(self)

    def credential(self) -> Credential:
        """Send a key to the Gemini API, and Google's own credentials to Vertex AI."""
        return GoogleToken() if self.provider.project else Key("x-goog-api-key", "")

    def models_request(self) -> Upstream:
        path = "publishers/google/models" if self.provider.project else "models?pageSize=1000"
        return Upstream(method="GET", url=f"{self._api_root.partition('/projects/')[0]}/{path}")

    def decode_models(self, body: object) -> list[str]:
        """Return the names in the list of models, without their paths."""
        groups = ("models", "publisherModels")
        names = [name for group in groups for name in collect_names(body, group, "name")]
        return [name.rpartition("/")[2] for name in names]

    def _model_url(self, prompt: Prompt) -> str:
        """Return a model's URL; a name without a path is one of Google's own models."""
        model, project = prompt.model, self.provider.project
        # A client must not use another project, whose owner would pay for it.
        foreign = model.startswith("projects/") and model.split("/")[1] != project
        if ".." in model or foreign:
            message = f"'{model}' is not the name of a model."
            raise prompt.unsupported_error(message, "model", "model_not_found")
        vertex, gemini = ("projects/", "publishers/", "endpoints/"), ("models/", "tunedModels/")
        if not model.startswith(vertex if project else gemini):
            publisher, _, name = model.rpartition("/")
            prefix = f"publishers/{publisher or 'google'}/" if project else ""
            model = f"{prefix}models/{name if prefix else model}"
        base = self._api_root if model.startswith("projects/") else self.base_url
        return f"{base}/{quote(model, safe='/@')}"

    def decode_error(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
        """Return the error of a response; the body may say when to retry."""
        delay = retry_delay(body)
        if delay is not None and "retry-after" not in headers:
            headers = {**headers, "retry-after": delay}
        return super().decode_error(status, headers, body)

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Return the error in a body; the name of its status is the code."""
        error, fields = super().parse_error(status, headers, body), find_error(body)
        # Google answers 400 to an invalid key.
        if any(detail.get("reason") == "API_KEY_INVALID" for detail in error_details(fields)):
            return ErrorInfo(error.message, "authentication_error", "API_KEY_INVALID")
        return replace(error, code=as_string(fields.get("status")) or error.code)


def api_root_url(provider: Provider, url: str) -> str:
    """Return the URL up to the version of the API, which the configured URL need not contain."""
    location = provider.location or "global"
    if provider.project and not provider.base_url:
        url = f"https://{VERTEX_HOSTS.get(location, f'{location}-aiplatform')}.googleapis.com"
    # The default URL has a version, which the configured one replaces.
    elif not provider.base_url and provider.api_version:
        url = API_VERSION_SUFFIX.sub("", url)
    if API_VERSION_SUFFIX.search(url) or "/projects/" in url:
        return url
    return f"{url}/{provider.api_version or ('v1beta1' if provider.project else 'v1beta')}"


def find_error(body: object) -> JsonObject:
    """Return the fields of the error in a body, if there is one."""
    # A request for a stream without `alt=sse` is answered by an array.
    first = next(iter(as_array(body)), body)
    return as_object(as_object(first).get("error"))


def error_details(error: JsonObject) -> list[JsonObject]:
    """Return the details of an error."""
    return list(map(as_object, as_array(error.get("details"))))


def retry_delay(body: bytes) -> str | None:
    """Return the whole seconds after which to retry; the body has them as `3.5s`."""
    delays = (as_string(detail.get("retryDelay")) for detail in error_details(find_error(parse_json(body))))
    seconds = re.fullmatch(r"(\d+(?:\.\d+)?)s", next(filter(None, delays), ""))
    return str(math.ceil(float(seconds[1]))) if seconds else None
