"""Writes a prompt as the body of an Anthropic Messages request.

Dialect notes: messages consist of blocks. The API rejects empty text blocks, and an assistant turn
that ends with thinking. Thinking goes back unchanged and in its place, from the state that the
decoder put into `encrypted_content`. Tool results come first in the user's turn.
"""

import re
from collections.abc import Callable
from typing import Any, TypedDict

from antiphon.adapters import media
from antiphon.adapters.anthropic.models import Claude, choose_max_tokens, encode_sampling, lookup_claude, plan_thinking
from antiphon.adapters.anthropic.wire_types import SLUG, SealedThinking
from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    EMPTY_SCHEMA,
    ConversationTurn,
    encode_pieces,
    history_tool_names,
    make_legal_id,
    make_legal_name,
    split_turns,
    system_text,
)
from antiphon.adapters.features import service_tier_name
from antiphon.adapters.json_access import decode_as, drop_empty, parse_arguments
from antiphon.adapters.json_via_tool import ANSWER_TOOL_NAME
from antiphon.protocol import items
from antiphon.protocol.json_schema import Schema, is_array, is_object
from antiphon.protocol.request import JsonSchemaFormat
from antiphon.protocol.struct import JsonObject, as_array
from antiphon.protocol.tools import (
    WEB_SEARCH_TYPES,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
    Tool,
    ToolChoice,
    must_call,
)

SERVICE_TIERS = {"auto": "auto", "priority": "auto"}
THINKING_BLOCKS = ("thinking", "redacted_thinking")
TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")
MAX_TOOL_NAME = 128

# The oldest version of the tool: every model that can search supports it.
WEB_SEARCH_TOOL: JsonObject = {"type": "web_search_20250305", "name": "web_search"}
DOMAIN_FILTERS = ("allowed_domains", "blocked_domains")


def encode_body(prompt: Prompt) -> JsonObject:
    """Write a prompt as a request body; raises RequestError for what cannot be sent."""
    request, claude = prompt.request, lookup_claude(prompt.model)
    encoder = MessagesEncoder(prompt, claude)
    without_thinking = calls_without_thinking(
        encoder.messages,
        is_result=lambda block: block["type"] == "tool_result",
        is_thinking=lambda block: block["type"] in THINKING_BLOCKS,
    )
    plan = plan_thinking(prompt, claude, calls_without_thinking=without_thinking)
    sampling = encode_sampling(prompt, claude, thinks=plan.thinks)
    instruction = tool_call_instruction(prompt, claude)
    for index, stop in enumerate(request.stop or ()):
        if not stop.strip():
            message = "Anthropic does not support stop sequences of white space only."
            raise prompt.unsupported_error(message, f"stop[{index}]")
    user = request.safety_identifier or request.user
    body: JsonObject = {
        "model": prompt.model,
        "max_tokens": choose_max_tokens(prompt, plan),
        "system": "\n\n".join(filter(None, [encoder.system, instruction])),
        "messages": encoder.messages,
        "tools": _encode_tools(prompt),
        "tool_choice": _encode_tool_choice(prompt, "auto" if instruction else request.tool_choice),
        "thinking": plan.thinking,
        "output_config": drop_empty({"effort": plan.effort, "format": _encode_format(prompt)}),
        "stream": prompt.stream or None,
        "stop_sequences": request.stop,
        "metadata": {"user_id": user} if user else None,
        "service_tier": service_tier_name(prompt, SERVICE_TIERS),
        "cache_control": {"type": "ephemeral"} if request.prompt_cache_key else None,
    }
    return drop_empty(body | sampling)


class BlockMessage(TypedDict):
    """A message of content blocks."""

    role: str
    content: list[JsonObject]


def add_message(messages: list[BlockMessage], role: str, blocks: list[JsonObject]) -> None:
    """Add a message; its blocks join the last message if that has the same role."""
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    elif blocks:
        messages.append({"role": role, "content": blocks})


