"""The vocabulary that adapters and agents speak: parts.

A part says what the model produced and nothing about lifecycle. There are no start or end parts:
`key` says which item a part belongs to and `part` which piece of that item, and the synthesizer
opens and closes everything by itself. Keys are the source's own (a block index, a tool index);
text, reasoning and calls have separate key spaces.
"""

from typing import Literal

from msgspec import Struct

from antiphon.protocol.content import LogProb
from antiphon.protocol.content import TextAnnotation as AnnotationValue
from antiphon.protocol.errors import ErrorPayload, UpstreamError
from antiphon.protocol.items import Item, Phase

Key = int | str


class Text(Struct, frozen=True, gc=False):
    """Words of the answer."""

    text: str
    key: Key = 0
    part: int = 0
    logprobs: list[LogProb] | None = None
    phase: Phase | None = None


class Refusal(Struct, frozen=True, gc=False):
    """Words of a refusal."""

    text: str
    key: Key = 0
    part: int = 0


class Reasoning(Struct, frozen=True, gc=False):
    """Thinking: raw `text`, a `summary` that is safe to show, a seal, or any of them."""

    text: str = ""
    key: Key = 0
    part: int = 0
    summary: str = ""
    encrypted_content: str | None = None


class Call(Struct, frozen=True, gc=False):
    """A function call, or more of its arguments.

    A name with a new `call_id` on a known key begins another call. `complete` says that nothing
    more will come for this call.
    """

    key: Key = 0
    name: str = ""
    arguments: str = ""
    call_id: str = ""
    complete: bool = False


class Annotation(Struct, frozen=True):
    """A note on the text of the same key."""

    annotation: AnnotationValue
    key: Key = 0
    part: int = 0


class Whole(Struct, frozen=True):
    """An item that arrives finished, such as a hosted tool's; its id will be ours."""

    item: Item


class Extension(Struct, frozen=True):
    """An event of our own or the provider's, `slug:name`, to be passed on in its place."""

    type: str
    data: dict[str, object]


class Usage(Struct, frozen=True):
    """Token counts as far as they are known; later ones win, field by field."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Warn(Struct, frozen=True):
    """Something the client should know, kept in the response's `antiphon:warnings`."""

    code: str
    message: str
    param: str | None = None


Reason = Literal["stop", "tool_calls", "length", "content_filter", "cancelled"]


class Finish(Struct, frozen=True):
    """Why the model stopped: in our words, and as the provider said it."""

    reason: Reason
    raw: str | None = None


class Failure(Struct, frozen=True):
    """The source broke; what was made so far stays.

    `status` is what it would have been if nothing had been made yet.
    """

    error: ErrorPayload
    status: int = 502

    @property
    def exception(self) -> UpstreamError:
        """The same as it is raised."""
        error = self.error
        return UpstreamError(
            error.message,
            status=self.status,
            type=error.type,
            code=error.code,
            param=error.param,
        )


Part = (
    Text
    | Refusal
    | Reasoning
    | Call
    | Annotation
    | Whole
    | Extension
    | Usage
    | Warn
    | Finish
    | Failure
)
