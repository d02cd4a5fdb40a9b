"""The items of a response that says everything in one message.

Some clients know one text per answer. For them the message comes first, whatever else does, and so
has index 0; all words go to its first text, wherever they come between other items; and it is open
to the end. Other items end when they would anyway, and do not wait for it: that is the one rule of
the rulebook (`done-in-order`) which such a stream does not keep.
"""

from collections.abc import Callable

from msgspec.structs import replace

from antiphon.core import content, parts
from antiphon.core.content import UrlCitation
from antiphon.core.faces import TEXT
from antiphon.core.items import Item, Message, Phase, Status
from antiphon.core.manner import Manner
from antiphon.core.opened import Kind, Open, Stream
from antiphon.core.output import PREFIX, Output
from antiphon.core.parts import Key

Block = tuple[Key, int]
"""A piece of text as its source knows it: its key and its part."""

FIRST: Block = (0, 0)


class Gathered(Output):
    """Everything such a response's items are made through."""

    def __init__(self, stream: Stream, ids: Callable[[str], str], manner: Manner) -> None:
        super().__init__(stream, ids, manner)
        self._message: Open | None = None
        self._starts: dict[Block, int] = {}
        """Where in the one text each of the source's own begins."""

    # --- words ---

    def text(self, part: parts.Text) -> None:
        """Add words to the message; a delta without any begins nothing but the first text."""
        if not (part.text or part.logprobs) and self._refusing:
            return
        block = (part.key, part.part)
        if block not in self._starts:
            self._starts[block] = self._length
        if block != FIRST or part.phase:
            part = parts.Text(part.text, logprobs=part.logprobs)
        super().text(part)

    def refusal(self, part: parts.Refusal) -> None:
        """Add words to the refusal of the message."""
        super().refusal(part if (part.key, part.part) == FIRST else parts.Refusal(part.text))

    def annotation(self, part: parts.Annotation) -> None:
        """Add a note, at its place in the one text."""
        start, note = self._starts.get((part.key, part.part), 0), part.annotation
        if start and isinstance(note, UrlCitation):
            place = {"start_index": note.start_index + start, "end_index": note.end_index + start}
            note = replace(note, **place)
        super().annotation(parts.Annotation(note))

    @property
    def _refusing(self) -> bool:
        strand = self._message.strand if self._message else None
        return strand is not None and strand.face is not TEXT

    @property
    def _length(self) -> int:
        strand = self._message.strand if self._message else None
        return sum(map(len, strand.pieces)) if strand and strand.face is TEXT else 0

    def _whole_message(self, message: Message, key: Key) -> None:
        for index, piece in enumerate(message.content):
            if isinstance(piece, content.Refusal):
                self.refusal(parts.Refusal(piece.refusal, key, index))
                continue
            written = isinstance(piece, content.OutputText)
            logprobs = (piece.logprobs or None) if written else None
            self.text(parts.Text(content.text_of(piece), key, index, logprobs))
            for note in piece.annotations if written else []:
                self.annotation(parts.Annotation(note, key, index))

    # --- the message ---

    def _sequential(self, kind: Kind, key: Key, phase: Phase | None = None) -> Open:
        message = self._message
        if kind != "message" or message is None:
            return super()._sequential(kind, key, phase)
        if self._current is not message:
            self._yield_to_next()
        self._current = self._touched = message
        return message

    def _open(self, kind: Kind, key: Key, item: Item) -> Open:
        if self._message is None:
            id = self._ids(PREFIX["message"])
            empty = Message(id=id, status="in_progress", role="assistant", content=[])
            first = super()._open("message", 0, item if isinstance(item, Message) else empty)
            self._message = self._undone.pop()
            if isinstance(item, Message):
                return first
        return super()._open(kind, key, item)

    def _seal(self, item: Open) -> None:
        if item is self._message:
            self._current = None
        else:
            super()._seal(item)

    def close(self, status: Status) -> None:
        """Close every item, the message first."""
        if self._message:
            self._undone.insert(0, self._message)
            self._message = None
        super().close(status)
