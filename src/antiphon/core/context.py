"""What the model reads: previous input, previous output, input; in that order, and whole.

The specification: "The server MUST load prior input and output … order preserved." References are
replaced by what they name, every output must answer a call that is there, and what does not fit
the window is refused or cut, never in the middle of a call.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from antiphon.core import tokens
from antiphon.core.errors import RequestError
from antiphon.core.items import (
    CUSTOM_OUTPUT,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    Pair,
    Reasoning,
    answered,
    called,
)
from antiphon.core.request import Truncation

OUTPUTS = frozenset({FunctionCallOutput, ExtensionItem})
PAIRS = OUTPUTS | {FunctionCall}
"""The types that may be an output, and those that may be a call or an output."""

NO_OUTPUT = "No output was given for this call."

Find = Callable[[str], Item | None]


def assemble(
    history: Sequence[Item], input: Sequence[Item], find: Find | None = None
) -> list[Item]:
    """Join what was said before and what is said now, with references resolved.

    `find` looks up items that are stored but not part of this history.
    """
    said = input
    if ItemReference in map(type, input):
        said = [_resolve(item, index, history, find) for index, item in enumerate(input)]
    if not OUTPUTS.isdisjoint(map(type, said)):
        check_pairs(history, said)
    return [*history, *said]


def _resolve(item: Item, index: int, history: Sequence[Item], find: Find | None) -> Item:
    if not isinstance(item, ItemReference):
        return item
    known = (earlier for earlier in history if earlier.id == item.id)
    named = next(known, None) or (find(item.id) if find else None)
    if named is None:
        raise RequestError(
            f"Item '{item.id}' not found. Send the item itself, or the id of a stored one.",
            param=f"input[{index}].id",
            code="item_not_found",
        )
    return named


def check_pairs(history: Sequence[Item], input: Sequence[Item]) -> None:
    """Refuse an output that answers no call, or that says otherwise than the one before it."""
    waiting: Counter[Pair] = Counter()
    given: dict[Pair, object] = {}
    for index, item in enumerate([*history, *input], -len(history)):
        if pair := called(item):
            waiting[pair] += 1
        elif pair := answered(item):
            output = item.output if isinstance(item, FunctionCallOutput) else item.get("output")
            if waiting[pair]:
                waiting[pair] -= 1
                given[pair] = output
            elif index >= 0 and (pair not in waiting or given[pair] != output):
                raise _misplaced(pair, index, known=pair in waiting)


def _misplaced(pair: Pair, index: int, *, known: bool) -> RequestError:
    kind, call_id = pair
    param = f"input[{index}].call_id"
    if known:
        message = f"The call '{call_id}' has another output already. Send one for each call."
        return RequestError(message, param=param, code="invalid_value")
    return RequestError(
        f"No {kind.replace('_', ' ')} with call_id '{call_id}' comes before this output. "
        f"Send the {kind} item first, or continue the response that made the call.",
        param=param,
        code="function_call_not_found",
    )


def unpaired(items: Collection[Item]) -> set[str]:
    """Return the call_ids of calls that have no output, and of outputs that have no call."""
    if PAIRS.isdisjoint(map(type, items)):  # so it is in most chains, however long
        return set()
    calls, outputs = set(map(called, items)), set(map(answered, items))
    return {pair[1] for pair in calls ^ outputs if pair}


def repair(items: Sequence[Item], unpaired: Collection[str]) -> list[Item]:
    """Return a conversation, or a stretch of one, in which nothing is unpaired.

    Most models refuse a conversation with an open call or a stray output in it. A stray output and
    a call that was cut short are left out; a whole call gets an output that says there was none.
    """
    if not unpaired:
        return list(items)
    repaired: list[Item] = []
    for item in items:
        pair = called(item) or answered(item)
        if pair is None or pair[1] not in unpaired:
            repaired.append(item)
        elif isinstance(item, FunctionCall | ExtensionItem) and called(item):
            repaired += [] if item.status == "incomplete" else [item, _no_output(item, pair[1])]
    return repaired


def _no_output(call: FunctionCall | ExtensionItem, call_id: str) -> Item:
    if isinstance(call, FunctionCall):
        return FunctionCallOutput(call_id=call_id, output=NO_OUTPUT, status="incomplete")
    return ExtensionItem(type=CUSTOM_OUTPUT, extra={"call_id": call_id, "output": NO_OUTPUT})


def fit(items: Sequence[Item], window: int | None, truncation: Truncation) -> list[Item]:
    """Return what fits a window of tokens: all of it, or under `auto` the latest of it.

    Instructions inside the conversation stay. A cut never parts a call from its output, nor a
    reasoning item from what it led to; the last stretch is never cut.
    """
    if window is None:
        return list(items)
    total = tokens.of_items(items)
    if total <= window:
        return list(items)
    if truncation == "auto":
        stretches = _stretches(items)
        kept: list[Item] = []
        while len(stretches) > 1 and total > window:
            for item in stretches.pop(0):
                if isinstance(item, Message) and item.role in ("system", "developer"):
                    kept.append(item)
                else:
                    total -= tokens.of_item(item)
        if total <= window:
            return kept + [item for stretch in stretches for item in stretch]
    advice = "Shorten it" if truncation == "auto" else "Shorten it, or set truncation to 'auto'"
    raise RequestError(
        f"The input is about {total} tokens; this model reads at most {window}. {advice}.",
        param="input",
        code="context_length_exceeded",
    )


def _stretches(items: Sequence[Item]) -> list[list[Item]]:
    """Cut a conversation wherever nothing is left hanging."""
    stretches: list[list[Item]] = [[]]
    outputs = set(map(answered, items))
    unanswered: set[Pair] = set()
    for item in items:
        if (pair := called(item)) and pair in outputs:
            unanswered.add(pair)
        elif pair := answered(item):
            unanswered.discard(pair)
        stretches[-1].append(item)
        if not unanswered and not isinstance(item, Reasoning):
            stretches.append([])
    return [stretch for stretch in stretches if stretch]
