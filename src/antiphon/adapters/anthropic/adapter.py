"""Anthropic Messages, spoken both ways: the conversation is written in `conversation.py`, the
answer heard in `answer.py`.

Dialect notes: `max_tokens` must be said; a temperature exists only in the older of two versions of
the API; the key goes into a header of its own; how to think is decided in `thinking.py`.
"""

from typing import ClassVar

import msgspec

from antiphon.adapters.anthropic import tools
from antiphon.adapters.anthropic.decode import REASONS as REASONS
from antiphon.adapters.anthropic.decode import AnthropicDecoder
from antiphon.adapters.anthropic.encode import ConversationEncoder
from antiphon.adapters.anthropic.models import Claude, lookup_claude
from antiphon.adapters.anthropic.thinking import choose_max_tokens, plan_thinking
from antiphon.adapters.anthropic.wire_types import Usage
from antiphon.adapters.base import (
    Adapter,
    Decoder,
    Prompt,
    Provider,
    TokenCountRequest,
)
from antiphon.adapters.features import service_tier_name
from antiphon.adapters.json_access import JsonObject, as_object, drop_empty
from antiphon.protocol.tools import WEB_SEARCH_TYPES
from antiphon.transport.request import Credential, Key, Upstream

API_VERSION = "2026-10-21"
SAMPLING_API_VERSION = "2023-06-01"
"""The last version that has a temperature."""

SERVICE_TIERS = {"auto": "auto", "priority": "auto"}
"""What they call a tier; their default is also ours."""

SCHEMA_FEATURES = frozenset({"json_schema", "strict_tools"})
"""What is held to a schema."""

AUTH_TOKEN_ENV = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105
"""The variable whose value is shown as gateways want it, a bearer token."""

COUNT_TOKENS_FIELDS = frozenset(
    """model messages system tools tool_choice thinking output_config cache_control""".split()
)
"""The fields that a count of tokens depends on, and takes."""

SERVER_TOOL_BLOCKS = """server_tool_use web_search_tool_result web_fetch_tool_result code_execution_tool_result
    bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result
    container_upload""".split()  # noqa: E501
"""The blocks of tools that Anthropic runs, which go back as they came."""


class Anthropic(Adapter):
    """Anthropic's API, or one that speaks like it."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    key_env = ("ANTHROPIC_API_KEY", AUTH_TOKEN_ENV)
    field_variables: ClassVar = {"base_url": ("ANTHROPIC_BASE_URL",)}
    table_keys: ClassVar = {"api_version": f'"{API_VERSION}"'}
    features = frozenset(
        """temperature top_p stop max_output_tokens prompt_cache_key safety_identifier user
        service_tier reasoning tools strict_tools tool_choice parallel_tool_calls json_schema
        tools_with_format images image_urls files file_urls file_ids""".split()
    )
    hosted_tools = WEB_SEARCH_TYPES
    raw_tool_slug = tools.SLUG
    extension_items = frozenset(
        {"openai:web_search_call"} | {f"{tools.SLUG}{block}" for block in SERVER_TOOL_BLOCKS}
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.base_url = f"{self.base_url.removesuffix('/v1')}/v1"

    def missing_features(self, model: str) -> frozenset[str]:
        """Older models hold neither their answers nor their calls to a schema."""
        return frozenset() if lookup_claude(model).supports_schemas else SCHEMA_FEATURES

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Anthropic's request."""
        claude = lookup_claude(prompt.model)
        script = ConversationEncoder(prompt, claude)
        thought = plan_thinking(
            prompt, claude, calls_without_thinking=script.calls_without_thinking
        )
        sampled = encode_sampling(prompt, claude, thinks=thought.thinks)
        asked = tools.forced_call_instruction(prompt, claude)
        body: JsonObject = {
            "model": prompt.model,
            "max_tokens": choose_max_tokens(prompt, thought),
            "system": "\n\n".join(filter(None, [script.system, asked])),
            "messages": script.messages,
            "tools": tools.encode_tools(prompt),
            "tool_choice": tools.encode_tool_choice(prompt, claude),
            "thinking": thought.thinking,
            "output_config": drop_empty(
                {"effort": thought.effort, "format": tools.encode_format(prompt)}
            ),
            "stream": prompt.stream or None,
        }
        body |= sampled | encode_options(prompt)
        return self._build_request(
            "messages", drop_empty(body), SAMPLING_API_VERSION if sampled else API_VERSION
        )

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        return AnthropicDecoder(self, prompt)

    def credential(self) -> Credential | None:
        """Show the key in Anthropic's own header, and a token in the one for tokens."""
        return Key() if self.provider.api_key_env == AUTH_TOKEN_ENV else Key("x-api-key", "")

    def models_request(self) -> Upstream | None:
        """Describe the request that lists the models."""
        headers = {"anthropic-version": self.provider.api_version or API_VERSION}
        return Upstream(method="GET", url=f"{self.base_url}/models?limit=1000", headers=headers)

    def count_tokens_request(self, prompt: Prompt) -> TokenCountRequest:
        """Describe how the tokens of a prompt are counted."""
        body = as_object(self.encode(prompt).body)
        body = {name: body[name] for name in body if name in COUNT_TOKENS_FIELDS}
        return self._build_request("messages/count_tokens", body, API_VERSION), decode_token_count

    def _build_request(self, path: str, body: JsonObject, version: str) -> Upstream:
        headers = {"anthropic-version": self.provider.api_version or version}
        return Upstream(url=f"{self.base_url}/{path}", body=body, headers=headers)


def decode_token_count(body: object) -> int:
    """Read a count of tokens; raises ValueError."""
    return msgspec.convert(body, Usage).input_tokens or 0


def encode_options(prompt: Prompt) -> JsonObject:
    """Write what stands for itself."""
    request = prompt.request
    for index, stop in enumerate(request.stop or ()):
        if not stop.strip():
            message = "Anthropic cannot stop at white space alone."
            raise prompt.unsupported_error(message, f"stop[{index}]")
    user = request.safety_identifier or request.user
    return {
        "stop_sequences": request.stop,
        "metadata": {"user_id": user} if user else None,
        "service_tier": service_tier_name(prompt, SERVICE_TIERS),
        "cache_control": {"type": "ephemeral"} if request.prompt_cache_key else None,
    }


def encode_sampling(prompt: Prompt, claude: Claude, *, thinks: bool) -> dict[str, float]:
    """Write the temperature or `top_p`; 1 is what holds anyway, and is not worth a version."""
    request = prompt.request
    asked = {"temperature": request.temperature, "top_p": request.top_p}
    given = {name: value for name, value in asked.items() if value is not None and value != 1}
    refused = ""
    if not claude.supports_sampling:
        refused = f"the model '{prompt.model}' does not take it"
    elif thinks:
        refused = "a model that thinks does not take it"
    for name in list(given) if refused else list(given)[1:]:
        del given[name]
        reason = refused or "it stands beside a temperature"
        prompt.warn("unsupported_parameter", f"'{name}' was not sent: {reason}.", name)
    if given.get("temperature", 0) > 1:
        message = "Anthropic knows no temperature above 1; 1 applies."
        prompt.warn("unsupported_parameter", message, "temperature")
        del given["temperature"]
    return given
