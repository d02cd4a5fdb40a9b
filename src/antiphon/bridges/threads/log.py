"""A log of thread events as one response, line by line."""

from antiphon.bridges.threads.builder import ResponseBuilder
from antiphon.bridges.threads.read import read_line
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response


class ThreadLogConverter:
    """Converts the lines of a log, which may have several turns."""

    def __init__(self, builder: ResponseBuilder | None = None) -> None:
        # A log does not name its model.
        self._builder = builder or ResponseBuilder("", whole_thread=True)

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._builder.response()

    @property
    def next_input(self) -> list[Item]:
        """The output, which includes the results of tools."""
        return self.response.output

    def feed(self, line: bytes) -> list[Event]:
        """Return the events that one line causes; raises JSONError or InvalidValueError."""
        events: list[Event] = []
        self._builder.process_event(read_line(line), events.append)
        return events

    def end(self) -> list[Event]:
        """End the response as its last turn has ended."""
        events: list[Event] = []
        self._builder.finish(events.append)
        return events
