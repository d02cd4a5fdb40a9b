"""A conversation as Claude reads it: a system text, and messages made of blocks.

Dialect notes: blocks of text that hold nothing are refused, and so is a turn that ends in thinking.
Thinking goes back as it came, in its place, out of the seal that the decoder wrote. The outputs of
calls stand first in the user's turn. System messages later on stay where they are for models that
take them after a user's turn; for others they are words of the user's turn, marked as the system's.
"""

import re
from collections.abc import Iterable, Sequence
from typing import cast

from antiphon.adapters import media
from antiphon.adapters._anthropic_wire import SLUG, read_seal
from antiphon.adapters._claude import Claude
from antiphon.adapters.base import Prompt
from antiphon.adapters.story import Speech, tell
from antiphon.core.content import Content, InputFile, InputImage, text_of
from antiphon.core.errors import RequestError
from antiphon.core.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.core.schema import is_object
from antiphon.wire import json

Block = dict[str, object]
Turn = tuple[str, list[Block]]
"""A role, and what it says."""

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF = "application/pdf"
TEXTS = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|x-yaml|javascript|toml|sql)$")
"""The media types that are text and may be read as such."""

THOUGHTS = ("thinking", "redacted_thinking")
LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")
MAX_NAME = 128
ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")


class Script:
    """One conversation, written down."""

    def __init__(self, prompt: Prompt, claude: Claude) -> None:
        self._prompt = prompt
        self._ids: dict[str, str] = {}
        self.system = prompt.request.instructions or ""
        speeches = list(tell(prompt.items))
        if len(speeches) > 1 and speeches[0].role == "system":
            self.system = "\n\n".join(filter(None, [self.system, self._words(speeches.pop(0))]))
        turns = [turn for speech in speeches for turn in self._turns(speech)]
        self.messages = _alternating([turn for turn in turns if turn[1]], directed=claude.directed)
        if not self.messages:
            raise prompt.refuse("There is nothing to answer; send a message.", "input")

    @property
    def bare(self) -> bool:
        """Whether calls are being answered whose turn did not begin with a thought."""
        begun: list[Block] | None = None
        for message in reversed(self.messages):
            blocks = cast("list[Block]", message["content"])
            if message["role"] == "assistant":
                begun = blocks
            elif not all(block["type"] == "tool_result" for block in blocks):
                break
        if begun is None or self.messages[-1]["role"] == "assistant":
            return False
        return begun[0]["type"] not in THOUGHTS

    # --- turns ---

    def _turns(self, speech: Speech) -> Iterable[Turn]:
        match speech.role:
            case "system":
                yield "system", _text(self._words(speech))
            case "tool":
                yield "user", [self._result(item) for item in speech.outputs]
            case "user":
                yield "user", [b for item in speech.items for b in self._blocks(item)]
            case "assistant":
                blocks = [b for item in speech.items for b in self._blocks(item)]
                while blocks and blocks[-1]["type"] in THOUGHTS:
                    blocks.pop()
                yield "assistant", blocks

    def _words(self, speech: Speech) -> str:
        """Return what the system says, which can only be text."""
        said: list[str] = []
        for item in speech.items:
            for index, part in enumerate(item.content if isinstance(item, Message) else ()):
                if isinstance(part, InputImage | InputFile):
                    place = f"{self._prompt.place(item)}.content[{index}]"
                    message = "Anthropic takes only text from the system. Send it as the user."
                    raise self._prompt.refuse(message, place)
            said.append(item.text if isinstance(item, Message) else "")
        return "\n\n".join(filter(None, said))

    def _blocks(self, item: Item) -> list[Block]:
        match item:
            case Message():
                return self._content(item, "content", item.content)
            case FunctionCall():
                return [self._call(item)]
            case Reasoning(encrypted_content=str() as seal):
                return _thought(seal)
            case ExtensionItem() if item.type.startswith(SLUG):
                block, type = item.get("block"), item.type.removeprefix(SLUG)
                return [block] if is_object(block) and block.get("type") == type else []
            case _:
                return []

    # --- calls ---

    def _call(self, call: FunctionCall) -> Block:
        name = ILLEGAL.sub("_", call.name)[:MAX_NAME]
        id = self._id(call.call_id)
        return {"type": "tool_use", "id": id, "name": name, "input": _input(call.arguments)}

    def _result(self, item: FunctionCallOutput) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": self._id(item.call_id)}
        if isinstance(item.output, str):
            content: object = item.output
        else:
            content = self._content(item, "output", item.output)
        if content:
            block["content"] = content
        if item.status == "incomplete":
            block["is_error"] = True
        return block

    def _id(self, id: str) -> str:
        """Return an id that Anthropic accepts, always the same for the same call."""
        if id not in self._ids:
            legal = id if LEGAL_ID.fullmatch(id) else ILLEGAL.sub("_", id)
            while legal in self._ids.values():
                legal += "_"
            self._ids[id] = legal
        return self._ids[id]

    # --- content ---

    def _content(self, item: Item, name: str, content: Sequence[Content]) -> list[Block]:
        blocks: list[Block] = []
        for index, part in enumerate(content):
            if isinstance(part, InputImage | InputFile):
                try:
                    blocks.append(_media(part))
                except ValueError as error:
                    raise self._unread(item, f"{name}[{index}]", error) from None
            else:
                blocks += _text(text_of(part))
        return blocks

    def _unread(self, item: Item, place: str, error: ValueError) -> RequestError:
        message = f"Anthropic cannot read this: {error}."
        return self._prompt.refuse(message, f"{self._prompt.place(item)}.{place}")


