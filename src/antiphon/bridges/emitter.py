"""Events made by hand, one call each: the Python form of VT Code's `StreamEventEmitter`.

For those who build events themselves: the emitter numbers them and does nothing else. The normal
way is to give parts to the synthesizer (`core.synth`), which opens and closes everything by itself.
"""

from abc import ABC, abstractmethod
from itertools import count

from antiphon.protocol import events
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response


class Emitter(ABC):
    """Makes events and numbers them; where they go is for a subclass to say."""

    def __init__(self) -> None:
        self._numbers = count()

    @abstractmethod
    def emit(self, event: Event) -> None:
        """Take an event."""

    def next_number(self) -> int:
        """Return the next event's place in the stream, for an event that has no call here."""
        return next(self._numbers)

    def response_created(self, response: Response) -> None:
        """Say that the response exists."""
        self.emit(events.ResponseCreated(sequence_number=self.next_number(), response=response))

    def response_in_progress(self, response: Response) -> None:
        """Say that the response is being made."""
        self.emit(events.ResponseInProgress(sequence_number=self.next_number(), response=response))

    def response_completed(self, response: Response) -> None:
        """Say that the response is whole."""
        self.emit(events.ResponseCompleted(sequence_number=self.next_number(), response=response))

    def response_failed(self, response: Response) -> None:
        """Say that the response broke."""
        self.emit(events.ResponseFailed(sequence_number=self.next_number(), response=response))

    def output_item_added(self, output_index: int, item: Item) -> None:
        """Say that an item has begun."""
        number = self.next_number()
        self.emit(
            events.OutputItemAdded(sequence_number=number, output_index=output_index, item=item)
        )

    def output_item_done(self, output_index: int, item: Item) -> None:
        """Say that an item is whole, or will never be."""
        number = self.next_number()
        self.emit(
            events.OutputItemDone(sequence_number=number, output_index=output_index, item=item)
        )

    def output_text_delta(
        self, item_id: str, output_index: int, content_index: int, delta: str
    ) -> None:
        """Give more text."""
        self.emit(
            events.OutputTextDelta(
                sequence_number=self.next_number(),
                item_id=item_id,
                output_index=output_index,
                content_index=content_index,
                delta=delta,
            )
        )

    def reasoning_delta(
        self, item_id: str, output_index: int, content_index: int, delta: str
    ) -> None:
        """Give more raw reasoning."""
        self.emit(
            events.ReasoningDelta(
                sequence_number=self.next_number(),
                item_id=item_id,
                output_index=output_index,
                content_index=content_index,
                delta=delta,
            )
        )


class CollectingEmitter(Emitter):
    """An emitter that keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
