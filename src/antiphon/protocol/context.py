"""The context of a model: earlier input, earlier output and new input, in that order.

References are resolved, every output must match a call, and a context that exceeds the model's window is rejected or
cut, never between a call and its output. Nobody counts tokens before the provider does, so the size is an estimate.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL_OUTPUT,
    CallKey,
    Content,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputVideo,
    Item,
    ItemReference,
    Message,
    Reasoning,
    call_key,
    content_text,
    output_key,
)
from antiphon.protocol.request import Truncation
from antiphon.protocol.struct import encode
from antiphon.protocol.tools import Tool

OUTPUT_TYPES = frozenset({FunctionCallOutput, ExtensionItem})
CALL_AND_OUTPUT_TYPES = OUTPUT_TYPES | {FunctionCall}
"""The classes whose instances may be outputs, and those that may be calls or outputs."""

# Read by the model, so that it does not wait for the output or invent one.
MISSING_OUTPUT_TEXT = "No output was given for this call."

FindItem = Callable[[str], Item | None]


def assemble(history: Sequence[Item], input: Sequence[Item], find: FindItem | None = None) -> list[Item]:
    """Return the history followed by the input; `find` looks up references to items outside this history."""
    # The specification: "The server MUST load prior input and output … order preserved."
    resolved = input
    if ItemReference in map(type, input):
        resolved = [_resolve_reference(item, index, history, find) for index, item in enumerate(input)]
    if not OUTPUT_TYPES.isdisjoint(map(type, resolved)):
        check_outputs_match_calls(history, resolved)
    return [*history, *resolved]


def _resolve_reference(item: Item, index: int, history: Sequence[Item], find: FindItem | None) -> Item:
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
    """Raise RequestError for an output without a call, or a second, different output of one."""
    waiting: Counter[CallKey] = Counter()
    given: dict[CallKey, object] = {}
    for index, item in enumerate([*history, *input], -len(history)):
        # A counter and not a set: a call_id may be used again by a later call.
        if pair := call_key(item):
            waiting[pair] += 1
        elif pair := output_key(item):
            output = item.output if isinstance(item, FunctionCallOutput) else item.get("output")
            if waiting[pair]:
                waiting[pair] -= 1
                given[pair] = output
            # Only new input is rejected. History that was accepted once must stay usable.
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
    # Most conversations have no calls; this test is much cheaper than the keys of all items.
    if CALL_AND_OUTPUT_TYPES.isdisjoint(map(type, items)):
        return set()
    calls, outputs = set(map(call_key, items)), set(map(output_key, items))
    return {pair[1] for pair in calls ^ outputs if pair}


def repair_unpaired(items: Sequence[Item], unpaired: Collection[str]) -> list[Item]:
    """Return a conversation, or a span of one, in which every call has its output.

    Most models reject a conversation in which one is missing. An output without a call and an
    incomplete call are dropped; a complete call gets an output that says there was none.
    """
    if not unpaired:
        return list(items)
    repaired: list[Item] = []
    for item in items:
        pair = call_key(item) or output_key(item)
        if pair is None or pair[1] not in unpaired:
            repaired.append(item)
        elif isinstance(item, FunctionCall | ExtensionItem) and call_key(item):
            repaired += [] if item.status == "incomplete" else [item, _missing_output(item, pair[1])]
    return repaired


def _missing_output(call: FunctionCall | ExtensionItem, call_id: str) -> Item:
    if isinstance(call, FunctionCall):
        return FunctionCallOutput(call_id=call_id, output=MISSING_OUTPUT_TEXT, status="incomplete")
    return ExtensionItem(type=CUSTOM_TOOL_CALL_OUTPUT, extra={"call_id": call_id, "output": MISSING_OUTPUT_TEXT})


def fit_to_window(items: Sequence[Item], window: int | None, truncation: Truncation) -> list[Item]:
    """Return the items that fit a window of tokens: all, or with `auto` the latest ones.

    System and developer messages stay. A cut never separates a call from its output, or a
    reasoning item from the item after it; the last span is never cut.
    """
    if window is None:
        return list(items)
    total = estimate_items(items)
    if total <= window:
        return list(items)
    if truncation == "auto":
        spans = _split_at_boundaries(items)
        kept: list[Item] = []
        # Drop whole spans from the start until the rest fits; the last one always stays.
        while len(spans) > 1 and total > window:
            for item in spans.pop(0):
                if isinstance(item, Message) and item.role in ("system", "developer"):
                    kept.append(item)
                else:
                    total -= estimate_item(item)
        if total <= window:
            return kept + [item for span in spans for item in span]
    # With `auto` the last span alone is too long, so truncation is no advice any more.
    advice = "Shorten it" if truncation == "auto" else "Shorten it, or set truncation to 'auto'"
    raise RequestError(
        f"The input is about {total} tokens; this model reads at most {window}. {advice}.",
        param="input",
        code="context_length_exceeded",
    )


def _split_at_boundaries(items: Sequence[Item]) -> list[list[Item]]:
    """Split a conversation wherever no call is open and no reasoning waits for its item."""
    spans: list[list[Item]] = [[]]
    outputs = set(map(output_key, items))
    unanswered: set[CallKey] = set()
    for item in items:
        if (pair := call_key(item)) and pair in outputs:
            unanswered.add(pair)
        elif pair := output_key(item):
            unanswered.discard(pair)
        spans[-1].append(item)
        if not unanswered and not isinstance(item, Reasoning):
            spans.append([])
    return [span for span in spans if span]


# Role and separators of one item.
TOKENS_PER_ITEM = 4
# OpenAI's count for an image of 1024 × 1024 pixels at high detail; the real size is not known here.
TOKENS_PER_IMAGE = 765
# A round number: the length of the video is not known here either.
TOKENS_PER_VIDEO = 5_000


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text."""
    if text.isascii():
        return (len(text) + 3) // 4
    # Encoding is done in C; counting in Python would be slow for a long conversation.
    ascii = len(text.encode("ascii", "ignore"))
    return (ascii + 3) // 4 + len(text) - ascii


