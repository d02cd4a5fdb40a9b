"""Writes a prompt as the body of a Converse request.

Dialect notes: a union is an object with one field. All system texts are separate from the messages. Only the user sends
images and documents, as bytes; a document needs a unique name and a text beside it. Empty text is rejected. As long as
the history has calls, the request needs tools, even if the model may not call any. Each vendor's models have their own
fields for reasoning; for Claude the rules of Anthropic's own API apply.
"""

import re

from msgspec import Struct

from antiphon.adapters import media
from antiphon.adapters.anthropic import models
from antiphon.adapters.anthropic.encode import (
    BlockMessage,
    add_message,
    calls_without_thinking,
    relax_schema,
    strip_trailing_space,
    tool_call_instruction,
)
from antiphon.adapters.base import Prompt
from antiphon.adapters.bedrock.wire_types import SealedThinking
from antiphon.adapters.conversation import (
    EMPTY_SCHEMA,
    ConversationTurn,
    encode_pieces,
    history_tool_names,
    make_legal_id,
    make_legal_name,
    split_turns,
    system_text,
)
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, EFFORTS_WITHOUT_MINIMAL, nearest_effort, service_tier_name
from antiphon.adapters.json_access import decode_as, drop_empty, parse_arguments, to_json_text
from antiphon.protocol import items
from antiphon.protocol.request import JsonSchemaFormat, ReasoningConfig
from antiphon.protocol.struct import JsonObject, as_object
from antiphon.protocol.tools import ExtensionTool, ExtensionToolChoice, FunctionToolChoice, Tool, ToolChoice

SLUG = "bedrock:"
SERVICE_TIERS = {"priority": "priority", "flex": "flex"}
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
FORMAT_NAMES = frozenset({*DOCUMENT_FORMATS.values(), "txt"})
TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
CLAUDE_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ILLEGAL_NAME_CHARACTERS = re.compile(r"[^a-zA-Z0-9\-()\[\]]+")
MAX_DOCUMENT_NAME = 180
CACHE_POINT: JsonObject = {"cachePoint": {"type": "default"}}
OPENING_MESSAGE = "Continue."
NO_OUTPUT = "(no output)"


def encode_body(prompt: Prompt) -> JsonObject:
    """Write a prompt as a request body; raises RequestError for what cannot be sent."""
    request, claude = prompt.request, find_claude(prompt.model)
    encoder = ConverseEncoder(prompt, claude)
    instruction = tool_call_instruction(prompt, claude) if claude else None
    if instruction:
        encoder.system.append({"text": instruction})
    # Other models reject cache points.
    if request.prompt_cache_key is not None and not claude:
        message = "Bedrock manages the prompt cache of this model; no key was sent."
        prompt.warn("unsupported_parameter", message, "prompt_cache_key")
    messages = encoder.messages
    if claude:
        thinking = _encode_claude_thinking(prompt, claude, messages)
        sampling = models.encode_sampling(prompt, claude, thinks=not thinking.allows_sampling)
    else:
        thinking = _encode_other_thinking(prompt)
        sampling = _encode_other_sampling(prompt, thinking)
    caches = claude is not None and request.prompt_cache_key is not None
    if caches:
        encoder.add_cache_points()
    choice = "auto" if instruction else request.tool_choice
    body: JsonObject = {
        "messages": messages,
        "system": encoder.system,
        "inferenceConfig": drop_empty(
            {
                "maxTokens": thinking.max_tokens or request.max_output_tokens,
                "temperature": sampling.get("temperature"),
                "topP": sampling.get("top_p"),
                "stopSequences": request.stop,
            }
        ),
        "toolConfig": _encode_tool_config(prompt, choice, caches=caches),
        "outputConfig": drop_empty({"textFormat": _encode_text_format(prompt), "effort": thinking.effort}),
        "additionalModelRequestFields": thinking.fields,
        "serviceTier": drop_empty({"type": service_tier_name(prompt, SERVICE_TIERS)}),
    }
    return drop_empty(body)


