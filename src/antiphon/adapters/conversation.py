"""A conversation told in turns, as every provider but ours wants to hear it.

Items come one by one; providers want messages that alternate. A turn gathers what one side said in
a row: the assistant its thinking, words and calls; the tools their outputs; the user the rest. The
outputs of an assistant's calls always follow it directly, in the order of the calls, whatever the
order in which the client sent them. Ids and names that another provider made are changed where this
one would refuse them.
"""

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.protocol import parts, tools
from antiphon.protocol.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    content_text,
)
from antiphon.protocol.items import (
    CallKey,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    call_key,
    output_key,
)
from antiphon.protocol.json_schema import Schema

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]

EMPTY_CONVERSATION = "There is nothing to answer; send a message."
"""Why a conversation in which nothing is said is refused."""


class ConversationTurn(Struct, frozen=True):
    """What one side said in a row. A tool's speech holds outputs only."""

    role: Role
    items: list[Item]

    @property
    def calls(self) -> list[FunctionCall]:
        """The calls among the items."""
        return [item for item in self.items if isinstance(item, FunctionCall)]

    @property
    def outputs(self) -> list[FunctionCallOutput]:
        """The outputs among the items."""
        return [item for item in self.items if isinstance(item, FunctionCallOutput)]


def split_turns(items: Sequence[Item]) -> list[ConversationTurn]:
    """Tell a conversation in which every call has its output, and the reverse."""
    story: list[ConversationTurn] = []
    waiting: dict[CallKey, list[OutputQueues]] = defaultdict(
        list
    )  # an id may come again in a later turn
    outputs: list[OutputQueues] = []
    early: dict[CallKey, Item] = {}
    said: ConversationTurn | None = None
    for item in items:
        if pair := output_key(item):
            output = tools.decode_custom_output(item) if isinstance(item, ExtensionItem) else item
            if calls := waiting.get(pair):  # the call is the nearest before it
                calls[-1][pair].append(output)
                said = None if calls.pop() is outputs[-1] else said
            elif pair not in waiting:  # or else it is one too many
                early[pair] = output
            continue
        role = role_of(item)
        if said is None or said.role != role:
            said = ConversationTurn(role, [])
            story.append(said)
            outputs.append(defaultdict(deque))
        said.items.append(item)
        if (pair := call_key(item)) and pair in early:
            outputs[-1][pair].append(early.pop(pair))
        elif pair:
            waiting[pair].append(outputs[-1])
    return list(_insert_outputs(story, outputs)) if any(outputs) else story


OutputQueues = defaultdict[CallKey, deque[Item]]


def _insert_outputs(
    turns: Iterable[ConversationTurn], outputs: Iterable[OutputQueues]
) -> Iterator[ConversationTurn]:
    for said, given in zip(turns, outputs, strict=True):
        yield said
        pairs = filter(None, map(call_key, said.items)) if given else ()
        answers = [given[pair].popleft() for pair in pairs if given[pair]]
        if answers:
            yield ConversationTurn("tool", answers)


def role_of(item: Item) -> Role:
    """Return whose words an item is."""
    if isinstance(item, Message):
        return "system" if item.role in ("system", "developer") else item.role
    return "assistant"


def encode_pieces(
    prompt: Prompt,
    item: Message | FunctionCallOutput,
    write: Callable[[Content], Iterable[T]],
) -> list[T]:
    """Write what an item holds piece by piece; raises RequestError for what cannot be written.

    `write` raises ValueError with what is wrong about a piece.
    """
    called = isinstance(item, FunctionCallOutput)
    name, held = ("output", item.output) if called else ("content", item.content)
    written: list[T] = []
    for index, piece in enumerate([InputText(text=held)] if isinstance(held, str) else held):
        try:
            written += write(piece)
        except ValueError as error:
            place = f"{prompt.item_path(item)}.{name}[{index}]"
            message = f"This '{piece.type}' cannot be sent: {error}."
            raise prompt.unsupported_error(message, place) from None
    return written


def system_text(part: Content) -> str:
    """Return a piece of what the system says, which can only be text; raises ValueError."""
    match part:
        case InputImage() | InputFile() | InputVideo() | ExtensionContent():
            raise ValueError("only text comes from the system; send it as the user")
        case _:
            return content_text(part)


def make_legal_id(id: str, legal: re.Pattern[str], prefix: str = "call_", size: int = 32) -> str:
    """Return an id that a provider accepts, always the same for the same call."""
    if legal.fullmatch(id):
        return id
    return prefix + hashlib.sha256(id.encode(errors="replace")).hexdigest()[:size]


def make_legal_name(name: str, limit: int = 64) -> str:
    """Return a name that a function may have; a model may have called one that none has."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:limit]


EMPTY_SCHEMA: Schema = {"type": "object", "properties": {}}
"""What a function is called with that takes nothing, or nobody knows what."""


def history_tool_names(prompt: Prompt, limit: int = 64) -> list[str]:
    """Return the names to show for the sake of the history alone; none beside real tools."""
    if prompt.request.tools:
        return []
    called = [item.name for item in prompt.items if isinstance(item, FunctionCall)]
    return list(dict.fromkeys(make_legal_name(name, limit) for name in called))


def dropped_call_warning(name: str) -> parts.Warn:
    """Say that a call of such a name was left out."""
    message = f"The model called '{name[:80]}', which it may not; the call was left out."
    return parts.Warn("dropped_call", message)
