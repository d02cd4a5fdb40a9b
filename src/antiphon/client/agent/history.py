"""The context of a run: what was said before it, its rounds, and what of that the server has.

A round that continues a response sends only what is new. Once the server has lost its place, the
run sends everything, and goes on doing so.
"""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.client.agent.context_window import drop_oldest_rounds
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item
from antiphon.protocol.response import Response


class RoundInput(Struct, frozen=True):
    """One round as it is asked: everything, or what is new since a response."""

    items: list[Item]
    previous: str | None = None


class RunHistory:
    """Everything a run has said and heard."""

    def __init__(self, history: Sequence[Item], prompt: Sequence[Item]) -> None:
        self._header = [*history, *prompt]
        self._prompt = list(prompt)
        self._rounds: list[list[Item]] = []
        self._new_items: list[Item] = []
        self._previous: str | None = None
        self._resends_always = False
        self._dropped = 0
        """How many rounds the model is not shown any more."""

    @property
    def count(self) -> int:
        """How often the model has answered."""
        return len(self._rounds)

    @property
    def continues(self) -> bool:
        """Whether the next round leans on what the server remembers."""
        return self._previous is not None

    def next_input(self) -> RoundInput:
        """Return the next round: what is new, if the server remembers the rest."""
        if self._previous is not None:
            return RoundInput(self._new_items, self._previous)
        return RoundInput(self.items)

    @property
    def items(self) -> list[Item]:
        """The context as the model is to see it."""
        items, _ = drop_oldest_rounds(self._header, self._rounds, len(self._rounds) - self._dropped)
        return items

    def add_response(self, response: Response) -> list[FunctionCall]:
        """Take an answer; return the calls in it that are whole."""
        whole = [item for item in response.output if not _is_incomplete_call(item)]
        self._rounds.append(whole)
        self._new_items = []
        self._previous = None if self._resends_always else response.id or None
        return [item for item in whole if isinstance(item, FunctionCall)]

    def add_outputs(self, outputs: Sequence[FunctionCallOutput]) -> None:
        """Take the results of the calls."""
        self._rounds[-1] += outputs
        self._new_items = list(outputs)

    def resend_once(self) -> None:
        """Send everything with the next round, once."""
        self._previous = None

    def resend_always(self) -> None:
        """Send everything from now on: the server has lost its place."""
        self._previous, self._resends_always = None, True

    def drop_oldest(self, keep: int) -> int:
        """Show the model only the last rounds; return how many are dropped by that."""
        dropped = max(0, len(self._rounds) - keep) - self._dropped
        if dropped > 0:
            self._dropped += dropped
            self._previous = None
        return max(0, dropped)

    def finished_items(self) -> list[Item]:
        """Return what belongs into the conversation: the prompt, and every finished round."""
        rounds = [round for round in self._rounds if _is_answered(round)]
        return [*self._prompt, *(item for round in rounds for item in round)] if rounds else []


def _is_incomplete_call(item: Item) -> bool:
    return isinstance(item, FunctionCall) and item.status == "incomplete"


def _is_answered(round: Sequence[Item]) -> bool:
    calls = {item.call_id for item in round if isinstance(item, FunctionCall)}
    return calls == {item.call_id for item in round if isinstance(item, FunctionCallOutput)}
