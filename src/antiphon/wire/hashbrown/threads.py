"""Hashbrown threads: stored messages merged with those of a request, and the assistant's message.

A thread stores the client's messages as they are. The encrypted reasoning that preceded a call,
which the client does not return to us, is stored in the call's `metadata`, under our own key.
"""

from collections.abc import Mapping, Sequence

from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.protocol.json_schema import is_array, is_object

Json = dict[str, object]

METADATA_KEY = "antiphon"
BEFORE_TEXT, BEFORE_CALL = "before_text", "before_call"
"""The position of reasoning: before the message's text, or before the call it is stored with."""


def merge_messages(saved: Sequence[Json], incoming: Sequence[Json]) -> list[Json]:
    """Return a thread's messages and the new ones; the longest overlap is included once.

    >>> merge_messages([{"role": "user", "content": "a"}], [{"role": "user", "content": "a"}])
    [{'role': 'user', 'content': 'a'}]
    """
    return [*saved, *incoming[count_overlap(saved, incoming) :]]


def count_overlap(saved: Sequence[Json], incoming: Sequence[Json]) -> int:
    """Return the length of the longest end of `saved` that is also a start of `incoming`.

    This is the Knuth-Morris-Pratt algorithm. It takes linear time, also for a client that sends
    the same message thousands of times; `borders` is its prefix function.
    """
    shared = min(len(saved), len(incoming))
    # Only the last messages of the thread can overlap with the first ones of the request.
    start, end = incoming[:shared], saved[len(saved) - shared :]
    borders: list[int] = [0] * min(shared, 1)
    for message in start[1:]:
        borders.append(_extend_match(borders[-1], message, start, borders))
    size = 0
    for message in end:
        size = _extend_match(size, message, start, borders)
    return size


def _extend_match(size: int, message: Json, start: Sequence[Json], borders: Sequence[int]) -> int:
    """Return the length of the matched start after one more message; it was `size` before."""
    while not is_same_json(message, start[size]):
        if not size:
            return 0
        size = borders[size - 1]
    return size + 1


def is_same_json(one: object, other: object) -> bool:
    """Return whether two values are the same JSON; unlike in Python, true is not 1."""
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(
            is_same_json(one[name], other[name]) for name in one
        )
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def assistant_message(items: Sequence[Item]) -> Json:
    """Return a response's items, in the order of their appearance, as an assistant message.

    Calls that the response itself answers, and incomplete calls, are left out.
    """
    answered = {item.call_id for item in items if isinstance(item, FunctionCallOutput)}
    text = ""
    calls: list[Json] = []
    before_text: list[str] = []
    before_call: list[str] = []
    for item in items:
        match item:
            case Message():
                # The reasoning so far preceded the text, not a call.
                if item.text and not (text or calls):
                    before_text, before_call = before_call, []
                text += item.text
            case Reasoning(encrypted_content=str(sealed)):
                before_call.append(sealed)
            case FunctionCall() if item.call_id not in answered and item.status != "incomplete":
                reasoning = {BEFORE_TEXT: before_text, BEFORE_CALL: before_call}
                calls.append(_encode_call(len(calls), item, reasoning))
                before_text, before_call = [], []
            case _:
                pass
    return {"role": "assistant", "content": text, "toolCalls": calls}


def _encode_call(index: int, call: FunctionCall, reasoning: Mapping[str, list[str]]) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    encoded: Json = {"index": index, "id": call.call_id, "type": "function", "function": function}
    stored = {place: sealed for place, sealed in reasoning.items() if sealed}
    return encoded | {"metadata": {METADATA_KEY: stored}} if stored else encoded


def read_sealed_reasoning(metadata: object, place: str) -> list[str]:
    """Return the encrypted reasoning that is stored with a call for one position."""
    stored = metadata.get(METADATA_KEY) if is_object(metadata) else None
    sealed = stored.get(place) if is_object(stored) else None
    return [entry for entry in sealed if isinstance(entry, str)] if is_array(sealed) else []


def strip_metadata(message: Json) -> Json:
    """Return a message without our own metadata, as the client knows it."""
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
