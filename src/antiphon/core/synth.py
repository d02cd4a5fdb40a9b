"""Parts in, events out: the only source of ids, indexes and sequence numbers.

Adapters and agents say what the model produced; the synthesizer decides everything else. Here is
the life of the response; `output.py` holds the life of its items, `opened.py` what is open.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import UNSET
from msgspec.structs import asdict, replace

from antiphon.core import parts
from antiphon.core.errors import ErrorPayload, LocalProtocolError
from antiphon.core.events import (
    Event,
    ExtensionEvent,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
)
from antiphon.core.fold import Fold
from antiphon.core.gathered import Gathered
from antiphon.core.manner import PLAIN, Manner
from antiphon.core.opened import Flow, Stream, still_open
from antiphon.core.output import Output
from antiphon.core.parts import Part
from antiphon.core.response import (
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseWarning,
    Usage,
)
from antiphon.core.surrogates import mended
from antiphon.core.value import is_extension_type

INCOMPLETE = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "cancelled": "cancelled",
}


ENDINGS = {
    "completed": ResponseCompleted,
    "failed": ResponseFailed,
    "incomplete": ResponseIncomplete,
    "cancelled": ResponseIncomplete,
}
"""The event that each end of a response is told by."""


WORDS = parts.Text("")
"""Words of no key or piece in particular."""


class Synth:
    """One response being made."""

    def __init__(
        self,
        response: Response,
        *,
        ids: Callable[[str], str],
        clock: Callable[[], float],
        manner: Manner = PLAIN,
        silent: bool = False,
    ) -> None:
        self._silent = silent
        self._begun = response
        self._clock = clock
        self._stream = Stream()
        output = Gathered if manner.one_message else Output
        self._output = output(self._stream, manner.ids or ids, manner)
        self._warnings: list[ResponseWarning] = list(response.warnings or ())
        self._standing = 0
        """How many of them were there before the response was announced."""
        self._reason: parts.Reason = "stop"
        self.usage = parts.Usage()
        self.ended = False
        self._speech: dict[type, Callable[..., None]] = {
            parts.Text: self._output.text,
            parts.Refusal: self._output.refusal,
            parts.Reasoning: self._output.reasoning,
            parts.Annotation: self._output.annotation,
            parts.Call: self._output.call,
        }

    def resume(self, events: Sequence[Event]) -> None:
        """Go on where an earlier synthesizer stopped, as its events tell."""
        for event in events:
            self._stream.fold.feed(event)
            self._stream.number = event.sequence_number + 1
        self._output.adopt(*still_open(events))

    @property
    def response(self) -> Response:
        """The response as far as it has been made."""
        return self._stream.fold.response

    @property
    def started(self) -> bool:
        """Whether the response has been announced."""
        return self._stream.number > 0

    def start(self) -> list[Event]:
        """Announce the response: created, then queued or in progress."""
        self._standing = len(self._warnings)
        self._stream.say(ResponseCreated, response=self._begun)
        if self._begun.status != "queued":
            return self.begin()
        self._stream.say(ResponseQueued, response=self._begun)
        return self._stream.take()

    def begin(self) -> list[Event]:
        """Say that the response is being made."""
        self._stream.say(ResponseInProgress, response=replace(self._begun, status="in_progress"))
        return self._stream.take()

    def feed(self, part: Part) -> list[Event]:
        """Turn one part into the events it causes, perhaps none."""
        return self.feed_all((part,))

    def feed_all(self, heard: Iterable[Part]) -> list[Event]:
        """Turn parts into the events they cause."""
        speech, stream = self._speech, self._stream
        stream.flow = None
        for part in heard:
            if self.ended:
                raise LocalProtocolError(f"{type(part).__name__} after the end of the response")
            if say := speech.get(type(part)):
                say(part)
            else:
                self.STEPS[type(part)](self, part)
        said, stream.said = stream.said, []
        return said

    def flow(self) -> Flow | None:
        """Return what adds plain words to the text that grew last, until a part is fed."""
        stream, strand = self._stream, self._output.growing(WORDS.key, WORDS.part)
        if strand is None:
            return None
        stream.flow = strand.flow = strand.flow or Flow(stream, strand)
        return stream.flow

    def restart(self) -> None:
        """Forget what a model gave of which nothing was told: another one answers in its place."""
        self.usage = parts.Usage()
        self._reason = "stop"
        self._output.restart()
        del self._warnings[self._standing :]

    def end(self) -> list[Event]:
        """Close everything and say how the response ended."""
        if self.ended:
            return []
        self.ended = True
        if reason := INCOMPLETE.get(self._reason):
            self._output.close("incomplete")
            status = "cancelled" if reason == "cancelled" else "incomplete"
            details = IncompleteDetails(reason=reason)
            response = replace(self._final(), status=status, incomplete_details=details)
            self._stream.say(ResponseIncomplete, response=response)
        else:
            self._output.close("completed")
            if not (self._output.count or self._silent):
                self._output.close_empty()
            self._stream.say(ResponseCompleted, response=replace(self._final(), status="completed"))
        return self._stream.take()

    def fail(self, error: ErrorPayload) -> list[Event]:
        """Close everything as incomplete and say what broke."""
        if self.ended:
            return []
        self.ended = True
        self._output.close("incomplete")
        failure = _failure_of(error)
        response = replace(self._final(), status="failed", error=failure, incomplete_details=None)
        self._stream.say(ResponseFailed, response=response)
        return self._stream.take()

    def repeat(self, response: Response) -> list[Event]:
        """End exactly as a response ended that was made before from the same items."""
        self.ended = True
        self._output.close("completed" if response.status == "completed" else "incomplete")
        self._stream.say(ENDINGS[response.status], response=response)
        return self._stream.take()

    def retract(self, error: ErrorPayload) -> list[Event]:
        """Fail after all: the end that was said last has been heard by nobody."""
        self.ended = False
        self._stream.number -= 1
        return self.fail(error)

    def lose(self, error: ErrorPayload) -> list[Event]:
        """Fail with nothing of what was made, which cannot be told."""
        self.ended = True
        self._stream.take()
        self._stream.fold = Fold()
        begun = replace(self._begun, completed_at=int(self._clock()))
        failed = replace(begun, status="failed", error=_failure_of(error))
        self._stream.say(ResponseFailed, response=failed)
        return self._stream.take()

    def _final(self) -> Response:
        if self._output.lost:
            self._output.lost = False  # it is said once, also by an end that is retracted
            message = "Arguments came that belong to no call; they were left out."
            self._warn(parts.Warn("nameless_call", message))
        counts = self.usage
        usage = Usage.of(
            counts.input_tokens or 0,
            counts.output_tokens or 0,
            cached=counts.cached_tokens or 0,
            reasoning=counts.reasoning_tokens or 0,
        )
        return replace(
            self.response,
            completed_at=int(self._clock()),
            usage=None if counts == self.NOTHING else usage,
            warnings=self._warnings or UNSET,
        )

    NOTHING: ClassVar = parts.Usage()
    OURS: ClassVar = frozenset({"type", "sequence_number"})

    # --- the parts that make no item ---

    def _whole(self, part: parts.Whole) -> None:
        self._output.whole(part.item)

    def _extension(self, part: parts.Extension) -> None:
        if not is_extension_type(part.type):
            raise LocalProtocolError(f"'{part.type}' is not of the form slug:name")
        data = {name: part.data[name] for name in part.data if name not in self.OURS}
        self._stream.say(ExtensionEvent, type=part.type, extra=mended(data) or UNSET)

    def _count(self, part: parts.Usage) -> None:
        given = asdict(part).items()  # less than nothing is no count
        known = {name: value for name, value in given if value is not None and value >= 0}
        self.usage = replace(self.usage, **known)

    def _warn(self, part: parts.Warn) -> None:
        param = UNSET if part.param is None else part.param
        warning = ResponseWarning(code=part.code, message=part.message, param=param)
        self._warnings.append(mended(warning))

    def _finish(self, part: parts.Finish) -> None:
        self._reason = part.reason

    def _failure(self, part: parts.Failure) -> None:
        self._stream.said = self.fail(part.error)

    STEPS: ClassVar[dict[type, Callable[..., None]]] = {
        parts.Whole: _whole,
        parts.Extension: _extension,
        parts.Usage: _count,
        parts.Warn: _warn,
        parts.Finish: _finish,
        parts.Failure: _failure,
    }
    """The steps of the others. Bound methods of its own would have it wait for the collector."""


def _failure_of(error: ErrorPayload) -> ResponseError:
    code = error.code or error.type
    return mended(ResponseError(code=code, message=error.message, type=error.type))
