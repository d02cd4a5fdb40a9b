"""The adapter for Anthropic's Messages API.

Dialect notes: `max_tokens` is mandatory; only the older of two API versions has `temperature` and
`top_p`; the key has a header of its own.
"""

from typing import ClassVar

import msgspec

from antiphon.adapters.anthropic.decode import AnthropicDecoder
from antiphon.adapters.anthropic.encode import encode_body
from antiphon.adapters.anthropic.models import lookup_claude
from antiphon.adapters.anthropic.wire_types import SLUG, Usage
from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider, TokenCountRequest
from antiphon.protocol.struct import JsonObject
from antiphon.protocol.tools import WEB_SEARCH_TYPES
from antiphon.transport.request import Credential, Key, Upstream

API_VERSION = "2026-10-21"
SAMPLING_API_VERSION = "2023-06-01"
"""The last version that supports `temperature` and `top_p`."""

SCHEMA_FEATURES = frozenset({"json_schema", "strict_tools"})
BEARER_ENV = "ANTHROPIC_AUTH_TOKEN"
"""The environment variable whose value gateways expect as a bearer token."""

COUNT_TOKENS_FIELDS = frozenset("model messages system tools tool_choice thinking output_config cache_control".split())
SERVER_TOOL_BLOCKS = """server_tool_use web_search_tool_result web_fetch_tool_result
    code_execution_tool_result bash_code_execution_tool_result
    text_editor_code_execution_tool_result tool_search_tool_result container_upload""".split()
"""The blocks of tools that Anthropic runs. They are sent back unchanged."""


class Anthropic(Adapter):
    """Anthropic's API, or a compatible one."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    key_env = ("ANTHROPIC_API_KEY", BEARER_ENV)
    field_variables: ClassVar = {"base_url": ("ANTHROPIC_BASE_URL",)}
    table_keys: ClassVar = {"api_version": f'"{API_VERSION}"'}
    features = frozenset(
        """temperature top_p stop max_output_tokens prompt_cache_key safety_identifier user
        service_tier reasoning tools strict_tools tool_choice parallel_tool_calls json_schema
        tools_with_format images image_urls files file_urls file_ids""".split()
    )
    hosted_tools = WEB_SEARCH_TYPES
    raw_tool_slug = SLUG
    extension_items = frozenset({"openai:web_search_call"} | {f"{SLUG}{block}" for block in SERVER_TOOL_BLOCKS})

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        # Both forms are in use: Anthropic's SDKs configure the address without "/v1".
        self.base_url = f"{self.base_url.removesuffix('/v1')}/v1"

    def missing_features(self, model: str) -> frozenset[str]:
        """Return the schema features for models that are too old for them."""
        return frozenset() if lookup_claude(model).supports_schemas else SCHEMA_FEATURES

    def encode(self, prompt: Prompt) -> Upstream:
        body = encode_body(prompt)
        samples = "temperature" in body or "top_p" in body
        return self._build_request("messages", body, SAMPLING_API_VERSION if samples else None)

    def decoder(self, prompt: Prompt) -> Decoder:
        return AnthropicDecoder(self, prompt)

    def credential(self) -> Credential | None:
        """Send an API key as `x-api-key`, and a gateway's token as a bearer token."""
        return Key() if self.provider.api_key_env == BEARER_ENV else Key("x-api-key", "")

    def models_request(self) -> Upstream | None:
        return self._build_request("models?limit=1000")

    def count_tokens_request(self, prompt: Prompt) -> TokenCountRequest:
        # The endpoint rejects every other field.
        body = {name: value for name, value in encode_body(prompt).items() if name in COUNT_TOKENS_FIELDS}
        return (
            self._build_request("messages/count_tokens", body),
            lambda response: msgspec.convert(response, Usage).input_tokens or 0,
        )

    def _build_request(self, path: str, body: JsonObject | None = None, version: str | None = None) -> Upstream:
        headers = {"anthropic-version": self.provider.api_version or version or API_VERSION}
        method = "GET" if body is None else "POST"
        return Upstream(method=method, url=f"{self.base_url}/{path}", body=body, headers=headers)
