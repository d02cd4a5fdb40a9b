"""Open Responses, spoken to another server of the protocol; what it answers is heard in
`answer.py`.

Dialect notes: the state of a conversation is ours, so all of it is sent, nothing is to be stored
there, and ids go along only where they must; sealed thinking is always asked for, so that it can go
back; OpenAI's own types go without our slug. A server that has no `/responses` is asked in chat.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.adapters import carry
from antiphon.adapters.address import is_openai
from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider
from antiphon.adapters.faults import Fault, fault_in
from antiphon.adapters.fields import Fields, arguments_of, fields_of, given, list_of, without
from antiphon.adapters.registry import adapter_for
from antiphon.adapters.responses.answer import REASONS as REASONS
from antiphon.adapters.responses.answer import ResponsesDecoder
from antiphon.adapters.responses.items import RAW_MARK, bare
from antiphon.adapters.story import legal_name
from antiphon.core.errors import UpstreamError
from antiphon.core.items import Compaction, ExtensionItem, FunctionCall, Item, Message, Reasoning
from antiphon.core.request import ENCRYPTED_REASONING, Request
from antiphon.core.value import is_extension_type, plain
from antiphon.wire.upstream import Upstream

OURS = frozenset(
    """model input previous_response_id conversation include stream stream_options background
    store""".split()
)
"""What is decided here, whatever the client asked of us."""

PASSED = [name for name in Request.__struct_fields__ if name not in OURS | {"extra"}]
DEFAULTS = Request()
ABSENT = frozenset({404, 405, 501})
THOUGHTLESS = (
    "encrypted content is not supported",
    "reasoning input items can only be provided to a reasoning",
)
"""What OpenAI says of its models that do not think."""

UNKNOWN_TO_OPENAI = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty"})
"""What OpenAI itself refuses in a Responses request."""

IDENTIFIED = frozenset(
    f"openai:{type}"
    for type in """code_interpreter_call computer_call file_search_call image_generation_call
    local_shell_call local_shell_call_output mcp_approval_request mcp_call mcp_list_tools program
    program_output web_search_call""".split()
)
"""The items that OpenAI takes only with an id; ours will do, for nothing is stored there."""

TIMELESS = frozenset(
    f"openai:{type}"
    for type in """additional_tools compaction_trigger configuration_update custom_tool_call
    custom_tool_call_output mcp_approval_request mcp_approval_response mcp_list_tools
    program""".split()
)
"""The items that have no status there."""

CHAT_MARK = '{"field":'
"""How the seal of thinking begins that came in chat."""

OTHERS = frozenset({"anthropic", "antiphon", "bedrock", "google", "ollama", "writer"})
"""The slugs of what only another adapter of ours knows."""


class Responses(Adapter):
    """A server that speaks Open Responses, or OpenAI's variant of it."""

    name = "responses"
    passes_unknown = True
    default_url = "https://api.openresponses.com/v1"
    key_env = ("OPENRESPONSES_API_KEY",)
    carries = frozenset(carry.ALL)

    def __init__(self, provider: Provider, *, eager: bool = True, chats: bool = True) -> None:
        super().__init__(provider)
        # Only OpenAI's models send one here from chat.
        self._own = is_openai(self.base_url) or not chats
        """Whether it is OpenAI's own implementation."""
        if self._own:
            self.carries -= UNKNOWN_TO_OPENAI
        self._eager = eager
        """Whether thoughts are sent, and sealed ones asked for, when nobody has asked to think."""
        self._chats = chats
        """Whether a server without `/responses` is asked in chat; not if chat has sent us."""

    def hosts(self, type: str) -> bool:
        """Take every tool for theirs that is not another adapter's."""
        return self.reads(type)

    def reads(self, type: str) -> bool:
        """Take every `slug:name` for theirs that is not another adapter's."""
        return is_extension_type(type) and type.partition(":")[0] not in OTHERS

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt in the protocol's own words."""
        request = prompt.request
        thinks = self._eager or bool(request.reasoning)
        told = written(prompt.items, thinks=thinks, own=self._own)
        body: Fields = {"model": prompt.model, "input": told}
        for name in PASSED:
            value = getattr(request, name)
            if value != getattr(DEFAULTS, name):
                body[name] = WRITERS.get(name, plainly)(value)
        body |= {} if request.extra is UNSET else passed_on(request.extra)
        include = [name for name in request.include if name != ENCRYPTED_REASONING]
        if thinks:
            include.append(ENCRYPTED_REASONING)
        if include:
            body["include"] = include
        body |= {"stream": prompt.stream, "store": False}
        return Upstream(url=f"{self.base_url}/responses", body=body)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        del prompt
        return ResponsesDecoder(self)

    def instead(self, error: UpstreamError) -> Adapter | None:
        """Return chat for a server without `/responses`, or this one asking for less.

        OpenAI's models that do not think refuse thoughts, and to be asked for sealed ones.
        """
        if self._chats and is_absent(error):
            key = self.provider.api_key_env or self.key_env[0]
            there = {"adapter": "openai", "base_url": self.base_url, "api_key_env": key}
            return adapter_for(replace(self.provider, **there))
        if self._eager and is_thoughtless(error):
            return Responses(self.provider, eager=False, chats=self._chats)
        return None

    def fault(self, status: int, headers: Mapping[str, str], value: object) -> Fault:
        """Find the error in a body, which may be an event."""
        del status, headers
        fault = fault_in(value)
        return replace(fault, type=None) if fault.type == "error" else fault


