"""Builds a response from thread events, and hands its events to an emitter."""

from collections.abc import Callable, Iterable
from typing import BinaryIO

from antiphon.bridges.stream import BridgeStream
from antiphon.bridges.threads.config import EVERYTHING, OpenResponsesConfig
from antiphon.bridges.threads.events import ThreadCompleted, ThreadEvent, TurnStarted
from antiphon.bridges.threads.normalized import NormalizedEvent, NormalizedTranslator
from antiphon.bridges.threads.translate import ThreadTranslator, thread_outcome
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.wire import sse
from antiphon.wire.openresponses import Dialect

Emitter = Callable[[Event], object]
"""Any function of an event: `list.append` collects events, and an `SseWriter` writes them."""

TURN_CUT = parts.Failure(
    ErrorPayload(message="The thread stopped before its turn had ended.", type="model_error", code="upstream_cut")
)


class SseWriter:
    """An emitter that writes Server-Sent Events to a binary file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._dialect = Dialect()
        self._closed = False

    def __call__(self, event: Event) -> None:
        """Write one event."""
        self._file.write(self._dialect.encode_sse(event))

    def close(self) -> None:
        """Write `[DONE]`, once; the file stays open."""
        if not self._closed:
            self._closed = True
            self._file.write(sse.DONE_FRAME)


class ResponseBuilder:
    """Builds one response, which ends with the first turn or, for a `whole_thread`, when it is finished."""

    def __init__(
        self,
        model: str,
        config: OpenResponsesConfig = EVERYTHING,
        *,
        whole_thread: bool = False,
        stream: BridgeStream | None = None,
    ) -> None:
        self._stream = stream or BridgeStream(model)
        self._thread = ThreadTranslator(config)
        self._normalized = NormalizedTranslator(config)
        self._whole_thread = whole_thread
        self._end: parts.Finish | parts.Failure = TURN_CUT
        """How the response ends, as far as is known."""

    def response(self) -> Response:
        """Return the response as far as it is known."""
        return self._stream.response

    def process_event(self, event: ThreadEvent, emitter: Emitter) -> None:
        """Emit what a thread event causes: nothing after the end of the response."""
        if isinstance(event, TurnStarted):
            self._end = TURN_CUT
        elif isinstance(event, ThreadCompleted) and self._end is TURN_CUT:
            self._end = thread_outcome(event)
        self._process(self._thread.translate(event), emitter)

    def process_normalized_event(self, event: NormalizedEvent, emitter: Emitter) -> None:
        """Emit what an event of a normalised provider stream causes: nothing after the end of the response."""
        self._process(self._normalized.translate(event), emitter)

    def finish(self, emitter: Emitter) -> Response:
        """End the response if it has not ended, as a failure unless its turn or thread has; return it."""
        emit_all(self._stream.feed(self._end), emitter)
        emit_all(self._stream.end(), emitter)
        return self._stream.response

    def _process(self, translated: Iterable[Part], emitter: Emitter) -> None:
        if self._stream.ended:
            return
        emit_all(self._stream.start(), emitter)
        for part in translated:
            if not isinstance(part, parts.Finish | parts.Failure):
                emit_all(self._stream.feed(part), emitter)
                continue
            self._end = part
            if not self._whole_thread:
                self.finish(emitter)


def emit_all(events: Iterable[Event], emitter: Emitter) -> None:
    """Hand events to an emitter."""
    for event in events:
        emitter(event)
