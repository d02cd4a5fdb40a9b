"""Parts: the provider-neutral output of adapters and agents.

A part says what the model produced and nothing about lifecycle. There are no start or end parts:
`key` identifies the item that a part belongs to and `part` the piece of that item, and the
synthesizer infers when each opens and closes. Keys are the source's own (a block index, a tool
index); text, reasoning and calls have separate key spaces. Only an `ItemState` says when an item
begins and ends, for sources that say so themselves.
"""

from typing import Literal

from msgspec import Struct

from antiphon.protocol.errors import ErrorPayload, UpstreamError
from antiphon.protocol.items import ExtensionItem, FunctionCallOutput, Item, LogProb, Message, Phase
from antiphon.protocol.items import Reasoning as ReasoningItem
from antiphon.protocol.items import TextAnnotation as AnnotationValue

Key = int | str

NO_KEY = ""
"""The key of a call for which its agent chose none; `agents` gives it one of its own."""


# gc=False for the parts of the hot path: they are never part of a reference cycle, so the garbage
# collector need not look at them.
class Text(Struct, frozen=True, gc=False):
    """A piece of text of the answer."""

    text: str
    key: Key = 0
    part: int = 0
    logprobs: list[LogProb] | None = None
    phase: Phase | None = None


class Refusal(Struct, frozen=True, gc=False):
    """A piece of text of a refusal."""

    text: str
    key: Key = 0
    part: int = 0


class Reasoning(Struct, frozen=True, gc=False):
    """Reasoning: raw `text`, a `summary` that is safe to show, encrypted content, or several."""

    text: str = ""
    key: Key = 0
    part: int = 0
    summary: str = ""
    encrypted_content: str | None = None


class Call(Struct, frozen=True, gc=False):
    """A function call, or a piece of its arguments.

    A name with a new `call_id` on a known key begins another call. `complete` means that no more
    parts of this call will come.
    """

    key: Key = NO_KEY
    name: str = ""
    arguments: str = ""
    call_id: str = ""
    complete: bool = False


class Annotation(Struct, frozen=True):
    """An annotation of the text with the same key."""

    annotation: AnnotationValue
    key: Key = 0
    part: int = 0


class Whole(Struct, frozen=True):
    """An item that arrives finished, such as a hosted tool's; the synthesizer sets its id."""

    item: Item


class ItemState(Struct, frozen=True):
    """An item as its source shows it: when it begins, while it changes, and when it is `complete`.

    The first state of a key opens the item, with what it holds by then. The item stays open, whatever else comes, until
    its last state. Text and reasoning parts with the key extend it; an item without such parts takes the last state.
    """

    item: Message | ReasoningItem | FunctionCallOutput | ExtensionItem
    key: Key
    complete: bool = False


class Extension(Struct, frozen=True):
    """An extension event, `slug:name`, to be emitted at this position."""

    type: str
    data: dict[str, object]


class Progress(Struct, frozen=True):
    """What the source reports before its output: it has queued the request, or works on it."""

    status: Literal["queued", "in_progress"]


class Usage(Struct, frozen=True):
    """Token counts as far as they are known; a later part overrides an earlier one by field."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Warn(Struct, frozen=True):
    """A warning for the client, listed in the response's `antiphon:warnings`."""

    code: str
    message: str
    param: str | None = None


Reason = Literal["stop", "tool_calls", "length", "content_filter", "cancelled"]


class Finish(Struct, frozen=True):
    """Why the model stopped: the unified reason, and the provider's own."""

    reason: Reason
    raw: str | None = None


class Failure(Struct, frozen=True):
    """A failure of the source; the output so far is kept.

    `status` is the HTTP status of the failure if nothing has been sent yet.
    """

    error: ErrorPayload
    status: int = 502

    @property
    def exception(self) -> UpstreamError:
        """The failure as an exception."""
        error = self.error
        return UpstreamError(error.message, status=self.status, type=error.type, code=error.code, param=error.param)


Part = (
    Text
    | Refusal
    | Reasoning
    | Call
    | Annotation
    | Whole
    | ItemState
    | Extension
    | Progress
    | Usage
    | Warn
    | Finish
    | Failure
)