class MessagesEncoder:
    """The system text and the messages of one prompt."""

    def __init__(self, prompt: Prompt, claude: Claude) -> None:
        self._prompt = prompt
        self._claude = claude
        self.system = prompt.request.instructions or ""
        turns = split_turns(prompt.items)
        # A system turn that is all there is becomes the user's: there must be a message.
        if len(turns) > 1 and turns[0].role == "system":
            first = self._system_text(turns.pop(0))
            self.system = "\n\n".join(filter(None, [self.system, first]))
        self.messages = self._alternate_roles(turns)
        if not self.messages:
            raise prompt.unsupported_error(EMPTY_CONVERSATION, "input")
        strip_trailing_space(self.messages[-1])

    def _alternate_roles(self, turns: list[ConversationTurn]) -> list[BlockMessage]:
        """Return messages whose roles alternate; join consecutive turns of one role."""
        encoded = [(turn.role, blocks) for turn in turns if (blocks := self._encode_turn(turn))]
        following = [role for role, _ in encoded[1:]] + ["assistant"]
        messages: list[BlockMessage] = []
        for (role, blocks), next_role in zip(encoded, following, strict=False):
            # The API accepts a system message only between a user's and an assistant's.
            allowed = messages and messages[-1]["role"] == "user" and next_role == "assistant"
            if role == "system" and not (allowed and self._claude.supports_system_messages):
                role = "user"
                if len(encoded) > 1:
                    blocks = [block | {"text": f"<system>\n{block['text']}\n</system>"} for block in blocks]
            add_message(messages, "user" if role == "tool" else role, blocks)
        return messages

    def _encode_turn(self, turn: ConversationTurn) -> list[JsonObject]:
        if turn.role == "system":
            return _text_blocks(self._system_text(turn))
        blocks = [block for item in turn.items for block in self._encode_item(item)]
        # The API rejects a turn that ends with thinking.
        while turn.role == "assistant" and blocks and blocks[-1]["type"] in THINKING_BLOCKS:
            blocks.pop()
        return blocks

    def _system_text(self, turn: ConversationTurn) -> str:
        texts = [
            "".join(encode_pieces(self._prompt, item, lambda part: [system_text(part)]))
            for item in turn.items
            if isinstance(item, items.Message)
        ]
        return "\n\n".join(filter(None, texts))

    def _encode_item(self, item: items.Item) -> list[JsonObject]:
        match item:
            case items.Message():
                return encode_pieces(self._prompt, item, _encode_content)
            case items.FunctionCall():
                id, name = make_legal_id(item.call_id, TOOL_USE_ID), make_legal_name(item.name, MAX_TOOL_NAME)
                return [{"type": "tool_use", "id": id, "name": name, "input": parse_arguments(item.arguments)}]
            case items.FunctionCallOutput():
                return [self._encode_tool_result(item)]
            case items.Reasoning(encrypted_content=str() as sealed):
                return _encode_thinking(sealed)
            case items.ExtensionItem() if item.type.startswith(SLUG):
                # The client may have changed the item, so its block is checked.
                block, type = item.get("block"), item.type.removeprefix(SLUG)
                return [block] if is_object(block) and block.get("type") == type else []
            case _:
                return []

    def _encode_tool_result(self, item: items.FunctionCallOutput) -> JsonObject:
        text = item.output if isinstance(item.output, str) else ""
        result: JsonObject = {
            "type": "tool_result",
            "tool_use_id": make_legal_id(item.call_id, TOOL_USE_ID),
            "content": text or encode_pieces(self._prompt, item, _encode_content),
            "is_error": True if item.status == "incomplete" else None,
        }
        return drop_empty(result)


def calls_without_thinking(
    messages: list[BlockMessage], is_result: Callable[[JsonObject], bool], is_thinking: Callable[[JsonObject], bool]
) -> bool:
    """Return whether calls are being answered whose assistant turn does not start with thinking."""
    first: JsonObject | None = None
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message["content"][0]
        elif not all(map(is_result, message["content"])):
            break
    return first is not None and messages[-1]["role"] != "assistant" and not is_thinking(first)


def strip_trailing_space(message: BlockMessage) -> None:
    """Strip white space from the end of an assistant's last text; providers reject it there."""
    last = message["content"][-1]
    if message["role"] == "assistant" and "text" in last:
        last["text"] = str(last["text"]).rstrip()


