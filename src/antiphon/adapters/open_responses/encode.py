"""Prompts, encoded as Responses requests.

OpenAI's own types are sent without their slug, and so are types that came from such a server. Ids
are sent only where OpenAI requires them: nothing is stored there, so no id is known there.
"""

from collections.abc import Sequence
from typing import cast

from msgspec import UNSET

from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import make_legal_name
from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    drop_none,
    normalize_arguments,
    omit,
)
from antiphon.adapters.open_responses.decode import SLUG, UNSEALED_REASONING
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
from antiphon.protocol.struct import to_builtins

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
        own = [name for name in request.extra if name.startswith("antiphon:")]
        body |= omit(request.extra, own)
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
        if isinstance(item, Reasoning) and not (reasoning and is_followed and _is_readable(item)):
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


def _is_readable(item: Reasoning) -> bool:
    """Return whether the server can read an item's encrypted content, which chat may have made."""
    return bool(item.encrypted_content) and not item.encrypted_content.startswith(CHAT_SEAL_PREFIX)


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


def _encode_tools(value: object) -> object:
    return [_encode_without_nulls(tool) for tool in as_array(value)]


ENCODERS = {"text": _encode_text, "tools": _encode_tools, "reasoning": _encode_without_nulls}
