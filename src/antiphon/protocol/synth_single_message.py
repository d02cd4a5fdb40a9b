"""The items of a response whose whole text is one message.

Some clients (Hashbrown's) show one text per answer. For them the message is always the first item;
all text goes to its first part, even text between other items; and it stays open to the end. Other
items are done as usual and do not wait for it, so such a stream breaks the rule `done-in-order`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from antiphon.protocol import content, parts
from antiphon.protocol.content import UrlCitation
from antiphon.protocol.fast_text import EventEmitter
from antiphon.protocol.items import Item, ItemStatus, Message, Phase
from antiphon.protocol.parts import Key
from antiphon.protocol.synth_items import ID_PREFIXES, ItemKind, ItemSynth, OpenItem, SynthOptions
from antiphon.protocol.text_kinds import OUTPUT_TEXT

SourceText = tuple[Key, int]
"""A text as its source identifies it: its key and its part."""

FIRST_SOURCE_TEXT: SourceText = (0, 0)


class SingleMessageSynth(ItemSynth):
    """An item synthesizer that puts all text into one message."""

    def __init__(
        self, emitter: EventEmitter, ids: Callable[[str], str], options: SynthOptions
    ) -> None:
        super().__init__(emitter, ids, options)
        self._message: OpenItem | None = None
        self._text_offsets: dict[SourceText, int] = {}
        """The offset of each source text within the one text."""

    def add_text(self, part: parts.Text) -> None:
        """Add text to the message; an empty delta never ends a refusal."""
        # Hashbrown gets empty deltas too; one of them must not close an open refusal.
        if not (part.text or part.logprobs) and self._is_refusing:
            return
        source_text = (part.key, part.part)
        if source_text not in self._text_offsets:
            self._text_offsets[source_text] = self._text_length
        if source_text != FIRST_SOURCE_TEXT or part.phase:
            part = parts.Text(part.text, logprobs=part.logprobs)
        super().add_text(part)

    def add_refusal(self, part: parts.Refusal) -> None:
        """Add text to the refusal of the message."""
        super().add_refusal(
            part if (part.key, part.part) == FIRST_SOURCE_TEXT else parts.Refusal(part.text)
        )

    def add_annotation(self, part: parts.Annotation) -> None:
        """Add an annotation, with its indexes shifted to the one text."""
        offset = self._text_offsets.get((part.key, part.part), 0)
        annotation = part.annotation
        if offset and isinstance(annotation, UrlCitation):
            annotation = replace(
                annotation,
                start_index=annotation.start_index + offset,
                end_index=annotation.end_index + offset,
            )
        super().add_annotation(parts.Annotation(annotation))

    @property
    def _is_refusing(self) -> bool:
        open_text = self._message.open_text if self._message else None
        return open_text is not None and open_text.kind is not OUTPUT_TEXT

    @property
    def _text_length(self) -> int:
        open_text = self._message.open_text if self._message else None
        if open_text is None or open_text.kind is not OUTPUT_TEXT:
            return 0
        # Summed, not joined: the text is not built while it is streamed.
        return sum(map(len, open_text.pieces))

    def _add_whole_message(self, message: Message, key: Key) -> None:
        for index, piece in enumerate(message.content):
            if isinstance(piece, content.RefusalContent):
                self.add_refusal(parts.Refusal(piece.refusal, key, index))
                continue
            is_text = isinstance(piece, content.OutputText)
            logprobs = (piece.logprobs or None) if is_text else None
            self.add_text(parts.Text(content.content_text(piece), key, index, logprobs))
            for annotation in piece.annotations if is_text else []:
                self.add_annotation(parts.Annotation(annotation, key, index))

    def _ensure_item(self, kind: ItemKind, key: Key, phase: Phase | None = None) -> OpenItem:
        message = self._message
        if kind != "message" or message is None:
            return super()._ensure_item(kind, key, phase)
        # Text ends reasoning and whole calls, as it does where each has a message of its own.
        if self._current_item is not message:
            self._finish_growing()
        self._current_item = self._last_grown = message
        return message

    def _open_item(self, kind: ItemKind, key: Key, item: Item) -> OpenItem:
        if self._message is None:
            id = self._new_id(ID_PREFIXES["message"])
            empty = Message(id=id, status="in_progress", role="assistant", content=[])
            first = super()._open_item("message", 0, item if isinstance(item, Message) else empty)
            # Kept out of the queue, so that no other item waits for it.
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
