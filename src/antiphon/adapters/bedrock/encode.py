"""A conversation and its tools as Converse wants them.

Dialect notes: a union is an object with one field. What the system says stands apart, wherever it
was said. Images and documents come as bytes and from the user alone; a document needs a name that
no other has, and words beside it. Blank text is refused. While the history has calls, tools must be
shown, also to a model that may not call any.
"""

import re
from typing import cast

from antiphon.adapters import media
from antiphon.adapters.anthropic.encode import relax_schema
from antiphon.adapters.base import Prompt
from antiphon.adapters.bedrock.models import find_claude
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
from antiphon.adapters.json_access import (
    JsonObject,
    decode_as,
    drop_empty,
    parse_arguments,
    to_json_text,
)
from antiphon.adapters.media import Media
from antiphon.protocol.content import (
    Content,
    InputFile,
    InputImage,
    content_text,
)
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.request import JsonSchemaFormat
from antiphon.protocol.tools import (
    ExtensionTool,
    ExtensionToolChoice,
    FunctionToolChoice,
    Tool,
)

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
SLUG = "bedrock:"
"""What stands before the names of the service's own tools."""

OPENING_MESSAGE = "Continue."
NO_OUTPUT = "(no output)"


class ConversationEncoder:
    """One conversation, written down."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._is_claude = find_claude(prompt.model) is not None
        self._document_names: set[str] = set()
        self.system: list[JsonObject] = _text_blocks(prompt.request.instructions or "")
        self.messages: list[JsonObject] = []
        for speech in split_turns(prompt.items):
            self._add_turn(speech)
        if not self.messages or self.messages[0]["role"] != "user":
            self._insert_opening_message()
        for message in self.messages:
            _add_document_names(cast("list[JsonObject]", message["content"]))
        _strip_trailing_space(self.messages[-1])

    def _add_turn(self, speech: ConversationTurn) -> None:
        if speech.role == "system":
            self.system += [block for item in speech.items for block in self._encode_system(item)]
            return
        blocks = [block for item in speech.items for block in self._encode_item(item)]
        role = "assistant" if speech.role == "assistant" else "user"
        while role == "assistant" and blocks and "reasoningContent" in blocks[-1]:
            blocks.pop()  # a thought that led to nothing is refused
        if self.messages and self.messages[-1]["role"] == role:
            cast("list[JsonObject]", self.messages[-1]["content"]).extend(blocks)
        elif blocks:
            self.messages.append({"role": role, "content": blocks})

    def _insert_opening_message(self) -> None:
        """Let the user begin, as Converse demands."""
        self.messages.insert(0, {"role": "user", "content": _text_blocks(OPENING_MESSAGE)})
        message = (
            f"Bedrock wants the user to begin; '{OPENING_MESSAGE}' was put before the conversation."
        )
        self._prompt.warn("added_message", message, "input")

    def add_cache_points(self) -> None:
        """Mark how far the conversation may be remembered."""
        if self.system:
            self.system.append(CACHE_POINT)
        last = cast("list[JsonObject]", self.messages[-1]["content"])
        if self.messages[-1]["role"] == "user" and "document" not in last[-1]:
            last.append(CACHE_POINT)

    # --- items ---

    def _encode_system(self, item: Item) -> list[JsonObject]:
        """Write what the system says."""
        said = isinstance(item, Message)
        return (
            encode_pieces(self._prompt, item, lambda part: _text_blocks(system_text(part)))
            if said
            else []
        )

    def _encode_item(self, item: Item) -> list[JsonObject]:
        match item:
            case Message():
                return encode_pieces(self._prompt, item, self._encode_content)
            case FunctionCall():
                return [self._encode_call(item)]
            case FunctionCallOutput():
                return [self._encode_tool_result(item)]
            case Reasoning(encrypted_content=str() as sealed):
                return _encode_thinking(sealed)
            case _:
                return []

    def _encode_call(self, call: FunctionCall) -> JsonObject:
        name, input = make_legal_name(call.name), parse_arguments(call.arguments)
        return {
            "toolUse": {"toolUseId": self._tool_use_id(call.call_id), "name": name, "input": input}
        }

    def _encode_tool_result(self, item: FunctionCallOutput) -> JsonObject:
        told = encode_pieces(self._prompt, item, self._encode_content) or _text_blocks(NO_OUTPUT)
        result: JsonObject = {"toolUseId": self._tool_use_id(item.call_id), "content": told}
        if item.status == "incomplete" and (self._is_claude or "amazon.nova" in self._prompt.model):
            result["status"] = "error"
        return {"toolResult": result}

    def _tool_use_id(self, id: str) -> str:
        return make_legal_id(id, CLAUDE_TOOL_USE_ID if self._is_claude else TOOL_USE_ID)

    # --- content ---

    def _encode_content(self, part: Content) -> list[JsonObject]:
        """Write a piece of content; raises ValueError with what is wrong about it."""
        if not isinstance(part, InputImage | InputFile):
            return _text_blocks(content_text(part))
        found = media.read_media(part)
        if isinstance(part, InputFile) and not found.media_type.startswith("image/"):
            return [self._encode_document(found)]
        media.check_image(found)
        format = found.media_type.removeprefix("image/")
        return [{"image": {"format": format, "source": {"bytes": found.data}}}]

    def _encode_document(self, file: Media) -> JsonObject:
        stem, _, suffix = file.name.rpartition(".")
        suffix = suffix.lower()
        format = DOCUMENT_FORMATS.get(file.media_type) or (suffix if suffix in FORMAT_NAMES else "")
        if not format and not file.is_text:
            kind = file.media_type or "of unknown type"
            raise ValueError(f"a file may be a PDF, text, or a Word or Excel file, not {kind}")
        source = {"bytes": file.data}
        title = self._unique_document_name(stem or file.name)
        return {"document": {"format": format or "txt", "name": title, "source": source}}

    def _unique_document_name(self, name: str) -> str:
        """Return a name for a document that Bedrock accepts and no other document has."""
        plain = (
            ILLEGAL_NAME_CHARACTERS.sub(" ", name).strip()[:MAX_DOCUMENT_NAME].strip() or "document"
        )
        title, number = plain, 1
        while title.lower() in self._document_names:
            number += 1
            title = f"{plain} {number}"
        self._document_names.add(title.lower())
        return title


def _text_blocks(text: str) -> list[JsonObject]:
    return [{"text": text}] if text.strip() else []


def _encode_thinking(sealed: str) -> list[JsonObject]:
    """Write a thought as it came; what is no seal of ours is left out."""
    thought = decode_as(SealedThinking, sealed) or SealedThinking()
    if thought.redacted:
        return [{"reasoningContent": {"redactedContent": thought.redacted}}]
    text = {"text": thought.text, "signature": thought.signature}
    return [{"reasoningContent": {"reasoningText": text}}] if thought.signature else []


def _strip_trailing_space(message: JsonObject) -> None:
    """Let no white space stand at the end of an answer that has been begun; it is refused."""
    last = cast("list[JsonObject]", message["content"])[-1]
    if message["role"] == "assistant" and "text" in last:
        last["text"] = str(last["text"]).rstrip()


def _add_document_names(blocks: list[JsonObject]) -> None:
    """Put the names of documents beside them where nothing else is said; words there must be."""
    names = [cast("JsonObject", b["document"])["name"] for b in blocks if "document" in b]
    if names and not any("text" in block for block in blocks):
        blocks.append({"text": ", ".join(map(str, names))})


# --- tools ----------------------------------------------------------------------------------------


def encode_tool_config(prompt: Prompt, *, cached: bool, enforce_choice: bool) -> JsonObject | None:
    """Write the tools, and which of them must be called if `must` is said here, not in words."""
    request = prompt.request
    called = any(isinstance(item, FunctionCall) for item in prompt.items)
    if request.tool_choice == "none" and not called:
        return None
    tools = [_encode_tool(prompt, tool, index) for index, tool in enumerate(request.tools)]
    tools += [
        {"toolSpec": {"name": name, "inputSchema": {"json": EMPTY_SCHEMA}}}
        for name in history_tool_names(prompt)
    ]
    if not tools:
        return None
    config: JsonObject = {"tools": [*tools, CACHE_POINT] if cached else tools}
    match request.tool_choice if enforce_choice else "auto":
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


def encode_text_format(prompt: Prompt) -> JsonObject | None:
    """Write the schema that the answer must satisfy, if there is one; it is JSON in a string."""
    format = prompt.request.text.format
    if not (isinstance(format, JsonSchemaFormat) and format.schema):
        return None
    schema = relax_schema(prompt, format.schema, "text.format.schema")
    told = {"schema": to_json_text(schema), "name": format.name, "description": format.description}
    return {"type": "json_schema", "structure": {"jsonSchema": drop_empty(told)}}