def _text_blocks(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _encode_thinking(sealed: str) -> list[JsonObject]:
    """Write thinking unchanged; another provider's is left out."""
    state = decode_as(SealedThinking, sealed) or SealedThinking()
    if state.redacted:
        return [{"type": "redacted_thinking", "data": state.redacted}]
    thinking: JsonObject = {"type": "thinking", "thinking": state.thinking, "signature": state.signature}
    return [thinking] if state.signature else []


def _encode_content(part: items.Content) -> list[JsonObject]:
    """Write a piece of content; raises ValueError with the reason if that is impossible."""
    if not isinstance(part, items.InputImage | items.InputFile):
        return _text_blocks(items.content_text(part))
    file, is_image = media.read_media(part)
    if file.url:
        source = {"type": "url", "url": file.url}
    elif file.id:
        source = {"type": "file", "file_id": file.id}
    elif is_image or file.media_type == "application/pdf":
        source = {"type": "base64", "media_type": file.media_type, "data": file.data}
    elif file.is_text:
        source = {"type": "text", "media_type": "text/plain", "data": file.raw.decode()}
    else:
        raise ValueError(f"a file may be a PDF or text, not {file.media_type or 'of unknown type'}")
    if is_image:
        return [{"type": "image", "source": source}]
    return [drop_empty({"type": "document", "source": source, "title": file.name})]


def _encode_tools(prompt: Prompt) -> list[JsonObject]:
    tools = [_encode_tool(prompt, tool, index) for index, tool in enumerate(prompt.request.tools)]
    # Anthropic rejects calls in the history of a request without tools.
    names = history_tool_names(prompt, MAX_TOOL_NAME)
    return tools + [{"name": name, "input_schema": EMPTY_SCHEMA} for name in names]


def _encode_tool(prompt: Prompt, tool: Tool, index: int) -> JsonObject:
    if isinstance(tool, ExtensionTool):
        options: Schema = dict(tool.extra or {})
        if tool.type in WEB_SEARCH_TYPES:
            return WEB_SEARCH_TOOL | _encode_web_search(prompt, options, f"tools[{index}]")
        return {**options, "type": tool.type.removeprefix(SLUG)}
    schema = EMPTY_SCHEMA | (tool.parameters or {})
    if tool.strict:
        schema = relax_schema(prompt, schema, f"tools[{index}].parameters")
    fields: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": schema,
        "strict": tool.strict or None,
    }
    return drop_empty(fields)


def _encode_web_search(prompt: Prompt, options: Schema, path: str) -> JsonObject:
    """Write OpenAI's options of a web search as Anthropic's; warn of those it does not have."""
    search: JsonObject = {}
    unsupported: list[str] = []
    for name, value in options.items():
        match name, value:
            case ("external_web_access", True) | (_, None):
                pass
            case "user_location", _ if is_object(value):
                # Anthropic requires the type; OpenAI's clients may leave it out.
                search[name] = {"type": "approximate"} | value
            case "filters", _ if is_object(value):
                search |= {key: value[key] for key in DOMAIN_FILTERS if value.get(key)}
                unsupported += [f"{name}.{key}" for key in value if key not in DOMAIN_FILTERS]
            case _:
                unsupported.append(name)
    for name in unsupported:
        message = f"Anthropic's web search has no option '{name}'; it was not sent."
        prompt.warn("unsupported_parameter", message, f"{path}.{name}")
    return search


def _encode_tool_choice(prompt: Prompt, choice: ToolChoice) -> JsonObject | None:
    request = prompt.request
    if not request.tools:
        return {"type": "none"} if history_tool_names(prompt) else None
    encoded: JsonObject
    match choice:
        case FunctionToolChoice(name=name):
            encoded = {"type": "tool", "name": name}
        case ExtensionToolChoice(type=type) if type in WEB_SEARCH_TYPES:
            encoded = {"type": "tool", "name": WEB_SEARCH_TOOL["name"]}
        case ExtensionToolChoice(type=type):
            names = (tool.get("name") for tool in request.tools if tool.type == type)
            encoded = {"type": "tool", "name": choice.get("name") or next(names, None) or type.removeprefix(SLUG)}
        case _:
            encoded = {"type": "any" if choice == "required" else choice}
    if not request.parallel_tool_calls and choice != "none":
        encoded["disable_parallel_tool_use"] = True
    return None if encoded == {"type": "auto"} else encoded


