"""Hashbrown's threads: what was said before and what is said now, as one list of messages.

A thread is kept in its client's own words. What the client does not carry for us, the sealed
thinking that led to a call, is kept with the call, in its `metadata` under our name.
"""

from collections.abc import Mapping, Sequence

from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.json_schema import is_array, is_object

Json = dict[str, object]

METADATA_KEY = "antiphon"
BEFORE_TEXT, BEFORE_CALL = "before_text", "before_call"
"""Where the thinking stood: before all words of the message, or before the call it is kept with."""


def merge_messages(saved: Sequence[Json], incoming: Sequence[Json]) -> list[Json]:
    """Return a thread with what is new: the longest overlap of its end is said once.

    >>> merge([{"role": "user", "content": "a"}], [{"role": "user", "content": "a"}])
    [{'role': 'user', 'content': 'a'}]
    """
    return [*saved, *incoming[count_overlap(saved, incoming) :]]


def count_overlap(saved: Sequence[Json], incoming: Sequence[Json]) -> int:
    """Return how many messages, at most, are both the end of one list and the start of another.

    Each is looked at a few times however much repeats (Knuth, Morris and Pratt): where a start
    breaks off, its own `borders` say which shorter one may still go on.
    """
    shared = min(len(saved), len(incoming))
    start, end = incoming[:shared], saved[len(saved) - shared :]
    borders: list[int] = [0] * min(shared, 1)
    for message in start[1:]:
        borders.append(_extend_match(borders[-1], message, start, borders))
    size = 0
    for message in end:
        size = _extend_match(size, message, start, borders)
    return size


def _extend_match(size: int, message: Json, start: Sequence[Json], borders: Sequence[int]) -> int:
    """Return how much of a start has been said after one more message; before it, `size` was."""
    while not is_same_json(message, start[size]):
        if not size:
            return 0
        size = borders[size - 1]
    return size + 1


def is_same_json(one: object, other: object) -> bool:
    """Tell whether two values are the same JSON, to which true is not 1."""
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(
            is_same_json(one[name], other[name]) for name in one
        )
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


# --- the answer -------------------------------------------------------------------------------


def assistant_message(items: Sequence[Item]) -> Json:
    """Return the message that a response is in its thread; items are in the order of their telling.

    Calls that the response itself answers are its maker's own, and those cut short are no calls.
    """
    answered = {item.call_id for item in items if isinstance(item, FunctionCallOutput)}
    text = ""
    calls: list[Json] = []
    before_text: list[str] = []
    before_call: list[str] = []
    for item in items:
        match item:
            case Message():
                if item.text and not (text or calls):
                    before_text, before_call = before_call, []
                text += item.text
            case Reasoning(encrypted_content=str(sealed)):
                before_call.append(sealed)
            case FunctionCall() if item.call_id not in answered and item.status != "incomplete":
                kept = {BEFORE_TEXT: before_text, BEFORE_CALL: before_call}
                calls.append(_encode_call(len(calls), item, kept))
                before_text, before_call = [], []
            case _:
                pass
    return {"role": "assistant", "content": text, "toolCalls": calls}


def _encode_call(index: int, call: FunctionCall, kept: Mapping[str, list[str]]) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    made: Json = {"index": index, "id": call.call_id, "type": "function", "function": function}
    thinking = {place: sealed for place, sealed in kept.items() if sealed}
    return made | {"metadata": {METADATA_KEY: thinking}} if thinking else made


# --- what is ours in it -----------------------------------------------------------------------


def sealed_reasoning(metadata: object, place: str) -> list[str]:
    """Return the sealed thinking that is kept with a call for one place."""
    kept = metadata.get(METADATA_KEY) if is_object(metadata) else None
    sealed = kept.get(place) if is_object(kept) else None
    return [entry for entry in sealed if isinstance(entry, str)] if is_array(sealed) else []


def strip_metadata(message: Json) -> Json:
    """Return a message as its client knows it, without what is ours."""
    calls = message.get("toolCalls")
    if not is_array(calls):
        return message
    return message | {"toolCalls": [_strip_call_metadata(call) for call in calls]}


def _strip_call_metadata(call: object) -> object:
    metadata = call.get("metadata") if is_object(call) else None
    if not (is_object(call) and is_object(metadata) and METADATA_KEY in metadata):
        return call
    rest = {name: value for name, value in metadata.items() if name != METADATA_KEY}
    others = {name: value for name, value in call.items() if name != "metadata"}
    return others | {"metadata": rest} if rest else others