class ConverseEncoder:
    """The system texts and the messages of one prompt."""

    def __init__(self, prompt: Prompt, claude: models.Claude | None) -> None:
        self._prompt = prompt
        self._legal_id = CLAUDE_TOOL_USE_ID if claude else TOOL_USE_ID
        # Other models reject `status`.
        self._supports_status = claude is not None or "amazon.nova" in prompt.model
        self._document_names: set[str] = set()
        self.system: list[JsonObject] = _text_blocks(prompt.request.instructions or "")
        self.messages: list[BlockMessage] = []
        for turn in split_turns(prompt.items):
            self._add_turn(turn)
        # Converse rejects a conversation that does not start with the user.
        if not self.messages or self.messages[0]["role"] != "user":
            self.messages.insert(0, {"role": "user", "content": _text_blocks(OPENING_MESSAGE)})
            message = f"Bedrock requires a user message first; '{OPENING_MESSAGE}' was added."
            prompt.warn("added_message", message, "input")
        for message in self.messages:
            _add_document_names(message["content"])
        strip_trailing_space(self.messages[-1])

    def add_cache_points(self) -> None:
        """Let Bedrock cache the system texts and the messages up to the last one."""
        if self.system:
            self.system.append(CACHE_POINT)
        last = self.messages[-1]["content"]
        # A cache point may not follow a document.
        if self.messages[-1]["role"] == "user" and "document" not in last[-1]:
            last.append(CACHE_POINT)

    def _add_turn(self, turn: ConversationTurn) -> None:
        if turn.role == "system":
            for item in turn.items:
                if isinstance(item, items.Message):
                    self.system += encode_pieces(self._prompt, item, lambda part: _text_blocks(system_text(part)))
            return
        blocks = [block for item in turn.items for block in self._encode_item(item)]
        role = "assistant" if turn.role == "assistant" else "user"
        # Converse rejects a turn that ends with reasoning.
        while role == "assistant" and blocks and "reasoningContent" in blocks[-1]:
            blocks.pop()
        add_message(self.messages, role, blocks)

    def _encode_item(self, item: items.Item) -> list[JsonObject]:
        match item:
            case items.Message():
                return encode_pieces(self._prompt, item, self._encode_content)
            case items.FunctionCall():
                id, name = make_legal_id(item.call_id, self._legal_id), make_legal_name(item.name)
                return [{"toolUse": {"toolUseId": id, "name": name, "input": parse_arguments(item.arguments)}}]
            case items.FunctionCallOutput():
                return [self._encode_tool_result(item)]
            case items.Reasoning(encrypted_content=str() as sealed):
                return _encode_reasoning(sealed)
            case _:
                return []

    def _encode_tool_result(self, item: items.FunctionCallOutput) -> JsonObject:
        # Converse rejects a tool result without content.
        content = encode_pieces(self._prompt, item, self._encode_content) or _text_blocks(NO_OUTPUT)
        result: JsonObject = {"toolUseId": make_legal_id(item.call_id, self._legal_id), "content": content}
        if item.status == "incomplete" and self._supports_status:
            result["status"] = "error"
        return {"toolResult": result}

    def _encode_content(self, part: items.Content) -> list[JsonObject]:
        """Write a piece of content; raises ValueError with the reason if that is impossible."""
        if not isinstance(part, items.InputImage | items.InputFile):
            return _text_blocks(items.content_text(part))
        file, is_image = media.read_media(part)
        source = {"bytes": file.data}
        if is_image:
            return [{"image": {"format": file.media_type.removeprefix("image/"), "source": source}}]
        stem, _, suffix = file.name.rpartition(".")
        format = DOCUMENT_FORMATS.get(file.media_type)
        if not format and suffix.lower() in FORMAT_NAMES:
            format = suffix.lower()
        if not format and not file.is_text:
            type = file.media_type or "of unknown type"
            raise ValueError(f"a file may be a PDF, text, or a Word or Excel file, not {type}")
        name = self._unique_document_name(stem or file.name)
        return [{"document": {"format": format or "txt", "name": name, "source": source}}]

    def _unique_document_name(self, name: str) -> str:
        """Return a name that Bedrock accepts and that no other document has."""
        legal = ILLEGAL_NAME_CHARACTERS.sub(" ", name).strip()[:MAX_DOCUMENT_NAME].strip() or "document"
        unique, number = legal, 1
        while unique.lower() in self._document_names:
            number += 1
            unique = f"{legal} {number}"
        self._document_names.add(unique.lower())
        return unique


def _text_blocks(text: str) -> list[JsonObject]:
    return [{"text": text}] if text.strip() else []


def _encode_reasoning(sealed: str) -> list[JsonObject]:
    """Write reasoning unchanged; another provider's is left out."""
    state = decode_as(SealedThinking, sealed) or SealedThinking()
    if state.redacted:
        return [{"reasoningContent": {"redactedContent": state.redacted}}]
    text = {"text": state.text, "signature": state.signature}
    return [{"reasoningContent": {"reasoningText": text}}] if state.signature else []


def _add_document_names(blocks: list[JsonObject]) -> None:
    """Add the names of documents as text if there is no other; Converse demands a text."""
    names = [as_object(block["document"])["name"] for block in blocks if "document" in block]
    if names and not any("text" in block for block in blocks):
        blocks.append({"text": ", ".join(map(str, names))})


def _encode_tool_config(prompt: Prompt, choice: ToolChoice, *, caches: bool) -> JsonObject | None:
    has_calls = any(isinstance(item, items.FunctionCall) for item in prompt.items)
    # Converse has no choice "none": the tools are left out where the history allows it.
    if choice == "none" and not has_calls:
        return None
    tools = [_encode_tool(prompt, tool, index) for index, tool in enumerate(prompt.request.tools)]
    # Converse rejects calls in the history of a request without tools.
    empty: JsonObject = {"inputSchema": {"json": EMPTY_SCHEMA}}
    tools += [{"toolSpec": {"name": name} | empty} for name in history_tool_names(prompt)]
    if not tools:
        return None
    config: JsonObject = {"tools": [*tools, CACHE_POINT] if caches else tools}
    match choice:
        case "required":
            config["toolChoice"] = {"any": {}}
        case FunctionToolChoice(name=name):
            config["toolChoice"] = {"tool": {"name": name}}
        case ExtensionToolChoice(type=type):
            config["toolChoice"] = {"tool": {"name": type.removeprefix(SLUG)}}
        case _:
            pass
    return config


