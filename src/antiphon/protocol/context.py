"""What the model reads: previous input, previous output, input; in that order, and whole.

The specification: "The server MUST load prior input and output … order preserved." References are
replaced by what they name, every output must answer a call that is there, and what does not fit
the window is refused or cut, never in the middle of a call.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from antiphon.protocol import token_estimate
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL_OUTPUT,
    CallKey,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    Reasoning,
    call_key,
    output_key,
)
from antiphon.protocol.request import Truncation

OUTPUT_TYPES = frozenset({FunctionCallOutput, ExtensionItem})
CALL_AND_OUTPUT_TYPES = OUTPUT_TYPES | {FunctionCall}
"""The types that may be an output, and those that may be a call or an output."""

MISSING_OUTPUT_TEXT = "No output was given for this call."

FindItem = Callable[[str], Item | None]


def assemble(
    history: Sequence[Item], input: Sequence[Item], find: FindItem | None = None
) -> list[Item]:
    """Join what was said before and what is said now, with references resolved.

    `find` looks up items that are stored but not part of this history.
    """
    said = input
    if ItemReference in map(type, input):
        said = [_resolve_reference(item, index, history, find) for index, item in enumerate(input)]
    if not OUTPUT_TYPES.isdisjoint(map(type, said)):
        check_outputs_match_calls(history, said)
    return [*history, *said]


def _resolve_reference(
    item: Item, index: int, history: Sequence[Item], find: FindItem | None
) -> Item:
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


def check_outputs_match_calls(history: Sequence[Item], input: Sequence[Item]) -> None:
    """Refuse an output that answers no call, or that says otherwise than the one before it."""
    waiting: Counter[CallKey] = Counter()
    given: dict[CallKey, object] = {}
    for index, item in enumerate([*history, *input], -len(history)):
        if pair := call_key(item):
            waiting[pair] += 1
        elif pair := output_key(item):
            output = item.output if isinstance(item, FunctionCallOutput) else item.get("output")
            if waiting[pair]:
                waiting[pair] -= 1
                given[pair] = output
            elif index >= 0 and (pair not in waiting or given[pair] != output):
                raise _unmatched_output_error(pair, index, known=pair in waiting)


def _unmatched_output_error(pair: CallKey, index: int, *, known: bool) -> RequestError:
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


def find_unpaired_call_ids(items: Collection[Item]) -> set[str]:
    """Return the call_ids of calls that have no output, and of outputs that have no call."""
    if CALL_AND_OUTPUT_TYPES.isdisjoint(map(type, items)):  # so it is in most chains, however long
        return set()
    calls, outputs = set(map(call_key, items)), set(map(output_key, items))
    return {pair[1] for pair in calls ^ outputs if pair}


def repair_unpaired(items: Sequence[Item], unpaired: Collection[str]) -> list[Item]:
    """Return a conversation, or a stretch of one, in which nothing is unpaired.

    Most models refuse a conversation with an open call or a stray output in it. A stray output and
    a call that was cut short are left out; a whole call gets an output that says there was none.
    """
    if not unpaired:
        return list(items)
    repaired: list[Item] = []
    for item in items:
        pair = call_key(item) or output_key(item)
        if pair is None or pair[1] not in unpaired:
            repaired.append(item)
        elif isinstance(item, FunctionCall | ExtensionItem) and call_key(item):
            repaired += (
                [] if item.status == "incomplete" else [item, _missing_output(item, pair[1])]
            )
    return repaired


def _missing_output(call: FunctionCall | ExtensionItem, call_id: str) -> Item:
    if isinstance(call, FunctionCall):
        return FunctionCallOutput(call_id=call_id, output=MISSING_OUTPUT_TEXT, status="incomplete")
    return ExtensionItem(
        type=CUSTOM_TOOL_CALL_OUTPUT, extra={"call_id": call_id, "output": MISSING_OUTPUT_TEXT}
    )


def fit_to_window(items: Sequence[Item], window: int | None, truncation: Truncation) -> list[Item]:
    """Return what fits a window of tokens: all of it, or under `auto` the latest of it.

    Instructions inside the conversation stay. A cut never parts a call from its output, nor a
    reasoning item from what it led to; the last stretch is never cut.
    """
    if window is None:
        return list(items)
    total = token_estimate.estimate_items(items)
    if total <= window:
        return list(items)
    if truncation == "auto":
        stretches = _split_at_boundaries(items)
        kept: list[Item] = []
        while len(stretches) > 1 and total > window:
            for item in stretches.pop(0):
                if isinstance(item, Message) and item.role in ("system", "developer"):
                    kept.append(item)
                else:
                    total -= token_estimate.estimate_item(item)
        if total <= window:
            return kept + [item for stretch in stretches for item in stretch]
    advice = "Shorten it" if truncation == "auto" else "Shorten it, or set truncation to 'auto'"
    raise RequestError(
        f"The input is about {total} tokens; this model reads at most {window}. {advice}.",
        param="input",
        code="context_length_exceeded",
    )


def _split_at_boundaries(items: Sequence[Item]) -> list[list[Item]]:
    """Cut a conversation wherever nothing is left hanging."""
    stretches: list[list[Item]] = [[]]
    outputs = set(map(output_key, items))
    unanswered: set[CallKey] = set()
    for item in items:
        if (pair := call_key(item)) and pair in outputs:
            unanswered.add(pair)
        elif pair := output_key(item):
            unanswered.discard(pair)
        stretches[-1].append(item)
        if not unanswered and not isinstance(item, Reasoning):
            stretches.append([])
    return [stretch for stretch in stretches if stretch]