def is_absent(error: UpstreamError) -> bool:
    """Tell whether a server has no `/responses`, going by how it refused a request."""
    return error.status in ABSENT and error.payload.code != "model_not_found"


def is_thoughtless(error: UpstreamError) -> bool:
    """Tell whether a request was refused because its model does not think."""
    said = error.payload.message.lower()
    return error.status == 400 and any(words in said for words in THOUGHTLESS)


# --- what is sent ---------------------------------------------------------------------------------


def plainly(value: object) -> object:
    """Write a value with OpenAI's types as OpenAI writes them."""
    return plain(value, bare)


def short(value: object) -> Fields:
    """Write a value without the fields that the client left open."""
    return given(fields_of(plainly(value)))


def text(value: object) -> object:
    """Write what the text should look like."""
    fields = fields_of(plainly(value))
    format = given(fields_of(fields["format"]))
    if format["type"] == "json_schema" and not format.get("schema"):
        format = {"type": "json_object"}
    return fields | {"format": format}


def tools(value: object) -> object:
    """Write the tools."""
    return [short(tool) for tool in list_of(value)]


WRITERS = {"text": text, "tools": tools, "reasoning": short}


def passed_on(extra: Fields) -> Fields:
    """Return the fields of a request that neither the specification nor we know."""
    return {name: extra[name] for name in extra if not name.startswith("antiphon:")}


def written(items: Sequence[Item], *, thinks: bool, own: bool) -> list[Fields]:
    """Write a conversation. Thinking that leads to nothing is left out: OpenAI refuses it."""
    told: list[Fields] = []
    leads = False
    for item in reversed(items):
        if isinstance(item, Reasoning) and not (thinks and leads and is_readable(item)):
            continue
        told.append(item_of(item, own=own))
        leads = is_output(item)
    return told[::-1]


def is_readable(item: Reasoning) -> bool:
    """Tell whether thinking is sealed for this dialect; a server may have told it in chat."""
    return bool(item.encrypted_content) and not item.encrypted_content.startswith(CHAT_MARK)


def is_output(item: Item) -> bool:
    """Tell whether an item is the model's own."""
    if isinstance(item, Message):
        return item.role == "assistant"
    made = isinstance(item, FunctionCall | Reasoning | ExtensionItem)
    return made and not item.type.endswith("_output")


def item_of(item: Item, *, own: bool) -> Fields:
    """Write an item, without what only we know of it; only OpenAI's own reads any arguments."""
    fields = cast("Fields", plainly(item))
    if not isinstance(item, ExtensionItem) or item.type in TIMELESS:
        fields.pop("status", None)
    if isinstance(item, Reasoning) and item.encrypted_content == RAW_MARK:
        del fields["encrypted_content"]  # it is not theirs; and these servers want an id
        return fields
    if item.type not in IDENTIFIED:
        fields.pop("id", None)
    match item:
        case Message():
            fields["content"] = [piece(part) for part in list_of(fields["content"])]
        case FunctionCall():
            fields["name"] = legal_name(item.name)
            if not own:
                fields["arguments"] = arguments_of(item.arguments)
        case Compaction():
            fields.pop("created_by", None)
        case Reasoning():
            fields = {name: fields[name] for name in fields if name != "content" or fields[name]}
        case _:
            pass
    return fields


def piece(part: object) -> Fields:
    """Write a piece of a message."""
    return without(given(fields_of(part)), ["logprobs"])