def _encode_tool(prompt: Prompt, tool: Tool, index: int) -> JsonObject:
    if isinstance(tool, ExtensionTool):
        return {"systemTool": {"name": tool.type.removeprefix(SLUG)}}
    schema = EMPTY_SCHEMA | (tool.parameters or {})
    spec = drop_empty({"name": tool.name, "description": tool.description})
    if tool.strict:
        spec["strict"] = True
        schema = relax_schema(prompt, schema, f"tools[{index}].parameters")
    return {"toolSpec": spec | {"inputSchema": {"json": schema}}}


def _encode_text_format(prompt: Prompt) -> JsonObject | None:
    """Write the schema of the answer, if there is one, as JSON in a string."""
    format = prompt.request.text.format
    if not (isinstance(format, JsonSchemaFormat) and format.schema):
        return None
    schema = to_json_text(relax_schema(prompt, format.schema, "text.format.schema"))
    fields = {"schema": schema, "name": format.name, "description": format.description}
    return {"type": "json_schema", "structure": {"jsonSchema": drop_empty(fields)}}


class ThinkingOptions(Struct):
    """The reasoning options of one request."""

    fields: JsonObject = {}
    """For `additionalModelRequestFields`."""
    effort: str | None = None
    """For `outputConfig`."""
    allows_sampling: bool = True
    """Whether `temperature` and `top_p` may be sent too."""
    max_tokens: int | None = None


def find_claude(model: str) -> models.Claude | None:
    """Return what a Claude model supports, or None for any other model."""
    return models.lookup_claude(model) if "anthropic." in model else None


def _encode_other_thinking(prompt: Prompt) -> ThinkingOptions:
    """Write the reasoning options in the fields of a vendor other than Anthropic."""
    model, reasoning = prompt.model, prompt.request.reasoning or ReasoningConfig()
    effort = reasoning.effort
    if reasoning.summary:
        message = "This model has no reasoning summaries; it returns its reasoning itself, if any."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    if effort is None:
        return ThinkingOptions()
    if "openai.gpt-oss" in model or "moonshot" in model:
        level = nearest_effort(prompt, effort, EFFORTS_LOW_TO_HIGH)
        return ThinkingOptions({"reasoning_effort": level})
    if "openai." in model:
        level = nearest_effort(prompt, effort, EFFORTS_WITHOUT_MINIMAL)
        return ThinkingOptions({"reasoning": {"effort": level}})
    if effort == "none":
        return ThinkingOptions()
    if "amazon.nova" in model:
        return _encode_nova_thinking(prompt, effort)
    return ThinkingOptions(effort=nearest_effort(prompt, effort, EFFORTS_WITHOUT_MINIMAL))


def _encode_claude_thinking(prompt: Prompt, claude: models.Claude, messages: list[BlockMessage]) -> ThinkingOptions:
    without = calls_without_thinking(
        messages, is_result=lambda block: "toolResult" in block, is_thinking=lambda block: "reasoningContent" in block
    )
    plan = models.plan_thinking(prompt, claude, calls_without_thinking=without)
    # Converse's default limit is lower than what many models need for thinking.
    limited = plan.expected_tokens or prompt.capabilities.max_output_tokens
    max_tokens = models.choose_max_tokens(prompt, plan) if limited else None
    return ThinkingOptions(drop_empty({"thinking": plan.thinking}), plan.effort, not plan.thinks, max_tokens)


def _encode_nova_thinking(prompt: Prompt, effort: str) -> ThinkingOptions:
    if "nova-2" not in prompt.model:
        message = "This model does not support reasoning; 'effort' was not sent."
        prompt.warn("unsupported_parameter", message, "reasoning.effort")
        return ThinkingOptions()
    levels = dict(EFFORTS_LOW_TO_HIGH)
    # The highest level rejects a limit on output tokens.
    if prompt.request.max_output_tokens is not None:
        levels |= dict.fromkeys(("high", "xhigh", "max"), "medium")
    level = nearest_effort(prompt, effort, levels)
    config = {"type": "enabled", "maxReasoningEffort": level}
    return ThinkingOptions({"reasoningConfig": config}, allows_sampling=level != "high")


def _encode_other_sampling(prompt: Prompt, thinking: ThinkingOptions) -> dict[str, float]:
    """Return `temperature` and `top_p` for a model other than Claude."""
    options = {"temperature": prompt.request.temperature, "top_p": prompt.request.top_p}
    sampling = {name: value for name, value in options.items() if value is not None}
    if not thinking.allows_sampling:
        for name in sampling:
            message = f"'{name}' was not sent: it is not supported while the model thinks."
            prompt.warn("unsupported_parameter", message, name)
        return {}
    if sampling.get("temperature", 0) > 1:
        sampling["temperature"] = 1.0
        message = "Bedrock supports no temperature above 1; 1 was sent."
        prompt.warn("approximated_parameter", message, "temperature")
    return sampling
