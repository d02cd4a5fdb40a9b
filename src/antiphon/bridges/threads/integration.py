"""The object by which an agent offers its thread events as responses, with the switches of its configuration."""

from antiphon.bridges.threads.builder import Emitter, ResponseBuilder
from antiphon.bridges.threads.config import OpenResponsesConfig
from antiphon.bridges.threads.events import ThreadEvent
from antiphon.bridges.threads.normalized import NormalizedEvent
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response


class OpenResponsesIntegration:
    """Turns the events of an agent into responses, one after the other; does nothing unless it is enabled."""

    def __init__(self, config: OpenResponsesConfig = OpenResponsesConfig()) -> None:  # noqa: B008 - it is frozen
        self._config = config
        self._callback: Emitter | None = None
        self._events: list[Event] = []
        self._builder: ResponseBuilder | None = None

    @property
    def enabled(self) -> bool:
        """Whether there will be responses."""
        return self._config.enabled

    def set_callback(self, callback: Emitter) -> None:
        """Hand each event to a function, and not to `take_events`."""
        self._callback = callback

    def start_response(self, model: str) -> None:
        """Begin a response, and finish the one before it."""
        self.finish_response()
        if self._config.enabled:
            self._builder = ResponseBuilder(model, self._config)

    def process_event(self, event: ThreadEvent) -> None:
        """Add a thread event to the response."""
        if self._builder:
            self._builder.process_event(event, self._emit)

    def process_normalized_event(self, event: NormalizedEvent) -> None:
        """Add an event of a normalised provider stream to the response."""
        if self._builder:
            self._builder.process_normalized_event(event, self._emit)

    def current_response(self) -> Response | None:
        """Return the response as far as it is known; None if there is none."""
        return self._builder.response() if self._builder else None

    def finish_response(self) -> Response | None:
        """End the response and return it; None if there is none."""
        builder, self._builder = self._builder, None
        return builder.finish(self._emit) if builder else None

    def take_events(self) -> list[Event]:
        """Return the events since the last call, unless a callback has got them."""
        taken, self._events = self._events, []
        return taken

    def _emit(self, event: Event) -> None:
        if not self._config.emit_events:
            return
        if self._callback:
            self._callback(event)
        else:
            self._events.append(event)
