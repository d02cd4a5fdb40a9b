"""A conversation and its tools as Converse wants them.

Dialect notes: a union is an object with one field. What the system says stands apart, wherever it
was said. Images and documents come as bytes and from the user alone; a document needs a name that
no other has, and words beside it. Blank text is refused. While the history has calls, tools must be
shown, also to a model that may not call any.
"""

import re
from typing import cast

from antiphon.adapters import media
from antiphon.adapters.anthropic.tools import enforceable
from antiphon.adapters.base import Prompt
from antiphon.adapters.bedrock.models import claude
from antiphon.adapters.bedrock.shapes import Sealed
from antiphon.adapters.fields import Fields, arguments_in, filled, json_text, read_as
from antiphon.adapters.media import Media
from antiphon.adapters.recall import EMPTY, recalled
from antiphon.adapters.story import Speech, directed, legal_id, legal_name, pieces, tell
from antiphon.core.content import Content, InputFile, InputImage, text_of
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.core.request import JsonSchemaFormat
from antiphon.core.tools import ExtensionTool, ExtensionToolChoice, FunctionToolChoice, Tool

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
CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
CLAUDE_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ILLEGAL_TITLE = re.compile(r"[^a-zA-Z0-9\-()\[\]]+")
MAX_TITLE = 180
CACHE_POINT: Fields = {"cachePoint": {"type": "default"}}
SLUG = "bedrock:"
"""What stands before the names of the service's own tools."""

OPENING = "Continue."
NO_OUTPUT = "(no output)"


