"""The text fast path: text deltas that become events without a `protocol.parts.Part` for each.

Most of a stream is plain text that extends the same message. For it the synthesizer hands out a `TextFastPath`: the
caller writes the deltas itself, from a template, and reports the texts, so that they get sequence numbers and become
part of the response. The path ends when the synthesizer is next fed.
"""

from collections.abc import Callable

from msgspec.structs import replace

from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import Event, EventFactory, TextKind
from antiphon.protocol.fold import Fold
from antiphon.protocol.surrogates import SurrogateJoiner


class EventEmitter:
    """Numbers, folds and collects the events of one response."""

    __slots__ = ("fold", "next_number", "pending", "text_fast_path")

    def __init__(self) -> None:
        self.next_number = 0
        self.fold = Fold()
        self.pending: list[Event] = []
        """The events since the last `take`."""
        self.text_fast_path: TextFastPath | None = None
        """The only fast path that may append now; any other event ends it."""

    def emit(self, kind: Callable[..., Event], **fields: object) -> None:
        """Append an event with the next sequence number."""
        self.text_fast_path = None
        event = kind(sequence_number=self.next_number, **fields)
        self.next_number += 1
        self.fold.feed(event)
        self.pending.append(event)

    def emit_delta(self, open_text: "OpenText", text: str) -> None:
        """Append a delta without logprobs or obfuscation."""
        # Hot path: copy the template and append to the fold's own list, instead of building the
        # event field by field and dispatching it through the fold.
        self.pending.append(replace(open_text.delta_template, sequence_number=self.next_number, delta=text))
        self.next_number += 1
        open_text.pieces.append(text)

    def take(self) -> list[Event]:
        """Return the pending events and forget them."""
        pending, self.pending = self.pending, []
        return pending


class FilteringEmitter(EventEmitter):
    """An emitter that folds some kinds of events without emitting them."""

    __slots__ = ("_omitted",)

    def __init__(self, omitted: frozenset[EventFactory]) -> None:
        super().__init__()
        self._omitted = omitted

    def emit(self, kind: Callable[..., Event], **fields: object) -> None:
        if kind in self._omitted:
            self.fold.feed(kind(sequence_number=self.next_number, **fields))
        else:
            super().emit(kind, **fields)

    def emit_delta(self, open_text: "OpenText", text: str) -> None:
        if open_text.kind.delta_event in self._omitted:
            open_text.pieces.append(text)
        else:
            super().emit_delta(open_text, text)


class OpenText:
    """A streamed text (content part, summary part or arguments) that is not done yet."""

    def __init__(self, kind: TextKind, part: int, index: int, item_id: str, output_index: int) -> None:
        self.kind = kind
        self.part = part
        """The number that the source gave to this piece."""
        self.index = index
        """Our own content_index or summary_index."""
        self.location: dict[str, object] = {"item_id": item_id, "output_index": output_index}
        """The fields that locate each event of the text: item_id, output_index and the index."""
        if kind.index_field:
            self.location[kind.index_field] = index
        self.delta_template = kind.delta_event(sequence_number=0, delta="", **self.location)
        self.joiner = SurrogateJoiner()
        self.annotations = 0
        self.done_emitted = False
        """Whether the text's done event is out; only a resumed text can be open after it."""
        self.pieces: list[str] = []
        """The fold's own list of this text's deltas."""
        self.text_fast_path: TextFastPath | None = None


class TextFastPath:
    """Appends deltas to one open text, as long as no other event is emitted."""

    __slots__ = ("_emitter", "_pieces", "delta_template")

    def __init__(self, emitter: EventEmitter, open_text: OpenText) -> None:
        self.delta_template = open_text.delta_template
        """A delta event of the text; each real one differs in sequence_number and delta only."""
        self._pieces = open_text.pieces
        self._emitter = emitter

    def append(self, texts: list[str]) -> int:
        """Number and fold one delta per text; return the sequence number of the first.

        No text may be empty or contain half of a surrogate pair. Raises LocalProtocolError once the path has ended.
        """
        emitter = self._emitter
        # A caller that kept the path too long would put its text at the wrong place in the stream.
        if emitter.text_fast_path is not self:
            raise LocalProtocolError("the text fast path was used after another event")
        number = emitter.next_number
        emitter.next_number = number + len(texts)
        # In place: this is the list that the fold joins, not a copy of it.
        self._pieces += texts
        return number
