"""A conversation and its tools as Converse wants them.

Dialect notes: a union is an object with one field. What the system says stands apart, wherever it
was said. Images and documents come as bytes and from the user alone; a document needs a name that
no other has, and words beside it. Blank text is refused. While the history has calls, tools must be
shown, also to a model that may not call any.
"""

import hashlib
import re
from contextlib import suppress
from typing import cast

import msgspec

from antiphon.adapters import media
from antiphon.adapters._anthropic_tools import enforceable
from antiphon.adapters._bedrock_models import claude, takes_strict
from antiphon.adapters._bedrock_shapes import Sealed
from antiphon.adapters.base import Prompt
from antiphon.adapters.media import Media
from antiphon.adapters.story import Speech, tell
from antiphon.core.content import Content, InputFile, InputImage, text_of
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.core.request import JsonSchemaFormat
from antiphon.core.tools import ExtensionTool, ExtensionToolChoice, FunctionToolChoice, Tool
from antiphon.wire import json

Block = dict[str, object]

IMAGES = frozenset({"png", "jpeg", "gif", "webp"})
DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
FORMATS = frozenset({*DOCUMENTS.values(), "txt"})
TEXTS = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|x-yaml|javascript|toml|sql)$")
"""Media types that are text, whatever else they are."""

CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
CLAUDE_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ILLEGAL_NAME = re.compile(r"[^a-zA-Z0-9_-]")
ILLEGAL_TITLE = re.compile(r"[^a-zA-Z0-9\-()\[\]]+")
MAX_NAME, MAX_TITLE = 64, 180
CACHE_POINT: Block = {"cachePoint": {"type": "default"}}
SLUG = "bedrock:"
"""What stands before the names of the service's own tools."""

OPENING = "Continue."
NO_OUTPUT = "(no output)"
ANYTHING: Block = {"type": "object", "properties": {}}


