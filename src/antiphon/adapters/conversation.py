"""A conversation as turns, and its ids and names as a provider accepts them.

The Responses API has a flat list of items; other APIs have messages of alternating roles. A turn groups adjacent items
of one role: the assistant's reasoning, text and calls; the outputs of tools; the user's or the system's messages. The
outputs of calls always follow the turn with the calls, in the order of the calls, whatever their order in the request.
Ids and names from another provider are changed where this one would reject them.
"""

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.adapters.media import MEDIA_CONTENT
from antiphon.protocol import parts, tools
from antiphon.protocol.items import (
    CallKey,
    Content,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    call_key,
    content_text,
    output_key,
)
from antiphon.protocol.json_schema import Schema

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]

EMPTY_CONVERSATION = "There is nothing to answer; send a message."
"""The error message for a conversation without content."""


class ConversationTurn(Struct, frozen=True):
    """Adjacent items of one role. A turn of the role `tool` holds only outputs."""

    role: Role
    items: list[Item]

    @property
    def calls(self) -> list[FunctionCall]:
        return [item for item in self.items if isinstance(item, FunctionCall)]

    @property
    def outputs(self) -> list[FunctionCallOutput]:
        return [item for item in self.items if isinstance(item, FunctionCallOutput)]


def split_turns(items: Sequence[Item]) -> list[ConversationTurn]:
    """Group items into turns.

    Calls and outputs are expected in pairs (`repair_unpaired` sees to it): an output without a call is dropped.
    """
    turns: list[ConversationTurn] = []
    # Clients reuse ids, so the calls that wait for an output are lists: the last call with the id gets it.
    waiting: dict[CallKey, list[OutputQueues]] = defaultdict(list)
    outputs: list[OutputQueues] = []
    early: dict[CallKey, Item] = {}
    turn: ConversationTurn | None = None
    for item in items:
        if key := output_key(item):
            output = tools.decode_custom_output(item) if isinstance(item, ExtensionItem) else item
            if calls := waiting.get(key):
                calls[-1][key].append(output)
                # An output of the current turn ends it: what follows is a reaction to the output.
                turn = None if calls.pop() is outputs[-1] else turn
            elif key not in waiting:  # otherwise it is a second output of the same call
                early[key] = output
            continue
        role = role_of(item)
        if turn is None or turn.role != role:
            turn = ConversationTurn(role, [])
            turns.append(turn)
            outputs.append(defaultdict(deque))
        turn.items.append(item)
        if (key := call_key(item)) and key in early:
            outputs[-1][key].append(early.pop(key))
        elif key:
            waiting[key].append(outputs[-1])
    return list(_insert_outputs(turns, outputs)) if any(outputs) else turns


OutputQueues = defaultdict[CallKey, deque[Item]]


def _insert_outputs(turns: Iterable[ConversationTurn], outputs: Iterable[OutputQueues]) -> Iterator[ConversationTurn]:
    for turn, queues in zip(turns, outputs, strict=True):
        yield turn
        keys = filter(None, map(call_key, turn.items)) if queues else ()
        if results := [queues[key].popleft() for key in keys if queues[key]]:
            yield ConversationTurn("tool", results)


def role_of(item: Item) -> Role:
    """Return the role of an item's author."""
    if isinstance(item, Message):
        return "system" if item.role in ("system", "developer") else item.role
    return "assistant"


def encode_pieces(
    prompt: Prompt, item: Message | FunctionCallOutput, encode: Callable[[Content], Iterable[T]]
) -> list[T]:
    """Encode the content parts of an item; raises RequestError with the path of an invalid part.

    `encode` raises ValueError with what is wrong with a part.
    """
    is_output = isinstance(item, FunctionCallOutput)
    name, content = ("output", item.output) if is_output else ("content", item.content)
    encoded: list[T] = []
    for index, part in enumerate([InputText(text=content)] if isinstance(content, str) else content):
        try:
            encoded += encode(part)
        except ValueError as error:
            path = f"{prompt.item_path(item)}.{name}[{index}]"
            message = f"This '{part.type}' cannot be sent: {error}."
            raise prompt.unsupported_error(message, path) from None
    return encoded


def system_text(part: Content) -> str:
    """Return the text of a part of a system message; raises ValueError if it is not text."""
    if type(part) in MEDIA_CONTENT:
        raise ValueError("a system message holds only text; send it as the user")
    return content_text(part)


def make_legal_id(id: str, legal: re.Pattern[str], prefix: str = "call_", size: int = 32) -> str:
    """Return the id, or a hash of it if the provider would reject it.

    A hash, so that the same call always has the same id.
    """
    if legal.fullmatch(id):
        return id
    return prefix + hashlib.sha256(id.encode(errors="replace")).hexdigest()[:size]


def make_legal_name(name: str, limit: int = 64) -> str:
    """Return a legal function name. Models sometimes call functions with illegal names."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:limit]


EMPTY_SCHEMA: Schema = {"type": "object", "properties": {}}
"""The parameters of a function that takes none, or whose parameters are unknown."""


def history_tool_names(prompt: Prompt, limit: int = 64) -> list[str]:
    """Return the names of earlier calls if the request offers no tools; else an empty list.

    Anthropic and Bedrock reject a conversation with calls if no tool is declared. So the names are
    declared as tools, and the model is told not to call them.
    """
    if prompt.request.tools:
        return []
    names = [item.name for item in prompt.items if isinstance(item, FunctionCall)]
    return list(dict.fromkeys(make_legal_name(name, limit) for name in names))


def dropped_call_warning(name: str) -> parts.Warn:
    """Return the warning for a call of a tool that is declared only for the history."""
    message = f"The model called '{name[:80]}', which it may not; the call was left out."
    return parts.Warn("dropped_call", message)
