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
from antiphon.core.content import Content, InputText
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]


class Speech(Struct, frozen=True):
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


def tell(items: Sequence[Item]) -> list[Speech]:
    """Tell a conversation in which every call has its output, and the reverse."""
    story: list[Speech] = []
    outputs: Outputs = defaultdict(deque)
    said: Speech | None = None
    for item in items:
        if isinstance(item, FunctionCallOutput):
            outputs[item.call_id].append(item)  # some servers use an id again in the next turn
            if said and any(call.call_id == item.call_id for call in said.calls):
                said = None
            continue
        role = role_of(item)
        if said is None or said.role != role:
            said = Speech(role, [])
            story.append(said)
        said.items.append(item)
    return list(_with_outputs(story, outputs)) if outputs else story


Outputs = defaultdict[str, deque[FunctionCallOutput]]


def _with_outputs(story: Iterable[Speech], outputs: Outputs) -> Iterator[Speech]:
    for said in story:
        yield said
        answers: list[Item] = [
            outputs[call.call_id].popleft() for call in said.calls if outputs[call.call_id]
        ]
        if answers:
            yield Speech("tool", answers)


def role_of(item: Item) -> Role:
    """Return whose words an item is."""
    if isinstance(item, Message):
        return "system" if item.role in ("system", "developer") else item.role
    return "assistant"


def pieces(
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
            place = f"{prompt.place(item)}.{name}[{index}]"
            message = f"This '{piece.type}' cannot be sent: {error}."
            raise prompt.refuse(message, place) from None
    return written


def legal_id(id: str, legal: re.Pattern[str], prefix: str = "call_", size: int = 32) -> str:
    """Return an id that a provider accepts, always the same for the same call."""
    if legal.fullmatch(id):
        return id
    return prefix + hashlib.sha256(id.encode(errors="replace")).hexdigest()[:size]


def legal_name(name: str, limit: int = 64) -> str:
    """Return a name that a function may have; a model may have called one that none has."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:limit]
