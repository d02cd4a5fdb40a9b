"""The types of chat chunks and whole answers.

Every field may be missing or null, because servers differ. Unknown fields are ignored.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from antiphon.adapters.base import JsonReader
from antiphon.adapters.json_access import to_json_text
from antiphon.adapters.media import TokenLogprob
from antiphon.protocol.struct import as_array, as_object


# `gc=False`: the objects live for one chunk and form no cycles, so the collector can ignore them.
class ContentPiece(Struct, gc=False):
    """One element of content that is a list. Mistral's thinking has pieces of its own."""

    type: str | None = None
    text: str | None = None
    thinking: "list[ContentPiece] | str | None" = None
    refusal: str | None = None


class UrlCitation(Struct, gc=False):
    """A span of the text and its source."""

    url: str = ""
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class AnnotationBody(Struct, gc=False):
    """An annotation."""

    type: str | None = None
    url_citation: UrlCitation | None = None


class Logprobs(Struct, gc=False):
    """The tokens of a delta or message."""

    content: list[TokenLogprob] | None = None


class Function(Struct, gc=False):
    """A function call or a fragment of one. Some servers send arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, object] | None = None


class Custom(Struct, gc=False):
    """A call of a custom tool, or a fragment of one."""

    name: str | None = None
    input: str | None = None


class ToolCallFragment(Struct, gc=False):
    """A tool call, or a fragment of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: object = None


class MessageDelta(Struct, gc=False):
    """A delta, or a whole message."""

    content: str | list[ContentPiece] | None = None
    reasoning_content: str | None = None
    reasoning: object = None
    reasoning_details: object = None
    refusal: str | None = None
    tool_calls: list[ToolCallFragment] | None = None
    function_call: Function | None = None
    annotations: list[AnnotationBody] | None = None
    images: object = None
    audio: object = None


class Choice(Struct, gc=False):
    """One of the alternative answers. Only the first is used."""

    index: int | None = 0
    delta: MessageDelta | None = None
    message: MessageDelta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    error: object = None


class InputDetails(Struct, gc=False):
    """Details of the prompt tokens."""

    cached_tokens: int | None = None


class OutputDetails(Struct, gc=False):
    """Details of the completion tokens."""

    reasoning_tokens: int | None = None


class Usage(Struct, gc=False):
    """Token counts. Writer calls the details of the prompt `prompt_token_details`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    prompt_token_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class GroqExtras(Struct, gc=False):
    """Groq's own field: an error, or the usage of a stream."""

    error: object = None
    usage: Usage | None = None


class Chunk(Struct, gc=False):
    """A chunk of a stream, a whole answer, or an error instead of either."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: object = None
    object: str | None = None
    x_groq: GroqExtras | None = None


FieldChange = Callable[[object], object]


def normalize_chunk(chunk: object) -> object:
    """Return a chunk or a whole answer with its side data converted to the expected types.

    It is called only for what could not be decoded as it came. Invalid counts, log probabilities
    and annotations are dropped; ids, indexes and arguments of calls are converted. The text is left
    alone: an answer without readable text is an error.
    """
    return _apply_changes(chunk, CHUNK_CHANGES)


def fits(kind: object, value: object) -> bool:
    """Return whether a value can be converted to a type."""
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _apply_changes(value: object, changes: Mapping[str, FieldChange]) -> object:
    """Return an object with some of its fields changed, if it has them."""
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


# Ids of calls are strings, but some servers send numbers.
def _normalize_id(value: object) -> object:
    return str(value) if isinstance(value, int) else value


# An index that is no number is as good as none: `ToolCalls` copes without.
def _normalize_index(value: object) -> object:
    return value if fits(int, value) else None


def _normalize_arguments(value: object) -> object:
    return to_json_text(value) if value else ""  # PHP encodes an empty object as a list


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
"""The fields of a chunk that are normalized, and how."""

read_chunk = JsonReader(Chunk, normalize_chunk)
