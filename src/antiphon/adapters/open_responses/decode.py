"""An Open Responses stream, heard: another server's events in, parts out.

Its ids, indexes and numbers are its own affair; ours are made anew. `told.py` sees to it
that everything is told exactly once, `judge.py` notices when a server breaks the rules:
with `strict` the first broken rule is a failure, otherwise there is one warning.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, cast

from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    Adapter,
    Decoder,
    JsonReader,
)
from antiphon.adapters.errors import TRUNCATED, ErrorInfo, parse_error
from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    as_string,
    omit,
)
from antiphon.adapters.open_responses.item_tracker import ItemTracker
from antiphon.adapters.open_responses.item_values import parse_object
from antiphon.adapters.open_responses.stream_checker import DeltaFields, ForeignStreamChecker
from antiphon.adapters.open_responses.tracked_item import TextKind
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import is_extension_type
from antiphon.wire import sse

TEXT_EVENTS: dict[str, TextKind] = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning": "raw",
    "response.reasoning_text": "raw",
    "response.reasoning_content": "raw",
    "response.reasoning_summary_text": "summary",
    "response.function_call_arguments": "arguments",
}
DELTA_EVENTS: dict[str, TextKind] = {f"{name}.delta": face for name, face in TEXT_EVENTS.items()}
DONE_EVENTS: dict[str, TextKind] = {f"{name}.done": face for name, face in TEXT_EVENTS.items()}

REASONS: Mapping[str, parts.Reason] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "cancelled",
}
TERMINAL_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})
read_delta = JsonReader(DeltaFields)


class OpenResponsesDecoder(Decoder):
    """Hears one answer of an Open Responses server."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, sse.Decoder(MAX_EVENT_BYTES))
        self._tracker = ItemTracker()
        self._checker = ForeignStreamChecker()
        self._strict = adapter.provider.strict
        self._error: ErrorInfo | None = None

    # --- bytes ---

    def truncation_parts(self) -> Iterable[Part]:
        """Tell an end that came too early; it may have been announced by an `error`."""
        return [*self._tracker.flush(), self.adapter.failure_part(self._error or TRUNCATED)]

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Hear one event."""
        event = cast("sse.SseEvent", chunk)
        data = event.data
        if data == sse.DONE:  # an end that nothing led up to
            return self.truncation_parts()
        delta = read_delta(data)
        type = delta.type or event.event
        face = DELTA_EVENTS.get(type)
        if face is None:
            return self._read_event(type, data)
        text = delta.delta
        if not isinstance(text, str):
            return ()
        self._checker.delta(delta)
        if self._strict and self._checker.problems:
            return (self._protocol_error(),)
        return self._tracker.feed_delta(face, delta, text)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Hear a response in one piece."""
        response = parse_object(body)
        if response.get("object") != "response" and "output" not in response:
            fault = parse_error(response)
            if fault == ErrorInfo():
                raise ValueError("it is no response")
            return (self.adapter.failure_part(fault),)
        status = as_string(response.get("status")) or "completed"
        if status in TERMINAL_STATUSES - {
            "failed"
        }:  # what has failed says why, whatever its manners
            self._checker.whole(response)
        if self._strict and self._checker.problems:
            return (self._protocol_error(),)
        return self._finish(status, response)

    # --- events ---

    def _read_event(self, type: str, data: bytes) -> Iterable[Part]:
        raw = parse_object(data)
        if raw.get("error") and not (raw.get("type") or type.startswith("response.")):
            return self._read_error(raw)  # what has failed says why, whatever its manners
        self._checker.event(type, raw)
        if self._strict and self._checker.problems:
            return (self._protocol_error(),)
        if face := DONE_EVENTS.get(type):
            return self._tracker.feed_text(face, raw, raw)
        if step := self.STEPS.get(type):
            return step(self._tracker, raw)
        return self._read_response_event(type, raw)

    def _read_response_event(self, type: str, raw: JsonObject) -> Iterable[Part]:
        """Hear an event that is about no item."""
        if type == "error":
            return self._read_error(raw)
        status = type.removeprefix("response.")
        if status in TERMINAL_STATUSES and status != type:
            response = as_object(raw.get("response"))
            said = as_string(response.get("status"))
            self.done = True  # all is said in it, and not every server closes what it has ended
            return self._finish(said if said in TERMINAL_STATUSES else status, response)
        if is_extension_type(type):
            return (parts.Extension(type, omit(raw, ["type", "sequence_number"])),)
        return ()

    def _read_error(self, raw: JsonObject) -> Iterable[Part]:
        self._error = read_error(raw)
        return ()  # "will be followed by a response.failed event", with all there was

    STEPS: ClassVar[Mapping[str, Callable[[ItemTracker, JsonObject], Iterable[Part]]]] = {
        "response.output_item.added": ItemTracker.item_added,
        "response.output_item.done": ItemTracker.item_done,
        "response.content_part.added": ItemTracker.feed_part,
        "response.content_part.done": ItemTracker.feed_part,
        "response.reasoning_summary_part.added": ItemTracker.feed_part,
        "response.reasoning_summary_part.done": ItemTracker.feed_part,
        "response.output_text.annotation.added": ItemTracker.feed_annotation,
    }

    # --- the end ---

    def _finish(self, status: str, response: JsonObject) -> list[Part]:
        told = self._tracker.finish(response.get("output"), cut=status == "incomplete")
        told += read_warnings(response)
        if usage := read_usage(response):
            told.append(usage)
        if self._checker.problems:
            who = self.adapter.provider.name
            message = (
                f"{who} broke rules of the protocol, and was mended: {self._checker.summary()}"
            )
            told.append(parts.Warn("upstream_protocol", message))
        told.append(self._last_part(status, response))
        return told

    def _last_part(self, status: str, response: JsonObject) -> Part:
        if status == "failed":
            fault = read_error(as_object(response.get("error")))
            return self.adapter.failure_part(fault if fault.message else self._error or fault)
        if status not in TERMINAL_STATUSES:
            return self.adapter.failure_part(ErrorInfo(f"sent a response that is still {status}."))
        reason = as_string(as_object(response.get("incomplete_details")).get("reason"))
        raw = reason or status if status == "incomplete" else status
        if status == "completed":
            return parts.Finish("tool_calls" if self._tracker.has_calls else "stop", raw)
        return parts.Finish(REASONS.get(raw, "length"), raw)

    def _protocol_error(self) -> parts.Failure:
        words = f"broke a rule of the protocol: {self._checker.problems[0]}"
        return self.adapter.failure_part(ErrorInfo(words, "model_error", "upstream_protocol"))


def read_error(raw: JsonObject) -> ErrorInfo:
    """Read an error that is nested in an event, or flat beside the event's own type."""
    nested = as_object(raw.get("error"))
    return parse_error(nested or {name: raw[name] for name in raw if raw[name] != "error"})


def read_usage(response: JsonObject) -> parts.Usage | None:
    """Read how many tokens a response took."""
    usage = as_object(response.get("usage"))
    cached = as_object(usage.get("input_tokens_details")).get("cached_tokens")
    thought = as_object(usage.get("output_tokens_details")).get("reasoning_tokens")
    counts = (usage.get("input_tokens"), usage.get("output_tokens"), cached, thought)
    return parts.Usage(*(n if isinstance(n, int) else None for n in counts)) if usage else None


def read_warnings(response: JsonObject) -> list[parts.Warn]:
    """Read what another Antiphon had to say."""
    entries = map(as_object, as_array(response.get("antiphon:warnings")))
    return [
        parts.Warn(
            as_string(raw.get("code")),
            as_string(raw.get("message")),
            as_string(raw.get("param")) or None,
        )
        for raw in entries
    ]
