"""Open Responses, spoken to another server of the protocol; what it answers is heard in
`answer.py`.

Dialect notes: the state of a conversation is ours, so all of it is sent, nothing is to be stored
there, and ids go along only where they must; sealed thinking is always asked for, so that it can go
back; OpenAI's own types go without our slug. A server that has no `/responses` is asked in chat.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.adapters.base import (
    Adapter,
    Decoder,
    Prompt,
    Provider,
)
from antiphon.adapters.conversation import make_legal_name
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    drop_none,
    normalize_arguments,
    omit,
)
from antiphon.adapters.open_responses.decode import REASONS as REASONS
from antiphon.adapters.open_responses.decode import SLUG, UNSEALED_REASONING, OpenResponsesDecoder
from antiphon.adapters.openai_chat.servers import is_openai
from antiphon.adapters.registry import PRIVATE_SLUGS, make_adapter
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.foreign.openai_types import SLUG as OPENAI_SLUG
from antiphon.protocol.items import (
    Compaction,
    ExtensionItem,
    FunctionCall,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING, Request
from antiphon.protocol.struct import is_extension_type, to_builtins
from antiphon.transport.request import Upstream

OWN_FIELDS = frozenset(
    """model input previous_response_id conversation include stream stream_options background
    store""".split()
)
"""What is decided here, whatever the client asked of us."""

PASSED_FIELDS = [name for name in Request.__struct_fields__ if name not in OWN_FIELDS | {"extra"}]
DEFAULTS = Request()
MISSING_ENDPOINT_STATUSES = frozenset({404, 405, 501})
REASONING_UNSUPPORTED_PHRASES = (
    "encrypted content is not supported",
    "reasoning input items can only be provided to a reasoning",
)
"""What OpenAI says of its models that do not think."""

UNSUPPORTED_BY_OPENAI = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty"})
"""What OpenAI itself refuses in a Responses request."""

ITEMS_WITH_ID = frozenset(
    f"openai:{type}"
    for type in """code_interpreter_call computer_call file_search_call image_generation_call
    local_shell_call local_shell_call_output mcp_approval_request mcp_call mcp_list_tools program
    program_output web_search_call""".split()
)
"""The items that OpenAI takes only with an id; ours will do, for nothing is stored there."""

ITEMS_WITHOUT_STATUS = frozenset(
    f"openai:{type}"
    for type in """additional_tools compaction_trigger configuration_update custom_tool_call
    custom_tool_call_output mcp_approval_request mcp_approval_response mcp_list_tools
    program""".split()
)
"""The items that have no status there."""

CHAT_SEAL_PREFIX = '{"field":'
"""How the seal of thinking begins that came in chat."""


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
        # Only OpenAI's models send one here from chat.
        self._is_openai = is_openai(self.base_url) or not chat_fallback
        """Whether it is OpenAI's own implementation."""
        if self._is_openai:
            self.features -= UNSUPPORTED_BY_OPENAI
        self._always_reasoning = always_reasoning
        """Whether thoughts are sent, and sealed ones asked for, when nobody has asked to think."""
        self._chat_fallback = chat_fallback
        """Whether a server without `/responses` is asked in chat; not if chat has sent us."""

    def supports_tool(self, type: str) -> bool:
        """Take every tool for theirs that is not another adapter's."""
        return self.supports_item(type)

    def supports_item(self, type: str) -> bool:
        """Take every `slug:name` for theirs that is not another adapter's."""
        return is_extension_type(type) and type.partition(":")[0] not in PRIVATE_SLUGS

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt in the protocol's own words."""
        request = prompt.request
        thinks = self._always_reasoning or bool(request.reasoning)
        told = encode_items(prompt.items, reasoning=thinks, is_openai=self._is_openai)
        body: JsonObject = {"model": prompt.model, "input": told}
        for name in PASSED_FIELDS:
            value = getattr(request, name)
            if value != getattr(DEFAULTS, name):
                body[name] = WRITERS.get(name, encode_value)(value)
        body |= {} if request.extra is UNSET else unknown_fields(request.extra)
        include = [name for name in request.include if name != INCLUDE_ENCRYPTED_REASONING]
        if thinks:
            include.append(INCLUDE_ENCRYPTED_REASONING)
        if include:
            body["include"] = include
        body |= {"stream": prompt.stream, "store": False}
        return Upstream(url=f"{self.base_url}/responses", body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return OpenResponsesDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return chat for a server without `/responses`, or this one asking for less.

        OpenAI's models that do not think refuse thoughts, and to be asked for sealed ones.
        """
        if self._chat_fallback and is_missing_endpoint(error):
            key = self.provider.api_key_env or self.key_env[0]
            there = {"adapter": "openai", "base_url": self.base_url, "api_key_env": key}
            return make_adapter(replace(self.provider, **there))
        if self._always_reasoning and is_reasoning_unsupported(error):
            return OpenResponses(
                self.provider, always_reasoning=False, chat_fallback=self._chat_fallback
            )
        return None

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Find the error in a body, which may be an event."""
        del status, headers
        fault = parse_error(body)
        return replace(fault, type=None) if fault.type == "error" else fault


def is_missing_endpoint(error: UpstreamError) -> bool:
    """Tell whether a server has no `/responses`, going by how it refused a request."""
    return error.status in MISSING_ENDPOINT_STATUSES and error.payload.code != "model_not_found"


def is_reasoning_unsupported(error: UpstreamError) -> bool:
    """Tell whether a request was refused because its model does not think."""
    said = error.payload.message.lower()
    return error.status == 400 and any(words in said for words in REASONING_UNSUPPORTED_PHRASES)


# --- what is sent ---------------------------------------------------------------------------------


def encode_value(value: object) -> object:
    """Write a value with OpenAI's types as OpenAI writes them."""
    return to_builtins(value, _remove_slug)


def _remove_slug(type: str) -> str:
    return type.removeprefix(OPENAI_SLUG).removeprefix(SLUG)


def encode_without_nulls(value: object) -> JsonObject:
    """Write a value without the fields that the client left open."""
    return drop_none(as_object(encode_value(value)))


def encode_text(value: object) -> object:
    """Write what the text should look like."""
    fields = as_object(encode_value(value))
    format = drop_none(as_object(fields["format"]))
    if format["type"] == "json_schema" and not format.get("schema"):
        format = {"type": "json_object"}
    return fields | {"format": format}


def encode_tools(value: object) -> object:
    """Write the tools."""
    return [encode_without_nulls(tool) for tool in as_array(value)]


WRITERS = {"text": encode_text, "tools": encode_tools, "reasoning": encode_without_nulls}


def unknown_fields(extra: JsonObject) -> JsonObject:
    """Return the fields of a request that neither the specification nor we know."""
    return {name: extra[name] for name in extra if not name.startswith("antiphon:")}


def encode_items(items: Sequence[Item], *, reasoning: bool, is_openai: bool) -> list[JsonObject]:
    """Write a conversation. Thinking that leads to nothing is left out: OpenAI refuses it."""
    told: list[JsonObject] = []
    leads = False
    for item in reversed(items):
        if isinstance(item, Reasoning) and not (reasoning and leads and is_readable(item)):
            continue
        told.append(encode_item(item, is_openai=is_openai))
        leads = is_output(item)
    return told[::-1]


def is_readable(item: Reasoning) -> bool:
    """Tell whether thinking is sealed for this dialect; a server may have told it in chat."""
    return bool(item.encrypted_content) and not item.encrypted_content.startswith(CHAT_SEAL_PREFIX)


def is_output(item: Item) -> bool:
    """Tell whether an item is the model's own."""
    if isinstance(item, Message):
        return item.role == "assistant"
    made = isinstance(item, FunctionCall | Reasoning | ExtensionItem)
    return made and not item.type.endswith("_output")


def encode_item(item: Item, *, is_openai: bool) -> JsonObject:
    """Write an item, without what only we know of it; only OpenAI's own reads any arguments."""
    fields = cast("JsonObject", encode_value(item))
    if not isinstance(item, ExtensionItem) or item.type in ITEMS_WITHOUT_STATUS:
        fields.pop("status", None)
    if isinstance(item, Reasoning) and item.encrypted_content == UNSEALED_REASONING:
        del fields["encrypted_content"]  # it is not theirs; and these servers want an id
        return fields
    if item.type not in ITEMS_WITH_ID:
        fields.pop("id", None)
    match item:
        case Message():
            fields["content"] = [encode_content(part) for part in as_array(fields["content"])]
        case FunctionCall():
            fields["name"] = make_legal_name(item.name)
            if not is_openai:
                fields["arguments"] = normalize_arguments(item.arguments)
        case Compaction():
            fields.pop("created_by", None)
        case Reasoning():
            fields = {name: fields[name] for name in fields if name != "content" or fields[name]}
        case _:
            pass
    return fields


def encode_content(part: object) -> JsonObject:
    """Write a piece of a message."""
    return omit(drop_none(as_object(part)), ["logprobs"])