def _alternating(turns: list[Turn], *, directed: bool) -> list[Block]:
    """Join what the same role says in a row, and find a place for what the system says."""
    messages: list[Block] = []
    for index, (role, blocks) in enumerate(turns):
        said = messages[-1]["role"] if messages else None
        if role == "system":
            follows = turns[index + 1][0] if index + 1 < len(turns) else "assistant"
            if directed and said == "user" and follows == "assistant":
                messages.append({"role": "system", "content": blocks})
                continue
            role, blocks = "user", blocks if len(turns) == 1 else _marked(blocks)
        if role == said:
            cast("list[Block]", messages[-1]["content"]).extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    return _ended(messages)


def _ended(messages: list[Block]) -> list[Block]:
    """Let no white space stand at the end of an answer that has been begun; it is refused."""
    if messages and messages[-1]["role"] == "assistant":
        last = cast("list[Block]", messages[-1]["content"])[-1]
        if last["type"] == "text":
            last["text"] = str(last["text"]).rstrip()
    return messages


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _marked(blocks: list[Block]) -> list[Block]:
    return [block | {"text": f"<system>\n{block['text']}\n</system>"} for block in blocks]


def _thought(sealed: str) -> list[Block]:
    """Write thinking as it came; what is no seal of ours is left out."""
    try:
        seal = read_seal(sealed.encode())
    except ValueError:
        return []
    if seal.redacted:
        return [{"type": "redacted_thinking", "data": seal.redacted}]
    if not seal.signature:
        return []
    return [{"type": "thinking", "thinking": seal.thinking, "signature": seal.signature}]


def _input(arguments: str) -> object:
    """Read the arguments of a call; what is no object is put into one."""
    try:
        value = json.decode(arguments.encode() if arguments.strip() else b"{}")
    except json.JSONError:
        value = arguments
    return value if is_object(value) else {"arguments": value}


# --- images and files -----------------------------------------------------------------------------


def _media(part: InputImage | InputFile) -> Block:
    """Write an image or a file; raises ValueError with what is wrong about it."""
    if isinstance(part, InputImage):
        return _image(media.of_image(part))
    found = media.of_file(part)
    return _image(found) if found.kind.startswith("image/") else _document(found)


def _image(found: media.Media) -> Block:
    if found.data and found.kind not in IMAGES:
        raise ValueError(f"an image may be a JPEG, PNG, GIF or WebP, not {found.kind}")
    return {"type": "image", "source": _source(found)}


def _document(found: media.Media) -> Block:
    block: Block = {"type": "document", "source": _source(found)}
    if found.data and found.kind != PDF:
        if not TEXTS.match(found.kind):
            raise ValueError(f"a file may be a PDF or text, not {found.kind or 'of unknown type'}")
        text = found.raw.decode()
        block["source"] = {"type": "text", "media_type": "text/plain", "data": text}
    return block | {"title": found.name} if found.name else block


def _source(found: media.Media) -> Block:
    if found.data:
        return {"type": "base64", "media_type": found.kind, "data": found.data}
    if found.url:
        return {"type": "url", "url": found.url}
    return {"type": "file", "file_id": found.id}
