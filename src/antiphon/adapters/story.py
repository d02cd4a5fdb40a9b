"""A conversation told in turns, as every provider but ours wants to hear it.

Items come one by one; providers want messages that alternate. A turn gathers what one side said in
a row: the assistant its thinking, words and calls; the tools their outputs; the user the rest. The
outputs of an assistant's calls always follow it directly, in the order of the calls, whatever the
order in which the client sent them.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message

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


def tell(items: Sequence[Item]) -> Iterator[Speech]:
    """Tell a conversation in which every call has its output, and the reverse."""
    outputs: Outputs = defaultdict(deque)
    for item in items:
        if isinstance(item, FunctionCallOutput):
            outputs[item.call_id].append(item)  # some servers use an id again in the next turn
    said: Speech | None = None
    for item in items:
        if isinstance(item, FunctionCallOutput):
            if said and any(call.call_id == item.call_id for call in said.calls):
                yield from _with_outputs(said, outputs)
                said = None
            continue
        role = role_of(item)
        if said and said.role != role:
            yield from _with_outputs(said, outputs)
            said = None
        said = said or Speech(role, [])
        said.items.append(item)
    if said:
        yield from _with_outputs(said, outputs)


Outputs = defaultdict[str, deque[FunctionCallOutput]]


def _with_outputs(said: Speech, outputs: Outputs) -> Iterator[Speech]:
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
