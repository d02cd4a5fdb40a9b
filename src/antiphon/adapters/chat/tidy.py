"""What stands beside the words of a chat answer, put right where it has the wrong shape.

Only what could not be read as it came is brought here. Counts, log probabilities and annotations
are kept as far as they fit; calls may have numbers for ids and texts for indexes, and arguments of
any kind. The words themselves are not touched: an answer without readable words is none.
"""

from collections.abc import Callable, Mapping

import msgspec

from antiphon.adapters.chat.shapes import AnnotationBody, Usage
from antiphon.adapters.fields import as_object, to_json_text, as_array
from antiphon.adapters.logprobs import TokenLogprob

FieldChange = Callable[[object], object]


def normalize_chunk(chunk: object) -> object:
    """Return a chunk, or a whole answer, whose side data has the right shape."""
    return _apply_changes(chunk, CHUNK_CHANGES)


def fits(kind: object, value: object) -> bool:
    """Tell whether a value can be read as something of a kind."""
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _apply_changes(value: object, changes: Mapping[str, FieldChange]) -> object:
    """Return an object with some of its members changed, if it has them."""
    fields = as_object(value)
    new = {name: change(fields[name]) for name, change in changes.items() if name in fields}
    return fields | new if new else value


def _change_each(changes: Mapping[str, FieldChange]) -> FieldChange:
    return lambda value: [_apply_changes(entry, changes) for entry in as_array(value)] or value


def _change_object(changes: Mapping[str, FieldChange]) -> FieldChange:
    return lambda value: _apply_changes(value, changes)


def _normalize_usage(value: object) -> object:
    counts = as_object(value).items()
    return {name: count for name, count in counts if fits(Usage, {name: count})} or None


def _normalize_groq(value: object) -> object:
    return _apply_changes(as_object(value), {"usage": _normalize_usage})


def _normalize_logprobs(value: object) -> object:
    return {"content": [t for t in as_array(as_object(value).get("content")) if fits(TokenLogprob, t)]}


def _normalize_annotations(value: object) -> object:
    return [note for note in as_array(value) if fits(AnnotationBody, note)]


def _normalize_id(value: object) -> object:
    return str(value) if isinstance(value, int) else value


def _normalize_index(value: object) -> object:
    return value if fits(int, value) else None


def _normalize_arguments(value: object) -> object:
    return to_json_text(value) if value else ""  # PHP writes an empty object as a list


FUNCTION_CHANGE = _change_object({"arguments": _normalize_arguments})
MESSAGE_CHANGE = _change_object(
    {
        "tool_calls": _change_each({"id": _normalize_id, "index": _normalize_index, "function": FUNCTION_CHANGE}),
        "function_call": FUNCTION_CHANGE,
        "annotations": _normalize_annotations,
    }
)
CHUNK_CHANGES: Mapping[str, FieldChange] = {
    "choices": _change_each({"delta": MESSAGE_CHANGE, "message": MESSAGE_CHANGE, "logprobs": _normalize_logprobs}),
    "usage": _normalize_usage,
    "x_groq": _normalize_groq,
}
"""What is changed of a chunk, and how."""
