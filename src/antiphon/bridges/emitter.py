"""Builds events one call at a time: the Python form of VT Code's `StreamEventEmitter`.

For code that builds events itself; the emitter only numbers them. Usually, feed parts to the
synthesizer (`protocol.synth`), which opens and closes items by itself.
"""

from abc import ABC, abstractmethod
from itertools import count

from antiphon.protocol import events
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response


class Emitter(ABC):
    """Builds and numbers events; a subclass decides where they go."""

    def __init__(self) -> None:
        # The specification numbers the events of a stream from 0, without gaps.
        self._numbers = count()

    @abstractmethod
    def emit(self, event: Event) -> None:
        """Take an event."""

    def next_number(self) -> int:
        """Return the next sequence number, for an event that has no method here."""
        return next(self._numbers)

    def response_created(self, response: Response) -> None:
        """Emit `response.created`."""
        self.emit(events.ResponseCreated(sequence_number=self.next_number(), response=response))

    def response_in_progress(self, response: Response) -> None:
        """Emit `response.in_progress`."""
        self.emit(events.ResponseInProgress(sequence_number=self.next_number(), response=response))

    def response_completed(self, response: Response) -> None:
        """Emit `response.completed`."""
        self.emit(events.ResponseCompleted(sequence_number=self.next_number(), response=response))

    def response_failed(self, response: Response) -> None:
        """Emit `response.failed`."""
        self.emit(events.ResponseFailed(sequence_number=self.next_number(), response=response))

    def output_item_added(self, output_index: int, item: Item) -> None:
        """Emit `response.output_item.added`."""
        number = self.next_number()
        self.emit(events.OutputItemAdded(sequence_number=number, output_index=output_index, item=item))

    def output_item_done(self, output_index: int, item: Item) -> None:
        """Emit `response.output_item.done`."""
        number = self.next_number()
        self.emit(events.OutputItemDone(sequence_number=number, output_index=output_index, item=item))

    def output_text_delta(self, item_id: str, output_index: int, content_index: int, delta: str) -> None:
        """Emit `response.output_text.delta`."""
        self.emit(
            events.OutputTextDelta(
                sequence_number=self.next_number(),
                item_id=item_id,
                output_index=output_index,
                content_index=content_index,
                delta=delta,
            )
        )

    def reasoning_delta(self, item_id: str, output_index: int, content_index: int, delta: str) -> None:
        """Emit `response.reasoning.delta`."""
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
    """Collects its events in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)
