"""An Open Responses server as provider: any server of the protocol, or OpenAI's Responses API.

Dialect notes: Antiphon keeps the state of a conversation, so every request carries all of it and
asks the server to store nothing. Encrypted reasoning is always requested, to send it back later. A
server without a `/responses` endpoint is asked in Chat Completions instead.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider
from antiphon.adapters.conversation import make_legal_name
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.json_access import normalize_arguments
from antiphon.adapters.open_responses.decode import SLUG, UNSEALED_REASONING, OpenResponsesDecoder
from antiphon.adapters.openai_chat.servers import is_openai
from antiphon.adapters.registry import PRIVATE_SLUGS, make_adapter
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.foreign.lenient import SLUG as OPENAI_SLUG
from antiphon.protocol.items import Compaction, ExtensionItem, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING, Request
from antiphon.protocol.struct import JsonObject, as_array, as_object, drop_none, is_extension_type, omit, to_builtins
from antiphon.transport.request import Upstream

OWN_FIELDS = frozenset(
    """model input previous_response_id conversation include stream stream_options background
    store""".split()
)
"""The fields that Antiphon decides itself, whatever the client sent."""

PASSED_FIELDS = [name for name in Request.__struct_fields__ if name not in OWN_FIELDS | {"extra"}]
DEFAULTS = Request()
ITEMS_WITH_ID = frozenset(
    f"openai:{type}"
    for type in """code_interpreter_call computer_call file_search_call image_generation_call
    local_shell_call local_shell_call_output mcp_approval_request mcp_call mcp_list_tools program
    program_output web_search_call""".split()
)
"""The items that OpenAI accepts only with an id; any id will do, because nothing is stored."""

ITEMS_WITHOUT_STATUS = frozenset(
    f"openai:{type}"
    for type in """additional_tools compaction_trigger configuration_update custom_tool_call
    custom_tool_call_output mcp_approval_request mcp_approval_response mcp_list_tools
    program""".split()
)
"""The items that have no status at OpenAI."""

CHAT_SEAL_PREFIX = '{"field":'
"""How the encrypted content begins that the chat adapter made; only that adapter can read it."""


def encode_body(prompt: Prompt, *, reasoning: bool, is_openai: bool) -> JsonObject:
    """Encode a prompt; `reasoning` says whether reasoning is sent and requested."""
    request = prompt.request
    items = encode_items(prompt.items, reasoning=reasoning, is_openai=is_openai)
    body: JsonObject = {"model": prompt.model, "input": items}
    for name in PASSED_FIELDS:
        value = getattr(request, name)
        if value != getattr(DEFAULTS, name):
            body[name] = ENCODERS.get(name, _encode_value)(value)
    if request.extra is not UNSET:
        # Fields that nobody here knows are the server's affair, but for Antiphon's own extensions.
        body |= {name: value for name, value in request.extra.items() if not name.startswith("antiphon:")}
    include = [name for name in request.include if name != INCLUDE_ENCRYPTED_REASONING]
    include += [INCLUDE_ENCRYPTED_REASONING] if reasoning else []
    body |= {"include": include} if include else {}
    return body | {"stream": prompt.stream, "store": False}


def encode_items(items: Sequence[Item], *, reasoning: bool, is_openai: bool) -> list[JsonObject]:
    """Encode a conversation.

    Reasoning that no output of the model follows is left out: OpenAI rejects it.
    """
    encoded: list[JsonObject] = []
    is_followed = False
    for item in reversed(items):
        if isinstance(item, Reasoning):
            seal = item.encrypted_content
            if not (reasoning and is_followed and seal) or seal.startswith(CHAT_SEAL_PREFIX):
                continue
        encoded.append(_encode_item(item, is_openai=is_openai))
        is_followed = _is_output(item)
    return encoded[::-1]


def _encode_item(item: Item, *, is_openai: bool) -> JsonObject:
    fields = cast("JsonObject", _encode_value(item))
    if not isinstance(item, ExtensionItem) or item.type in ITEMS_WITHOUT_STATUS:
        fields.pop("status", None)
    if isinstance(item, Reasoning) and item.encrypted_content == UNSEALED_REASONING:
        # The mark is Antiphon's. Servers that do not encrypt their reasoning require its id.
        del fields["encrypted_content"]
        return fields
    if item.type not in ITEMS_WITH_ID:
        fields.pop("id", None)
    match item:
        case Message():
            content = [drop_none(as_object(part)) for part in as_array(fields["content"])]
            fields["content"] = [omit(part, ("logprobs",)) for part in content]
        case FunctionCall():
            fields["name"] = make_legal_name(item.name)
            # OpenAI accepts any string as arguments. Others parse them, and fail if they cannot.
            if not is_openai:
                fields["arguments"] = normalize_arguments(item.arguments)
        case Compaction():
            fields.pop("created_by", None)
        case Reasoning():
            fields = {name: fields[name] for name in fields if name != "content" or fields[name]}
        case _:
            pass
    return fields


def _is_output(item: Item) -> bool:
    """Return whether the model has made an item."""
    if isinstance(item, Message):
        return item.role == "assistant"
    is_own = isinstance(item, FunctionCall | Reasoning | ExtensionItem)
    return is_own and not item.type.endswith("_output")


def _encode_value(value: object) -> object:
    return to_builtins(value, lambda name: name.removeprefix(OPENAI_SLUG).removeprefix(SLUG))


def _encode_without_nulls(value: object) -> JsonObject:
    return drop_none(as_object(_encode_value(value)))


def _encode_text(value: object) -> object:
    fields = as_object(_encode_value(value))
    format = drop_none(as_object(fields["format"]))
    # A schema that is empty asks for any JSON, which servers know under another name.
    if format["type"] == "json_schema" and not format.get("schema"):
        format = {"type": "json_object"}
    return fields | {"format": format}


ENCODERS: dict[str, Callable[[object], object]] = {
    "text": _encode_text,
    "tools": lambda tools: [_encode_without_nulls(tool) for tool in as_array(tools)],
    "reasoning": _encode_without_nulls,
}
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
    has_threads = False
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

    def __init__(self, provider: Provider, *, always_reasoning: bool = True, chat_fallback: bool = True) -> None:
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

    def supports_item(self, type: str) -> bool:
        """Accept every `slug:name` that is not private to another adapter."""
        return is_extension_type(type) and type.partition(":")[0] not in PRIVATE_SLUGS

    supports_tool = supports_item

    def encode(self, prompt: Prompt) -> Upstream:
        reasoning = self._always_reasoning or bool(prompt.request.reasoning)
        body = encode_body(prompt, reasoning=reasoning, is_openai=self._is_openai)
        return Upstream(url=f"{self.base_url}/responses", body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
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
            return OpenResponses(self.provider, always_reasoning=False, chat_fallback=self._chat_fallback)
        return None

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Find the error in a body, which may be an `error` event."""
        error = parse_error(body)
        return replace(error, type=None) if error.type == "error" else error


def is_missing_endpoint(error: UpstreamError) -> bool:
    """Return whether an error says that the server has no `/responses` endpoint."""
    return error.status in MISSING_ENDPOINT_STATUSES and error.payload.code != "model_not_found"


def is_reasoning_unsupported(error: UpstreamError) -> bool:
    """Return whether a request was rejected because its model has no reasoning."""
    message = error.payload.message.lower()
    return error.status == 400 and any(phrase in message for phrase in REASONING_UNSUPPORTED_PHRASES)
