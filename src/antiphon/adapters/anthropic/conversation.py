"""A conversation as Claude reads it: a system text, and messages made of blocks.

Dialect notes: blocks of text that hold nothing are refused, and so is a turn that ends in thinking.
Thinking goes back as it came, in its place, out of the seal that the decoder wrote. The outputs of
calls stand first in the user's turn. System messages later on stay where they are for models that
take them after a user's turn; for others they are words of the user's turn, marked as the system's.
"""

import re
from collections.abc import Iterable
from typing import cast

from antiphon.adapters import media
from antiphon.adapters.anthropic.models import Claude
from antiphon.adapters.anthropic.shapes import SLUG, Seal
from antiphon.adapters.anthropic.tools import MAX_NAME
from antiphon.adapters.base import Prompt
from antiphon.adapters.fields import Fields, arguments_in, read_as
from antiphon.adapters.story import SILENCE, Speech, directed, legal_id, legal_name, pieces, tell
from antiphon.core.content import Content, InputFile, InputImage, text_of
from antiphon.core.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.core.schema import is_object

Turn = tuple[str, list[Fields]]
"""A role, and what it says."""

PDF = "application/pdf"
THOUGHTS = ("thinking", "redacted_thinking")
LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")


class Script:
    """One conversation, written down."""

    def __init__(self, prompt: Prompt, claude: Claude) -> None:
        self._prompt = prompt
        self.system = prompt.request.instructions or ""
        speeches = tell(prompt.items)
        if len(speeches) > 1 and speeches[0].role == "system":
            self.system = "\n\n".join(filter(None, [self.system, self._words(speeches.pop(0))]))
        turns = [turn for speech in speeches for turn in self._turns(speech)]
        self.messages = _alternating([turn for turn in turns if turn[1]], directed=claude.directed)
        if not self.messages:
            raise prompt.refuse(SILENCE, "input")

    @property
    def bare(self) -> bool:
        """Whether calls are being answered whose turn did not begin with a thought."""
        begun: list[Fields] | None = None
        for message in reversed(self.messages):
            blocks = cast("list[Fields]", message["content"])
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
            case role:
                blocks = [block for item in speech.items for block in self._blocks(item)]
                while role == "assistant" and blocks and blocks[-1]["type"] in THOUGHTS:
                    blocks.pop()
                yield role, blocks

    def _words(self, speech: Speech) -> str:
        """Return what the system says."""
        messages = [item for item in speech.items if isinstance(item, Message)]
        said = [
            pieces(self._prompt, message, lambda part: [directed(part)]) for message in messages
        ]
        return "\n\n".join(filter(None, map("".join, said)))

    def _blocks(self, item: Item) -> list[Fields]:
        match item:
            case Message():
                return pieces(self._prompt, item, _piece)
            case FunctionCall():
                return [_call(item)]
            case Reasoning(encrypted_content=str() as seal):
                return _thought(seal)
            case ExtensionItem() if item.type.startswith(SLUG):
                block, type = item.get("block"), item.type.removeprefix(SLUG)
                return [block] if is_object(block) and block.get("type") == type else []
            case _:
                return []

    # --- calls ---

    def _result(self, item: FunctionCallOutput) -> Fields:
        block: Fields = {"type": "tool_result", "tool_use_id": legal_id(item.call_id, LEGAL_ID)}
        said = item.output if isinstance(item.output, str) else pieces(self._prompt, item, _piece)
        if said:
            block["content"] = said
        if item.status == "incomplete":
            block["is_error"] = True
        return block


def _alternating(turns: list[Turn], *, directed: bool) -> list[Fields]:
    """Join what the same role says in a row, and find a place for what the system says."""
    messages: list[Fields] = []
    for index, (role, blocks) in enumerate(turns):
        said = messages[-1]["role"] if messages else None
        if role == "system":
            follows = turns[index + 1][0] if index + 1 < len(turns) else "assistant"
            if directed and said == "user" and follows == "assistant":
                messages.append({"role": "system", "content": blocks})
                continue
            role, blocks = "user", blocks if len(turns) == 1 else _marked(blocks)
        if role == said:
            cast("list[Fields]", messages[-1]["content"]).extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    return _ended(messages)


def _ended(messages: list[Fields]) -> list[Fields]:
    """Let no white space stand at the end of an answer that has been begun; it is refused."""
    if messages and messages[-1]["role"] == "assistant":
        last = cast("list[Fields]", messages[-1]["content"])[-1]
        if last["type"] == "text":
            last["text"] = str(last["text"]).rstrip()
    return messages


def _text(text: str) -> list[Fields]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _marked(blocks: list[Fields]) -> list[Fields]:
    return [block | {"text": f"<system>\n{block['text']}\n</system>"} for block in blocks]


def _call(call: FunctionCall) -> Fields:
    id, name = legal_id(call.call_id, LEGAL_ID), legal_name(call.name, MAX_NAME)
    return {"type": "tool_use", "id": id, "name": name, "input": arguments_in(call.arguments)}


def _thought(sealed: str) -> list[Fields]:
    """Write thinking as it came; what is no seal of ours is left out."""
    seal = read_as(Seal, sealed) or Seal()
    if seal.redacted:
        return [{"type": "redacted_thinking", "data": seal.redacted}]
    if not seal.signature:
        return []
    return [{"type": "thinking", "thinking": seal.thinking, "signature": seal.signature}]


# --- images and files -----------------------------------------------------------------------------


def _piece(part: Content) -> list[Fields]:
    """Write a piece of content; raises ValueError with what is wrong about it."""
    if not isinstance(part, InputImage | InputFile):
        return _text(text_of(part))
    found = media.of(part)
    if isinstance(part, InputFile) and not found.kind.startswith("image/"):
        return [_document(found)]
    if found.data:
        media.check_image(found)
    return [{"type": "image", "source": _source(found)}]


def _document(found: media.Media) -> Fields:
    block: Fields = {"type": "document", "source": _source(found)}
    if found.data and found.kind != PDF:
        if not found.is_text:
            raise ValueError(f"a file may be a PDF or text, not {found.kind or 'of unknown type'}")
        text = found.raw.decode()
        block["source"] = {"type": "text", "media_type": "text/plain", "data": text}
    return block | {"title": found.name} if found.name else block


def _source(found: media.Media) -> Fields:
    if found.data:
        return {"type": "base64", "media_type": found.kind, "data": found.data}
    if found.url:
        return {"type": "url", "url": found.url}
    return {"type": "file", "file_id": found.id}