class Script:
    """One conversation, written down."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._claude = claude(prompt.model) is not None
        self._titles: set[str] = set()
        self.system: list[Block] = _text(prompt.request.instructions or "")
        self.messages: list[Block] = []
        for speech in tell(prompt.items):
            self._tell(speech)
        if not self.messages or self.messages[0]["role"] != "user":
            self._open()
        for message in self.messages:
            _name_documents(cast("list[Block]", message["content"]))
        _trim(self.messages[-1])

    def _tell(self, speech: Speech) -> None:
        blocks = [block for item in speech.items for block in self._blocks(item)]
        if speech.role == "system":
            if other := next((block for block in blocks if "text" not in block), None):
                message = f"Bedrock takes no {next(iter(other))} from the system. Send it as user."
                raise self._prompt.refuse(message, self._prompt.place(speech.items[0]))
            self.system += blocks
            return
        role = "assistant" if speech.role == "assistant" else "user"
        while role == "assistant" and blocks and "reasoningContent" in blocks[-1]:
            blocks.pop()  # a thought that led to nothing is refused
        if self.messages and self.messages[-1]["role"] == role:
            cast("list[Block]", self.messages[-1]["content"]).extend(blocks)
        elif blocks:
            self.messages.append({"role": role, "content": blocks})

    def _open(self) -> None:
        """Let the user begin, as Converse demands."""
        self.messages.insert(0, {"role": "user", "content": _text(OPENING)})
        message = f"Bedrock wants the user to begin; '{OPENING}' was put before the conversation."
        self._prompt.warn("added_message", message, "input")

    def cache(self) -> None:
        """Mark how far the conversation may be remembered."""
        if self.system:
            self.system.append(CACHE_POINT)
        last = cast("list[Block]", self.messages[-1]["content"])
        if self.messages[-1]["role"] == "user" and "document" not in last[-1]:
            last.append(CACHE_POINT)

    # --- items ---

    def _blocks(self, item: Item) -> list[Block]:
        match item:
            case Message():
                return self._content(item, "content", item.content)
            case FunctionCall():
                return [self._call(item)]
            case FunctionCallOutput():
                return [self._result(item)]
            case Reasoning(encrypted_content=str() as sealed):
                return _thought(sealed)
            case _:
                return []

    def _call(self, call: FunctionCall) -> Block:
        name = ILLEGAL_NAME.sub("_", call.name)[:MAX_NAME]
        use = {"toolUseId": self._id(call.call_id), "name": name, "input": _input(call.arguments)}
        return {"toolUse": use}

    def _result(self, item: FunctionCallOutput) -> Block:
        output = item.output
        told = _text(output) if isinstance(output, str) else self._content(item, "output", output)
        result: Block = {
            "toolUseId": self._id(item.call_id),
            "content": told or _text(NO_OUTPUT),
        }
        if item.status == "incomplete" and (self._claude or "amazon.nova" in self._prompt.model):
            result["status"] = "error"
        return {"toolResult": result}

    def _id(self, id: str) -> str:
        """Return an id that the model accepts, always the same for the same call."""
        if (CLAUDE_CALL_ID if self._claude else CALL_ID).fullmatch(id):
            return id
        return f"call_{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:32]}"

    def _content(self, item: Item, name: str, content: list[Content]) -> list[Block]:
        blocks: list[Block] = []
        for index, part in enumerate(content):
            if not isinstance(part, InputImage | InputFile):
                blocks += _text(text_of(part))
                continue
            try:
                blocks.append(self._media(part))
            except ValueError as error:
                place = f"{self._prompt.place(item)}.{name}[{index}]"
                raise self._prompt.refuse(f"Bedrock cannot read this: {error}.", place) from None
        return blocks

    # --- images and files ---

    def _media(self, part: InputImage | InputFile) -> Block:
        found = media.of_image(part) if isinstance(part, InputImage) else media.of_file(part)
        if isinstance(part, InputFile) and not found.kind.startswith("image/"):
            return self._document(found)
        format = found.kind.removeprefix("image/").replace("jpg", "jpeg")
        if format not in IMAGES:
            raise ValueError(f"an image may be a PNG, JPEG, GIF or WebP, not {found.kind}")
        return {"image": {"format": format, "source": {"bytes": found.data}}}

    def _document(self, found: Media) -> Block:
        stem, _, suffix = found.name.rpartition(".")
        suffix = suffix.lower()
        format = DOCUMENTS.get(found.kind) or (suffix if suffix in FORMATS else "")
        if not format and not TEXTS.match(found.kind):
            kind = found.kind or "of unknown type"
            raise ValueError(f"a file may be a PDF, text, or a Word or Excel file, not {kind}")
        source = {"bytes": found.data}
        title = self._title(stem or found.name)
        return {"document": {"format": format or "txt", "name": title, "source": source}}

    def _title(self, name: str) -> str:
        """Return a name for a document that Bedrock accepts and no other document has."""
        plain = ILLEGAL_TITLE.sub(" ", name).strip()[:MAX_TITLE].strip() or "document"
        title, number = plain, 1
        while title.lower() in self._titles:
            number += 1
            title = f"{plain} {number}"
        self._titles.add(title.lower())
        return title


def _text(text: str) -> list[Block]:
    return [{"text": text}] if text.strip() else []


def _thought(sealed: str) -> list[Block]:
    """Write a thought as it came; what is no seal of ours is left out."""
    try:
        thought = msgspec.json.decode(sealed, type=Sealed)
    except msgspec.DecodeError:
        return []
    if thought.redacted:
        return [{"reasoningContent": {"redactedContent": thought.redacted}}]
    text = {"text": thought.text, "signature": thought.signature}
    return [{"reasoningContent": {"reasoningText": text}}] if thought.signature else []


def _input(arguments: str) -> object:
    """Read the arguments of a call; what is no object is put into one."""
    value: object = arguments
    with suppress(json.JSONError):
        value = json.decode(arguments.encode(errors="replace") if arguments.strip() else b"{}")
    return cast("object", value) if isinstance(value, dict) else {"arguments": value}


def _trim(message: Block) -> None:
    """Let no white space stand at the end of an answer that has been begun; it is refused."""
    last = cast("list[Block]", message["content"])[-1]
    if message["role"] == "assistant" and "text" in last:
        last["text"] = str(last["text"]).rstrip()


def _name_documents(blocks: list[Block]) -> None:
    """Put the names of documents beside them where nothing else is said; words there must be."""
    names = [cast("Block", b["document"])["name"] for b in blocks if "document" in b]
    if names and not any("text" in block for block in blocks):
        blocks.append({"text": ", ".join(map(str, names))})


# --- tools ----------------------------------------------------------------------------------------


def tool_config(prompt: Prompt, *, cached: bool) -> Block | None:
    """Write the tools, and which of them must be called."""
    request = prompt.request
    called = [item.name for item in prompt.items if isinstance(item, FunctionCall)]
    if request.tool_choice == "none" and not called:
        return None
    tools = [_tool(prompt, tool, index) for index, tool in enumerate(request.tools)]
    if not tools:  # what was called once must have been a tool
        names = dict.fromkeys(ILLEGAL_NAME.sub("_", name)[:MAX_NAME] for name in called)
        tools = [{"toolSpec": {"name": n, "inputSchema": {"json": ANYTHING}}} for n in names]
    if not tools:
        return None
    config: Block = {"tools": [*tools, CACHE_POINT] if cached else tools}
    match request.tool_choice:
        case "required":
            config["toolChoice"] = {"any": {}}
        case FunctionToolChoice(name=name):
            config["toolChoice"] = {"tool": {"name": name}}
        case ExtensionToolChoice(type=type):
            config["toolChoice"] = {"tool": {"name": type.removeprefix(SLUG)}}
        case _:
            pass
    return config


def _tool(prompt: Prompt, tool: Tool, index: int) -> Block:
    if isinstance(tool, ExtensionTool):
        return {"systemTool": {"name": tool.type.removeprefix(SLUG)}}
    schema = ANYTHING | (tool.parameters or {})
    spec: Block = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    if tool.strict and takes_strict(prompt.model):
        spec["strict"] = True
        schema = enforceable(prompt, schema, f"tools[{index}].parameters")
    elif tool.strict:
        message = f"'strict' was not sent: Bedrock does not take it for '{prompt.model}'."
        prompt.warn("unsupported_parameter", message, f"tools[{index}].strict")
    return {"toolSpec": spec | {"inputSchema": {"json": schema}}}


def text_format(prompt: Prompt) -> Block | None:
    """Write the schema that the answer must satisfy, if there is one; it is JSON in a string."""
    format = prompt.request.text.format
    if not isinstance(format, JsonSchemaFormat):
        return None
    schema = enforceable(prompt, format.schema or ANYTHING, "text.format.schema")
    told: Block = {"schema": json.encode(schema).decode(), "name": format.name}
    if format.description:
        told["description"] = format.description
    return {"type": "json_schema", "structure": {"jsonSchema": told}}
