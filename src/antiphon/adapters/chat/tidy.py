"""What stands beside the words of a chat answer, put right where it has the wrong shape.

Only what could not be read as it came is brought here. Counts, log probabilities and annotations
are kept as far as they fit; calls may have numbers for ids and texts for indexes, and arguments of
any kind. The words themselves are not touched: an answer without readable words is none.
"""

from collections.abc import Callable, Mapping

import msgspec

from antiphon.adapters.chat.shapes import Note, Usage
from antiphon.adapters.fields import fields_of, json_text, list_of
from antiphon.adapters.logprobs import Token

Change = Callable[[object], object]


def tidied(chunk: object) -> object:
    """Return a chunk, or a whole answer, whose side data has the right shape."""
    return _changed(chunk, CHUNK)


def fits(kind: object, value: object) -> bool:
    """Tell whether a value can be read as something of a kind."""
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _changed(value: object, changes: Mapping[str, Change]) -> object:
    """Return an object with some of its members changed, if it has them."""
    fields = fields_of(value)
    new = {name: change(fields[name]) for name, change in changes.items() if name in fields}
    return fields | new if new else value


def _each(changes: Mapping[str, Change]) -> Change:
    return lambda value: [_changed(entry, changes) for entry in list_of(value)] or value


def _inside(changes: Mapping[str, Change]) -> Change:
    return lambda value: _changed(value, changes)


def _usage(value: object) -> object:
    counts = fields_of(value).items()
    return {name: count for name, count in counts if fits(Usage, {name: count})} or None


def _groq(value: object) -> object:
    return _changed(fields_of(value), {"usage": _usage})


def _logprobs(value: object) -> object:
    return {"content": [t for t in list_of(fields_of(value).get("content")) if fits(Token, t)]}


def _annotations(value: object) -> object:
    return [note for note in list_of(value) if fits(Note, note)]


def _id(value: object) -> object:
    return str(value) if isinstance(value, int) else value


def _index(value: object) -> object:
    return value if fits(int, value) else None


def _arguments(value: object) -> object:
    return json_text(value) if value else ""  # PHP writes an empty object as a list


FUNCTION = _inside({"arguments": _arguments})
SAID = _inside(
    {
        "tool_calls": _each({"id": _id, "index": _index, "function": FUNCTION}),
        "function_call": FUNCTION,
        "annotations": _annotations,
    }
)
CHUNK: Mapping[str, Change] = {
    "choices": _each({"delta": SAID, "message": SAID, "logprobs": _logprobs}),
    "usage": _usage,
    "x_groq": _groq,
}
"""What is changed of a chunk, and how."""
