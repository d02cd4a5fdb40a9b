"""A response that is made outside of the engine: a bridge's parts in, events out.

A bridge that translates another event model owns one `BridgeStream` per response. It feeds parts; ids, indexes,
sequence numbers, lifecycle events and the final response come from the synthesizer.
"""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import DEFAULT_OPTIONS, SynthOptions
from antiphon.store.ids import new_id


class LogConverter(Protocol):
    """Converts a log of another event model, line by line; `antiphon convert` runs it."""

    def feed(self, line: bytes) -> list[Event]:
        """Return the events that one line causes; raises JSONError or InvalidValueError."""
        ...

    def end(self) -> list[Event]:
        """End the response, if the log has not: it has no more lines."""
        ...

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        ...

    @property
    def next_input(self) -> list[Item]:
        """The items that the next request repeats or adds: the output, and results of tools that are no output."""
        ...


METADATA = (parts.Usage, parts.Warn, parts.Finish)
"""The parts that cause no event of their own."""


class BridgeStream:
    """One response: announced before its first output, and deaf after its end."""

    def __init__(
        self,
        model: str = "",
        *,
        ids: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.time,
        options: SynthOptions = DEFAULT_OPTIONS,
        queued: bool = False,
    ) -> None:
        status = "queued" if queued else "in_progress"
        self._initial = Response(id=ids("resp"), created_at=int(clock()), model=model, status=status)
        # Another event model may have a run without output, which must not become an empty message.
        self._synth = Synth(self._initial, ids=ids, clock=clock, options=options, allow_no_output=True)
        self._in_progress = False

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._synth.response if self._synth.started else self._initial

    @property
    def ended(self) -> bool:
        """Whether the response has ended: nothing changes it any more."""
        return self._synth.ended

    def create(self) -> list[Event]:
        """Emit `created`, and `queued` if the response is; nothing if that has happened."""
        return [] if self._synth.started else self._synth.create()

    def start(self) -> list[Event]:
        """Emit what is missing up to `in_progress`."""
        events = self.create()
        if not (self._in_progress or self.ended):
            self._in_progress = True
            events += self._synth.mark_in_progress()
        return events

    def feed(self, *batch: Part) -> list[Event]:
        """Return the events that some parts cause; nothing after the end."""
        return self.feed_all(batch)

    def feed_all(self, batch: Iterable[Part]) -> list[Event]:
        """Return the events that some parts cause; nothing after the end."""
        synth, events = self._synth, list[Event]()
        for part in batch:
            if synth.ended:
                break
            if not isinstance(part, METADATA):
                events += self.start()
            try:
                events += synth.feed(part)
            except UpstreamError as error:  # the output exceeds a limit; what has arrived is kept
                events += synth.fail(error.payload)
        return events

    def end(self) -> list[Event]:
        """Close every item and emit the terminal event that the parts call for; nothing after the end."""
        return [] if self.ended else self.start() + self._synth.end()

    def fail(self, error: ErrorPayload) -> list[Event]:
        """Close every item and emit `failed`; nothing after the end."""
        return [] if self.ended else self.start() + self._synth.fail(error)
