"""The types of chat chunks and whole answers, and of what is sent back with reasoning.

Every field may be missing or null, because servers differ. Unknown fields are ignored.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from antiphon.adapters.base import JsonReader
from antiphon.adapters.json_access import to_json_text
from antiphon.adapters.media import TokenLogprob
from antiphon.protocol.struct import JsonObject, as_array, as_object


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
    """A call or a fragment of one. A custom tool has an input; some servers send arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, object] | None = None
    input: str | None = None


class ToolCallFragment(Struct, gc=False):
    """A tool call, or a fragment of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: Function | None = None
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


class TokenDetails(Struct, gc=False):
    """Details of the prompt tokens or of the completion tokens."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(Struct, gc=False):
    """Token counts. Writer calls the details of the prompt `prompt_token_details`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    prompt_token_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None


class Chunk(Struct, gc=False):
    """A chunk of a stream, a whole answer, or an error instead of either. Groq puts errors and usage into `x_groq`."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: object = None
    object: str | None = None
    x_groq: "Chunk | None" = None


class ChatSeal(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of a reasoning item's `encrypted_content`: what is sent back with its text."""

    field: str
    """The field that the text came in; empty if there is no text. It is always encoded, and first:
    the Responses adapter recognises a seal of this dialect by it."""
    details: list[JsonObject] = []
    """OpenRouter's `reasoning_details`."""
    extra: JsonObject = {}
    """The `extra_content` of a call."""
    call: str = ""
    """The id of that call. If it is empty, the extras belong to the next call."""


FieldChange = Callable[[object], object]


def fits(kind: object, value: object) -> bool:
    """Return whether a value can be converted to a type."""
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _change_fields(**changes: FieldChange) -> FieldChange:
    """Return a function that changes these fields of an object, if it has them."""

    def change_object(value: object) -> object:
        fields = as_object(value)
        new = {name: change(fields[name]) for name, change in changes.items() if name in fields}
        return fields | new if new else value

    return change_object


def _change_each(change: FieldChange) -> FieldChange:
    return lambda value: [change(entry) for entry in as_array(value)] or value


def _keep_fitting(kind: object, value: object) -> list[object]:
    return [entry for entry in as_array(value) if fits(kind, entry)]


def _normalize_usage(value: object) -> object:
    counts = as_object(value).items()
    return {name: count for name, count in counts if fits(Usage, {name: count})} or None


# PHP encodes an empty object as a list.
_change_function = _change_fields(arguments=lambda value: to_json_text(value) if value else "")
_change_call = _change_fields(
    # Ids of calls are strings, but some servers send numbers.
    id=lambda value: str(value) if isinstance(value, int) else value,
    # An index that is no number is as good as none: `ToolCalls` copes without.
    index=lambda value: value if fits(int, value) else None,
    function=_change_function,
)
_change_message = _change_fields(
    tool_calls=_change_each(_change_call),
    function_call=_change_function,
    annotations=lambda value: _keep_fitting(AnnotationBody, value),
)
_change_choice = _change_fields(
    delta=_change_message,
    message=_change_message,
    logprobs=lambda value: {"content": _keep_fitting(TokenLogprob, as_object(value).get("content"))},
)
_change_groq = _change_fields(usage=_normalize_usage)

normalize_chunk = _change_fields(
    choices=_change_each(_change_choice), usage=_normalize_usage, x_groq=lambda value: _change_groq(as_object(value))
)
"""Returns a chunk or a whole answer with its side data converted to the expected types.

It is called only for what could not be decoded as it came. Invalid counts, log probabilities and
annotations are dropped; ids, indexes and arguments of calls are converted. The text is left alone:
an answer without readable text is an error.
"""

read_chunk = JsonReader(Chunk, normalize_chunk)
