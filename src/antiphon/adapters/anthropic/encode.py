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
from antiphon.adapters.anthropic.tools import MAX_TOOL_NAME
from antiphon.adapters.anthropic.wire_types import SLUG, SealedThinking
from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    ConversationTurn,
    encode_pieces,
    make_legal_id,
    make_legal_name,
    split_turns,
    system_text,
)
from antiphon.adapters.json_access import JsonObject, decode_as, parse_arguments
from antiphon.protocol.content import (
    Content,
    InputFile,
    InputImage,
    content_text,
)
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.json_schema import is_object

RoleBlocks = tuple[str, list[JsonObject]]
"""A role, and what it says."""

PDF = "application/pdf"
THINKING_BLOCKS = ("thinking", "redacted_thinking")
TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")


class ConversationEncoder:
    """One conversation, written down."""

    def __init__(self, prompt: Prompt, claude: Claude) -> None:
        self._prompt = prompt
        self.system = prompt.request.instructions or ""
        speeches = split_turns(prompt.items)
        if len(speeches) > 1 and speeches[0].role == "system":
            self.system = "\n\n".join(
                filter(None, [self.system, self._system_text(speeches.pop(0))])
            )
        turns = [turn for speech in speeches for turn in self._encode_turn(speech)]
        self.messages = _alternate_roles(
            [turn for turn in turns if turn[1]], allow_system=claude.supports_system_messages
        )
        if not self.messages:
            raise prompt.unsupported_error(EMPTY_CONVERSATION, "input")

    @property
    def calls_without_thinking(self) -> bool:
        """Whether calls are being answered whose turn did not begin with a thought."""
        begun: list[JsonObject] | None = None
        for message in reversed(self.messages):
            blocks = cast("list[JsonObject]", message["content"])
            if message["role"] == "assistant":
                begun = blocks
            elif not all(block["type"] == "tool_result" for block in blocks):
                break
        if begun is None or self.messages[-1]["role"] == "assistant":
            return False
        return begun[0]["type"] not in THINKING_BLOCKS

    # --- turns ---

    def _encode_turn(self, speech: ConversationTurn) -> Iterable[RoleBlocks]:
        match speech.role:
            case "system":
                yield "system", _text_blocks(self._system_text(speech))
            case "tool":
                yield "user", [self._encode_tool_result(item) for item in speech.outputs]
            case role:
                blocks = [block for item in speech.items for block in self._encode_item(item)]
                while role == "assistant" and blocks and blocks[-1]["type"] in THINKING_BLOCKS:
                    blocks.pop()
                yield role, blocks

    def _system_text(self, speech: ConversationTurn) -> str:
        """Return what the system says."""
        messages = [item for item in speech.items if isinstance(item, Message)]
        said = [
            encode_pieces(self._prompt, message, lambda part: [system_text(part)])
            for message in messages
        ]
        return "\n\n".join(filter(None, map("".join, said)))

    def _encode_item(self, item: Item) -> list[JsonObject]:
        match item:
            case Message():
                return encode_pieces(self._prompt, item, _encode_content)
            case FunctionCall():
                return [_encode_call(item)]
            case Reasoning(encrypted_content=str() as seal):
                return _encode_thinking(seal)
            case ExtensionItem() if item.type.startswith(SLUG):
                block, type = item.get("block"), item.type.removeprefix(SLUG)
                return [block] if is_object(block) and block.get("type") == type else []
            case _:
                return []

    # --- calls ---

    def _encode_tool_result(self, item: FunctionCallOutput) -> JsonObject:
        block: JsonObject = {
            "type": "tool_result",
            "tool_use_id": make_legal_id(item.call_id, TOOL_USE_ID),
        }
        said = (
            item.output
            if isinstance(item.output, str)
            else encode_pieces(self._prompt, item, _encode_content)
        )
        if said:
            block["content"] = said
        if item.status == "incomplete":
            block["is_error"] = True
        return block


def _alternate_roles(turns: list[RoleBlocks], *, allow_system: bool) -> list[JsonObject]:
    """Join what the same role says in a row, and find a place for what the system says."""
    messages: list[JsonObject] = []
    for index, (role, blocks) in enumerate(turns):
        said = messages[-1]["role"] if messages else None
        if role == "system":
            follows = turns[index + 1][0] if index + 1 < len(turns) else "assistant"
            if allow_system and said == "user" and follows == "assistant":
                messages.append({"role": "system", "content": blocks})
                continue
            role, blocks = "user", blocks if len(turns) == 1 else _tag_as_system(blocks)
        if role == said:
            cast("list[JsonObject]", messages[-1]["content"]).extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    return _strip_trailing_space(messages)


def _strip_trailing_space(messages: list[JsonObject]) -> list[JsonObject]:
    """Let no white space stand at the end of an answer that has been begun; it is refused."""
    if messages and messages[-1]["role"] == "assistant":
        last = cast("list[JsonObject]", messages[-1]["content"])[-1]
        if last["type"] == "text":
            last["text"] = str(last["text"]).rstrip()
    return messages


def _text_blocks(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _tag_as_system(blocks: list[JsonObject]) -> list[JsonObject]:
    return [block | {"text": f"<system>\n{block['text']}\n</system>"} for block in blocks]


def _encode_call(call: FunctionCall) -> JsonObject:
    id, name = make_legal_id(call.call_id, TOOL_USE_ID), make_legal_name(call.name, MAX_TOOL_NAME)
    return {"type": "tool_use", "id": id, "name": name, "input": parse_arguments(call.arguments)}


def _encode_thinking(sealed: str) -> list[JsonObject]:
    """Write thinking as it came; what is no seal of ours is left out."""
    seal = decode_as(SealedThinking, sealed) or SealedThinking()
    if seal.redacted:
        return [{"type": "redacted_thinking", "data": seal.redacted}]
    if not seal.signature:
        return []
    return [{"type": "thinking", "thinking": seal.thinking, "signature": seal.signature}]


# --- images and files -----------------------------------------------------------------------------


def _encode_content(part: Content) -> list[JsonObject]:
    """Write a piece of content; raises ValueError with what is wrong about it."""
    if not isinstance(part, InputImage | InputFile):
        return _text_blocks(content_text(part))
    found = media.read_media(part)
    if isinstance(part, InputFile) and not found.media_type.startswith("image/"):
        return [_encode_document(found)]
    if found.data:
        media.check_image(found)
    return [{"type": "image", "source": _encode_source(found)}]


def _encode_document(file: media.Media) -> JsonObject:
    block: JsonObject = {"type": "document", "source": _encode_source(file)}
    if file.data and file.media_type != PDF:
        if not file.is_text:
            raise ValueError(
                f"a file may be a PDF or text, not {file.media_type or 'of unknown type'}"
            )
        text = file.raw.decode()
        block["source"] = {"type": "text", "media_type": "text/plain", "data": text}
    return block | {"title": file.name} if file.name else block


def _encode_source(file: media.Media) -> JsonObject:
    if file.data:
        return {"type": "base64", "media_type": file.media_type, "data": file.data}
    if file.url:
        return {"type": "url", "url": file.url}
    return {"type": "file", "file_id": file.id}