class Script:
    """One conversation, written down."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._claude = claude(prompt.model) is not None
        self._titles: set[str] = set()
        self.system: list[Fields] = _text(prompt.request.instructions or "")
        self.messages: list[Fields] = []
        for speech in tell(prompt.items):
            self._tell(speech)
        if not self.messages or self.messages[0]["role"] != "user":
            self._open()
        for message in self.messages:
            _name_documents(cast("list[Fields]", message["content"]))
        _trim(self.messages[-1])

    def _tell(self, speech: Speech) -> None:
        if speech.role == "system":
            self.system += [block for item in speech.items for block in self._directions(item)]
            return
        blocks = [block for item in speech.items for block in self._blocks(item)]
        role = "assistant" if speech.role == "assistant" else "user"
        while role == "assistant" and blocks and "reasoningContent" in blocks[-1]:
            blocks.pop()  # a thought that led to nothing is refused
        if self.messages and self.messages[-1]["role"] == role:
            cast("list[Fields]", self.messages[-1]["content"]).extend(blocks)
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
        last = cast("list[Fields]", self.messages[-1]["content"])
        if self.messages[-1]["role"] == "user" and "document" not in last[-1]:
            last.append(CACHE_POINT)

    # --- items ---

    def _directions(self, item: Item) -> list[Fields]:
        """Write what the system says."""
        said = isinstance(item, Message)
        return pieces(self._prompt, item, lambda part: _text(directed(part))) if said else []

    def _blocks(self, item: Item) -> list[Fields]:
        match item:
            case Message():
                return pieces(self._prompt, item, self._piece)
            case FunctionCall():
                return [self._call(item)]
            case FunctionCallOutput():
                return [self._result(item)]
            case Reasoning(encrypted_content=str() as sealed):
                return _thought(sealed)
            case _:
                return []

    def _call(self, call: FunctionCall) -> Fields:
        name, input = legal_name(call.name), arguments_in(call.arguments)
        return {"toolUse": {"toolUseId": self._id(call.call_id), "name": name, "input": input}}

    def _result(self, item: FunctionCallOutput) -> Fields:
        told = pieces(self._prompt, item, self._piece) or _text(NO_OUTPUT)
        result: Fields = {"toolUseId": self._id(item.call_id), "content": told}
        if item.status == "incomplete" and (self._claude or "amazon.nova" in self._prompt.model):
            result["status"] = "error"
        return {"toolResult": result}

    def _id(self, id: str) -> str:
        return legal_id(id, CLAUDE_CALL_ID if self._claude else CALL_ID)

    # --- content ---

    def _piece(self, part: Content) -> list[Fields]:
        """Write a piece of content; raises ValueError with what is wrong about it."""
        if not isinstance(part, InputImage | InputFile):
            return _text(text_of(part))
        found = media.of(part)
        if isinstance(part, InputFile) and not found.kind.startswith("image/"):
            return [self._document(found)]
        media.check_image(found)
        format = found.kind.removeprefix("image/")
        return [{"image": {"format": format, "source": {"bytes": found.data}}}]

    def _document(self, found: Media) -> Fields:
        stem, _, suffix = found.name.rpartition(".")
        suffix = suffix.lower()
        format = DOCUMENTS.get(found.kind) or (suffix if suffix in FORMATS else "")
        if not format and not found.is_text:
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


def _text(text: str) -> list[Fields]:
    return [{"text": text}] if text.strip() else []


def _thought(sealed: str) -> list[Fields]:
    """Write a thought as it came; what is no seal of ours is left out."""
    thought = read_as(Sealed, sealed) or Sealed()
    if thought.redacted:
        return [{"reasoningContent": {"redactedContent": thought.redacted}}]
    text = {"text": thought.text, "signature": thought.signature}
    return [{"reasoningContent": {"reasoningText": text}}] if thought.signature else []


def _trim(message: Fields) -> None:
    """Let no white space stand at the end of an answer that has been begun; it is refused."""
    last = cast("list[Fields]", message["content"])[-1]
    if message["role"] == "assistant" and "text" in last:
        last["text"] = str(last["text"]).rstrip()


def _name_documents(blocks: list[Fields]) -> None:
    """Put the names of documents beside them where nothing else is said; words there must be."""
    names = [cast("Fields", b["document"])["name"] for b in blocks if "document" in b]
    if names and not any("text" in block for block in blocks):
        blocks.append({"text": ", ".join(map(str, names))})


# --- tools ----------------------------------------------------------------------------------------


def tool_config(prompt: Prompt, *, cached: bool, must: bool) -> Fields | None:
    """Write the tools, and which of them must be called if `must` is said here, not in words."""
    request = prompt.request
    called = any(isinstance(item, FunctionCall) for item in prompt.items)
    if request.tool_choice == "none" and not called:
        return None
    tools = [_tool(prompt, tool, index) for index, tool in enumerate(request.tools)]
    tools += [
        {"toolSpec": {"name": name, "inputSchema": {"json": EMPTY}}} for name in recalled(prompt)
    ]
    if not tools:
        return None
    config: Fields = {"tools": [*tools, CACHE_POINT] if cached else tools}
    match request.tool_choice if must else "auto":
        case "required":
            config["toolChoice"] = {"any": {}}
        case FunctionToolChoice(name=name):
            config["toolChoice"] = {"tool": {"name": name}}
        case ExtensionToolChoice(type=type):
            config["toolChoice"] = {"tool": {"name": type.removeprefix(SLUG)}}
        case _:
            pass
    return config


def _tool(prompt: Prompt, tool: Tool, index: int) -> Fields:
    if isinstance(tool, ExtensionTool):
        return {"systemTool": {"name": tool.type.removeprefix(SLUG)}}
    schema = EMPTY | (tool.parameters or {})
    spec = filled({"name": tool.name, "description": tool.description})
    if tool.strict:
        spec["strict"] = True
        schema = enforceable(prompt, schema, f"tools[{index}].parameters")
    return {"toolSpec": spec | {"inputSchema": {"json": schema}}}


def text_format(prompt: Prompt) -> Fields | None:
    """Write the schema that the answer must satisfy, if there is one; it is JSON in a string."""
    format = prompt.request.text.format
    if not (isinstance(format, JsonSchemaFormat) and format.schema):
        return None
    schema = enforceable(prompt, format.schema, "text.format.schema")
    told = {"schema": json_text(schema), "name": format.name, "description": format.description}
    return {"type": "json_schema", "structure": {"jsonSchema": filled(told)}}
