"""The items of a response that says everything in one message.

Some clients know one text per answer. For them the message comes first, whatever else does, and so
has index 0; all words go to its first text, wherever they come between other items; and it is open
to the end. Other items end when they would anyway, and do not wait for it: that is the one rule of
the rulebook (`done-in-order`) which such a stream does not keep.
"""

from collections.abc import Callable

from msgspec.structs import replace

from antiphon.protocol import content, parts
from antiphon.protocol.content import UrlCitation
from antiphon.protocol.fast_text import EventEmitter, ItemKind, OpenItem
from antiphon.protocol.items import (
    Item,
    ItemStatus,
    Message,
    Phase,
)
from antiphon.protocol.parts import Key
from antiphon.protocol.synth_items import ID_PREFIXES, ItemSynth, SynthOptions
from antiphon.protocol.text_kinds import OUTPUT_TEXT

SourceText = tuple[Key, int]
"""A piece of text as its source knows it: its key and its part."""

FIRST_SOURCE_TEXT: SourceText = (0, 0)


class SingleMessageSynth(ItemSynth):
    """Everything such a response's items are made through."""

    def __init__(
        self, emitter: EventEmitter, ids: Callable[[str], str], options: SynthOptions
    ) -> None:
        super().__init__(emitter, ids, options)
        self._message: OpenItem | None = None
        self._text_offsets: dict[SourceText, int] = {}
        """Where in the one text each of the source's own begins."""

    # --- words ---

    def add_text(self, part: parts.Text) -> None:
        """Add words to the message; a delta without any begins nothing but the first text."""
        if not (part.text or part.logprobs) and self._is_refusing:
            return
        block = (part.key, part.part)
        if block not in self._text_offsets:
            self._text_offsets[block] = self._text_length
        if block != FIRST_SOURCE_TEXT or part.phase:
            part = parts.Text(part.text, logprobs=part.logprobs)
        super().add_text(part)

    def add_refusal(self, part: parts.Refusal) -> None:
        """Add words to the refusal of the message."""
        super().add_refusal(
            part if (part.key, part.part) == FIRST_SOURCE_TEXT else parts.Refusal(part.text)
        )

    def add_annotation(self, part: parts.Annotation) -> None:
        """Add a note, at its place in the one text."""
        start, note = self._text_offsets.get((part.key, part.part), 0), part.annotation
        if start and isinstance(note, UrlCitation):
            place = {"start_index": note.start_index + start, "end_index": note.end_index + start}
            note = replace(note, **place)
        super().add_annotation(parts.Annotation(note))

    @property
    def _is_refusing(self) -> bool:
        strand = self._message.strand if self._message else None
        return strand is not None and strand.kind is not OUTPUT_TEXT

    @property
    def _text_length(self) -> int:
        strand = self._message.strand if self._message else None
        return sum(map(len, strand.pieces)) if strand and strand.kind is OUTPUT_TEXT else 0

    def _add_whole_message(self, message: Message, key: Key) -> None:
        for index, piece in enumerate(message.content):
            if isinstance(piece, content.RefusalContent):
                self.add_refusal(parts.Refusal(piece.refusal, key, index))
                continue
            written = isinstance(piece, content.OutputText)
            logprobs = (piece.logprobs or None) if written else None
            self.add_text(parts.Text(content.content_text(piece), key, index, logprobs))
            for note in piece.annotations if written else []:
                self.add_annotation(parts.Annotation(note, key, index))

    # --- the message ---

    def _ensure_item(self, kind: ItemKind, key: Key, phase: Phase | None = None) -> OpenItem:
        message = self._message
        if kind != "message" or message is None:
            return super()._ensure_item(kind, key, phase)
        if self._current_item is not message:
            self._finish_growing()
        self._current_item = self._last_grown = message
        return message

    def _open_item(self, kind: ItemKind, key: Key, item: Item) -> OpenItem:
        if self._message is None:
            id = self._new_id(ID_PREFIXES["message"])
            empty = Message(id=id, status="in_progress", role="assistant", content=[])
            first = super()._open_item("message", 0, item if isinstance(item, Message) else empty)
            self._message = self._unclosed.pop()
            if isinstance(item, Message):
                return first
        return super()._open_item(kind, key, item)

    def _finish_item(self, item: OpenItem) -> None:
        if item is self._message:
            self._current_item = None
        else:
            super()._finish_item(item)

    def close_all(self, status: ItemStatus) -> None:
        """Close every item, the message first."""
        if self._message:
            self._unclosed.insert(0, self._message)
            self._message = None
        super().close_all(status)
