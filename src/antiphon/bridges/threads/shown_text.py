"""A message or reasoning item whose source shows its whole text, again and again or at its end."""

from collections.abc import Iterator

from antiphon.protocol import parts
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.parts import ItemState, Key, Part

TEXT_REPLACED = parts.Warn(
    "text_replaced", "A text that had been sent was replaced; the new one follows it as another content part."
)


class ShownText:
    """A message or reasoning item as far as it was sent."""

    def __init__(self, item: Message | Reasoning, key: Key) -> None:
        self._item = item
        self._key = key
        self._part_class = parts.Text if isinstance(item, Message) else parts.Reasoning
        self._pieces: list[str] = []
        """The text that was sent of the content part."""
        self._part = 0
        self.begun = False

    def extend(self, delta: str) -> Iterator[Part]:
        """Yield the parts that add to the text, and open the item if it is new."""
        if not self.begun:
            self.begun = True
            yield ItemState(self._item, self._key)
        if delta:
            self._pieces.append(delta)
            yield self._part_class(delta, self._key, self._part)

    def show(self, text: str) -> Iterator[Part]:
        """Yield the parts that lead from the text that was sent to another."""
        sent = "".join(self._pieces)
        if text.startswith(sent):
            self._pieces = [sent]
            yield from self.extend(text[len(sent) :])
        # Many agents trim a text at its end, and some leave it out of the last state.
        elif text and text.rstrip() != sent.rstrip():
            # What was sent cannot be taken back, and the deltas of a part have to add up to its text.
            yield TEXT_REPLACED
            self._part += 1
            self._pieces = []
            yield from self.extend(text)

    def end(self) -> Part:
        """Return the part that finishes the item."""
        return ItemState(self._item, self._key, complete=True)
