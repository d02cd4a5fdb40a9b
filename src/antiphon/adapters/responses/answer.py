"""An Open Responses stream, heard: another server's events in, parts out.

Its ids, indexes and numbers are its own affair; ours are made anew. `told.py` sees to it
that everything is told exactly once, `judge.py` notices when a server breaks the rules:
with `strict` the first broken rule is a failure, otherwise there is one warning.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, cast

from antiphon.adapters.base import MAX_EVENT, Adapter, Decoder, Reader
from antiphon.adapters.faults import CUT, Fault, fault_in
from antiphon.adapters.fields import Fields, fields_of, list_of, string, without
from antiphon.adapters.responses.heard import Face
from antiphon.adapters.responses.items import decoded
from antiphon.adapters.responses.judge import Delta, Judge
from antiphon.adapters.responses.told import Told
from antiphon.core import parts
from antiphon.core.parts import Part
from antiphon.core.value import is_extension_type
from antiphon.wire import sse

STREAMS: dict[str, Face] = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning": "raw",
    "response.reasoning_text": "raw",
    "response.reasoning_content": "raw",
    "response.reasoning_summary_text": "summary",
    "response.function_call_arguments": "arguments",
}
DELTAS: dict[str, Face] = {f"{name}.delta": face for name, face in STREAMS.items()}
DONES: dict[str, Face] = {f"{name}.done": face for name, face in STREAMS.items()}

REASONS: Mapping[str, parts.Reason] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "cancelled",
}
ENDINGS = frozenset({"completed", "incomplete", "failed", "cancelled"})
read_delta = Reader(Delta)


class ResponsesDecoder(Decoder):
    """Hears one answer of an Open Responses server."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, sse.Decoder(MAX_EVENT))
        self._told = Told()
        self._judge = Judge()
        self._strict = adapter.provider.strict
        self._fault: Fault | None = None

    # --- bytes ---

    def cut(self) -> Iterable[Part]:
        """Tell an end that came too early; it may have been announced by an `error`."""
        return [*self._told.flush(), self.adapter.failure(self._fault or CUT)]

    def read(self, chunk: object) -> Iterable[Part]:
        """Hear one event."""
        event = cast("sse.Event", chunk)
        data = event.data
        if data == sse.DONE:  # an end that nothing led up to
            return self.cut()
        delta = read_delta(data)
        type = delta.type or event.event
        face = DELTAS.get(type)
        if face is None:
            return self._event(type, data)
        text = delta.delta
        if not isinstance(text, str):
            return ()
        self._judge.delta(delta)
        if self._strict and self._judge.problems:
            return (self._illegal(),)
        return self._told.delta(face, delta, text)

    def read_whole(self, body: bytes) -> Iterable[Part]:
        """Hear a response in one piece."""
        response = decoded(body)
        if response.get("object") != "response" and "output" not in response:
            fault = fault_in(response)
            if fault == Fault():
                raise ValueError("it is no response")
            return (self.adapter.failure(fault),)
        status = string(response.get("status")) or "completed"
        if status in ENDINGS - {"failed"}:  # what has failed says why, whatever its manners
            self._judge.whole(response)
        if self._strict and self._judge.problems:
            return (self._illegal(),)
        return self._end(status, response)

    # --- events ---

    def _event(self, type: str, data: bytes) -> Iterable[Part]:
        raw = decoded(data)
        if raw.get("error") and not (raw.get("type") or type.startswith("response.")):
            return self._erred(raw)  # what has failed says why, whatever its manners
        self._judge.event(type, raw)
        if self._strict and self._judge.problems:
            return (self._illegal(),)
        if face := DONES.get(type):
            return self._told.text(face, raw, raw)
        if step := self.STEPS.get(type):
            return step(self._told, raw)
        return self._stray(type, raw)

    def _stray(self, type: str, raw: Fields) -> Iterable[Part]:
        """Hear an event that is about no item."""
        if type == "error":
            return self._erred(raw)
        status = type.removeprefix("response.")
        if status in ENDINGS and status != type:
            response = fields_of(raw.get("response"))
            said = string(response.get("status"))
            self.done = True  # all is said in it, and not every server closes what it has ended
            return self._end(said if said in ENDINGS else status, response)
        if is_extension_type(type):
            return (parts.Extension(type, without(raw, ["type", "sequence_number"])),)
        return ()

    def _erred(self, raw: Fields) -> Iterable[Part]:
        self._fault = error_in(raw)
        return ()  # "will be followed by a response.failed event", with all there was

    STEPS: ClassVar[Mapping[str, Callable[[Told, Fields], Iterable[Part]]]] = {
        "response.output_item.added": Told.added,
        "response.output_item.done": Told.done,
        "response.content_part.added": Told.part,
        "response.content_part.done": Told.part,
        "response.reasoning_summary_part.added": Told.part,
        "response.reasoning_summary_part.done": Told.part,
        "response.output_text.annotation.added": Told.annotation,
    }

    # --- the end ---

    def _end(self, status: str, response: Fields) -> list[Part]:
        told = self._told.finish(response.get("output"), cut=status == "incomplete")
        told += warnings_in(response)
        if usage := usage_in(response):
            told.append(usage)
        if self._judge.problems:
            who = self.adapter.provider.name
            message = f"{who} broke rules of the protocol, and was mended: {self._judge.verdict()}"
            told.append(parts.Warn("upstream_protocol", message))
        told.append(self._last(status, response))
        return told

    def _last(self, status: str, response: Fields) -> Part:
        if status == "failed":
            fault = error_in(fields_of(response.get("error")))
            return self.adapter.failure(fault if fault.message else self._fault or fault)
        if status not in ENDINGS:
            return self.adapter.failure(Fault(f"sent a response that is still {status}."))
        reason = string(fields_of(response.get("incomplete_details")).get("reason"))
        raw = reason or status if status == "incomplete" else status
        if status == "completed":
            return parts.Finish("tool_calls" if self._told.calls else "stop", raw)
        return parts.Finish(REASONS.get(raw, "length"), raw)

    def _illegal(self) -> parts.Failure:
        words = f"broke a rule of the protocol: {self._judge.problems[0]}"
        return self.adapter.failure(Fault(words, "model_error", "upstream_protocol"))


def error_in(raw: Fields) -> Fault:
    """Read an error that is nested in an event, or flat beside the event's own type."""
    nested = fields_of(raw.get("error"))
    return fault_in(nested or {name: raw[name] for name in raw if raw[name] != "error"})


def usage_in(response: Fields) -> parts.Usage | None:
    """Read how many tokens a response took."""
    usage = fields_of(response.get("usage"))
    cached = fields_of(usage.get("input_tokens_details")).get("cached_tokens")
    thought = fields_of(usage.get("output_tokens_details")).get("reasoning_tokens")
    counts = (usage.get("input_tokens"), usage.get("output_tokens"), cached, thought)
    return parts.Usage(*(n if isinstance(n, int) else None for n in counts)) if usage else None


def warnings_in(response: Fields) -> list[parts.Warn]:
    """Read what another Antiphon had to say."""
    entries = map(fields_of, list_of(response.get("antiphon:warnings")))
    return [
        parts.Warn(
            string(raw.get("code")), string(raw.get("message")), string(raw.get("param")) or None
        )
        for raw in entries
    ]