def estimate_items(items: Iterable[Item]) -> int:
    """Estimate the tokens of a conversation."""
    return sum(map(estimate_item, items))


def estimate_item(item: Item) -> int:
    """Estimate the tokens of one item."""
    match item:
        case Message(content=content):
            return TOKENS_PER_ITEM + _estimate_contents(content)
        case FunctionCall(name=name, arguments=arguments):
            return TOKENS_PER_ITEM + estimate_text(name) + estimate_text(arguments)
        case FunctionCallOutput(output=output):
            return TOKENS_PER_ITEM + (estimate_text(output) if isinstance(output, str) else _estimate_contents(output))
        case Reasoning(summary=summary, content=content):
            return TOKENS_PER_ITEM + _estimate_contents(summary) + (_estimate_contents(content) if content else 0)
        case _:
            return TOKENS_PER_ITEM + estimate_text(encode(item).decode())


def estimate_prompt(instructions: str | None, tools: Sequence[Tool], items: Iterable[Item]) -> int:
    """Estimate the input tokens of a model: instructions, tools and items."""
    offered = estimate_text(encode(list(tools)).decode()) if tools else 0
    return estimate_text(instructions or "") + offered + estimate_items(items)


def _estimate_contents(content: Iterable[Content]) -> int:
    return sum(map(_estimate_content, content))


def _estimate_content(part: Content) -> int:
    match part:
        case InputImage():
            return TOKENS_PER_IMAGE
        case InputVideo():
            return TOKENS_PER_VIDEO
        case InputFile(file_data=data):
            return TOKENS_PER_IMAGE + (len(data) // 8 if data else 0)
        case _:
            return estimate_text(content_text(part))