def tool_call_instruction(prompt: Prompt, claude: Claude) -> str | None:
    """Return the instruction that replaces the tool choice for models that cannot be forced to call a tool.

    Raises RequestError for any tool but `json_via_tool`'s: only that one's result is checked, so
    only there does a model that ignores the instruction lead to an error.
    """
    tools, choice = prompt.request.tools, prompt.request.tool_choice
    if claude.supports_forced_tools or not (tools and must_call(choice)):
        return None
    name = tools[-1].name if isinstance(tools[-1], FunctionTool) else ""
    is_answer = name.rstrip("_") == ANSWER_TOOL_NAME
    if is_answer and choice in ("required", FunctionToolChoice(name=name)):
        return f"Never answer in text. Give the final answer by calling the tool '{name}'."
    message = f"The model '{prompt.model}' cannot be forced to call a tool. Use 'auto'."
    raise prompt.unsupported_error(message, "tool_choice")


UNENFORCEABLE_KEYWORDS = frozenset(
    """minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
    minItems maxItems uniqueItems minProperties maxProperties contains minContains maxContains
    """.split()
)
# A tuple, not a set: a client's `format` may be a list, which cannot be hashed.
ENFORCEABLE_FORMATS = tuple("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())
SCHEMA_MAPS = ("properties", "$defs", "definitions")
MAX_SCHEMA_DEPTH = 64


def _encode_format(prompt: Prompt) -> JsonObject | None:
    format = prompt.request.text.format
    if not (isinstance(format, JsonSchemaFormat) and format.schema):
        return None
    return {"type": "json_schema", "schema": relax_schema(prompt, format.schema, "text.format.schema")}


def relax_schema(prompt: Prompt, schema: Schema, param: str) -> Schema:
    """Return a schema that Anthropic can enforce; warn of the keywords that it cannot."""
    removed: set[str] = set()
    relaxed = _relax(schema, removed, 0)
    if removed:
        names = ", ".join(f"'{name}'" for name in sorted(removed))
        message = f"{names} cannot be enforced and was moved into the description."
        prompt.warn("schema_relaxed", message, param)
    return relaxed


def _relax(schema: Any, removed: set[str], depth: int) -> Any:
    """Close every object, and move what cannot be enforced into the description."""
    if not is_object(schema) or depth > MAX_SCHEMA_DEPTH:
        return schema
    relaxed: Schema = {}
    notes: list[str] = []
    for key, value in schema.items():
        if _is_unenforceable(key, value):
            notes.append(f"{key}: {value}")
            removed.add(key)
        elif key in SCHEMA_MAPS and is_object(value):
            relaxed[key] = {name: _relax(value[name], removed, depth + 1) for name in value}
        elif key in ("anyOf", "allOf", "oneOf") and is_array(value):
            relaxed[key] = [_relax(branch, removed, depth + 1) for branch in value]
        else:
            relaxed[key] = _relax(value, removed, depth + 1) if key == "items" else value
    # `oneOf` becomes `anyOf`; beside another `anyOf` it goes under `allOf`, so that both apply.
    if is_array(branches := relaxed.get("oneOf")):
        del relaxed["oneOf"]
        if "anyOf" in relaxed:
            relaxed["allOf"] = [*as_array(relaxed.get("allOf")), {"anyOf": branches}]
        else:
            relaxed["anyOf"] = branches
    # The API rejects a schema whose objects are open.
    if schema.get("type") == "object" or "properties" in schema:
        relaxed.setdefault("additionalProperties", False)
    if notes:
        description = f"{relaxed.get('description') or ''} ({', '.join(notes)})"
        relaxed["description"] = description.lstrip()
    return relaxed


def _is_unenforceable(key: str, value: object) -> bool:
    if key == "minItems":
        return value not in (0, 1)
    return key in UNENFORCEABLE_KEYWORDS or (key == "format" and value not in ENFORCEABLE_FORMATS)
