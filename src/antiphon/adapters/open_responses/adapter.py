"""An Open Responses server as provider: any server of the protocol, or OpenAI's Responses API.

Dialect notes: Antiphon keeps the state of a conversation, so every request carries all of it and
asks the server to store nothing. Encrypted reasoning is always requested, to send it back later. A
server without a `/responses` endpoint is asked in Chat Completions instead.
"""

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.open_responses.decode import REASONS as REASONS
from antiphon.adapters.open_responses.decode import OpenResponsesDecoder
from antiphon.adapters.open_responses.encode import encode_body
from antiphon.adapters.openai_chat.servers import is_openai
from antiphon.adapters.registry import PRIVATE_SLUGS, make_adapter
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.struct import is_extension_type
from antiphon.transport.request import Upstream

MISSING_ENDPOINT_STATUSES = frozenset({404, 405, 501})
REASONING_UNSUPPORTED_PHRASES = (
    "encrypted content is not supported",
    "reasoning input items can only be provided to a reasoning",
)
"""What OpenAI answers for its models without reasoning."""

UNSUPPORTED_BY_OPENAI = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty"})
"""What OpenAI rejects in a Responses request."""


class OpenResponses(Adapter):
    """A server that speaks Open Responses, or OpenAI's variant of it."""

    name = "responses"
    passes_unknown_fields = True
    default_url = "https://api.openresponses.com/v1"
    key_env = ("OPENRESPONSES_API_KEY",)
    field_variables: ClassVar = {"base_url": ("OPENRESPONSES_BASE_URL",)}
    table_keys: ClassVar = {"strict": "true"}
    features = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens
        max_tool_calls prompt_cache_key safety_identifier user logprobs service_tier verbosity
        reasoning tools strict_tools tool_choice parallel_tool_calls allowed_tools json_object
        json_schema tools_with_format images image_urls image_detail files file_urls file_ids
        videos audio""".split()
    )

    def __init__(
        self, provider: Provider, *, always_reasoning: bool = True, chat_fallback: bool = True
    ) -> None:
        super().__init__(provider)
        # The chat adapter falls back to Responses only for OpenAI's and Azure's models. It disables
        # the way back, so such a server is known to be OpenAI's implementation.
        self._is_openai = is_openai(self.base_url) or not chat_fallback
        if self._is_openai:
            self.features -= UNSUPPORTED_BY_OPENAI
        self._always_reasoning = always_reasoning
        """Whether reasoning is sent and requested even if the request does not ask for it."""
        self._chat_fallback = chat_fallback
        """Whether a server without `/responses` is asked in Chat Completions."""

    def supports_tool(self, type: str) -> bool:
        """Accept every tool that is not private to another adapter."""
        return self.supports_item(type)

    def supports_item(self, type: str) -> bool:
        """Accept every `slug:name` that is not private to another adapter."""
        return is_extension_type(type) and type.partition(":")[0] not in PRIVATE_SLUGS

    def encode(self, prompt: Prompt) -> Upstream:
        """Encode a prompt as a Responses request."""
        reasoning = self._always_reasoning or bool(prompt.request.reasoning)
        body = encode_body(prompt, reasoning=reasoning, is_openai=self._is_openai)
        return Upstream(url=f"{self.base_url}/responses", body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return the decoder of the answer."""
        del prompt
        return OpenResponsesDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return Chat Completions for a server without `/responses`, or this without reasoning.

        OpenAI's models without reasoning reject reasoning items, and the request to encrypt them.
        """
        # Many servers have Chat Completions only, and a configuration need not say which.
        if self._chat_fallback and is_missing_endpoint(error):
            key = self.provider.api_key_env or self.key_env[0]
            changes = {"adapter": "openai", "base_url": self.base_url, "api_key_env": key}
            return make_adapter(replace(self.provider, **changes))
        if self._always_reasoning and is_reasoning_unsupported(error):
            chat = self._chat_fallback
            return OpenResponses(self.provider, always_reasoning=False, chat_fallback=chat)
        return None

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Find the error in a body, which may be an `error` event."""
        del status, headers
        error = parse_error(body)
        return replace(error, type=None) if error.type == "error" else error


def is_missing_endpoint(error: UpstreamError) -> bool:
    """Return whether an error says that the server has no `/responses` endpoint."""
    return error.status in MISSING_ENDPOINT_STATUSES and error.payload.code != "model_not_found"


def is_reasoning_unsupported(error: UpstreamError) -> bool:
    """Return whether a request was rejected because its model has no reasoning."""
    message = error.payload.message.lower()
    return error.status == 400 and any(
        phrase in message for phrase in REASONING_UNSUPPORTED_PHRASES
    )
