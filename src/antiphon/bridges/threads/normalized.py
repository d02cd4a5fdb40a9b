"""The stream of a provider as VT Code normalises it, to parts: deltas, then the whole answer.

A response has one message and one reasoning item, whatever the order of the deltas.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from antiphon.bridges.threads.config import OpenResponsesConfig
from antiphon.bridges.threads.items import OutputItem, empty_message
from antiphon.bridges.threads.shown_text import ShownText
from antiphon.bridges.threads.translate import ARGUMENTS_REPLACED, failure_part, usage_part
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.parts import Call, Part
from antiphon.protocol.response import ResponseUsage


class LLMResponse(Struct, frozen=True, kw_only=True):
    """The whole answer of a provider; None is what it does not say."""

    content: str | None = None
    reasoning: str | None = None
    tool_calls: Sequence[FunctionCall] = ()
    usage: ResponseUsage | None = None
    finish_reason: str = "stop"
    """`stop`, `length`, `tool_calls`, `content_filter`, `pause`, `refusal` or `error`."""
    error: str = ""
    """The provider's message, if the finish reason is `error`."""


class NormalizedTextDelta(Struct, frozen=True):
    """A piece of the text."""

    delta: str


class NormalizedReasoningDelta(Struct, frozen=True):
    """A piece of the reasoning."""

    delta: str


class NormalizedToolCallStart(Struct, frozen=True):
    """A tool call begins; its name may come later."""

    call_id: str
    name: str | None = None


class NormalizedToolCallDelta(Struct, frozen=True):
    """A piece of the arguments of a tool call."""

    call_id: str
    delta: str


class NormalizedUsage(Struct, frozen=True):
    """The tokens used so far."""

    usage: ResponseUsage


class NormalizedDone(Struct, frozen=True):
    """The end, with the whole answer."""

    response: LLMResponse


NormalizedEvent = (
    NormalizedTextDelta
    | NormalizedReasoningDelta
    | NormalizedToolCallStart
    | NormalizedToolCallDelta
    | NormalizedUsage
    | NormalizedDone
)


class StreamedCall(Struct):
    """A tool call as far as it was streamed."""

    named: bool = False
    pieces: list[str] = []
    """The arguments."""


class NormalizedTranslator:
    """Translates one normalised stream into parts."""

    def __init__(self, config: OpenResponsesConfig) -> None:
        self._config = config
        self._message = ShownText(empty_message(), "normalized message")
        self._reasoning = ShownText(OutputItem.reasoning(""), "normalized reasoning")
        self._calls: dict[str, StreamedCall] = {}
        self._last_grown: ShownText | None = None
        """The text that grew last, None if that was a call."""

    def translate(self, event: NormalizedEvent) -> Iterator[Part]:
        """Yield the parts of an event; a Finish or a Failure is the end."""
        match event:
            case NormalizedTextDelta(delta=delta):
                yield from self._extend_text(self._message, delta)
            case NormalizedReasoningDelta(delta=delta) if self._config.include_reasoning:
                yield from self._extend_text(self._reasoning, delta)
            case NormalizedToolCallStart(call_id=call_id, name=name) if self._config.map_tool_calls:
                yield self._extend_call(call_id, name or "", "")
            case NormalizedToolCallDelta(call_id=call_id, delta=delta) if delta and self._config.map_tool_calls:
                yield self._extend_call(call_id, "", delta)
            case NormalizedUsage(usage=usage):
                yield usage_part(usage)
            case NormalizedDone(response=response):
                yield from self._finish(response)
            case _:
                pass

    def _extend_text(self, shown: ShownText, delta: str) -> Iterator[Part]:
        if delta:
            self._last_grown = shown
            yield from shown.extend(delta)

    def _extend_call(self, call_id: str, name: str, arguments: str) -> Part:
        self._last_grown = None
        call = self._calls.setdefault(call_id, StreamedCall())
        call.pieces.append(arguments)
        # A name for a call that has one would begin another call if the first was closed meanwhile.
        name = "" if call.named else name
        call.named = call.named or bool(name)
        return Call(f"normalized {call_id}", name, arguments, call_id)

    def _finish(self, response: LLMResponse) -> Iterator[Part]:
        for shown, text in ((self._reasoning, response.reasoning), (self._message, response.content)):
            if text and (shown is self._message or self._config.include_reasoning):
                self._last_grown = self._last_grown if shown.begun else shown
                yield from shown.show(text)
        if self._config.map_tool_calls:
            for call in response.tool_calls:
                yield from self._show_call(call)
        if response.usage:
            yield usage_part(response.usage)
        match response.finish_reason:
            case "error":
                yield failure_part(response.error, "model_error")
            case "length" | "content_filter" as reason:
                # Only what grew last was cut off.
                for shown in (self._reasoning, self._message):
                    if shown.begun and shown is not self._last_grown:
                        yield shown.end()
                yield parts.Finish(reason)
            case _:
                yield parts.Finish("stop")

    def _show_call(self, call: FunctionCall) -> Iterator[Part]:
        streamed = self._calls.get(call.call_id)
        sent = "".join(streamed.pieces) if streamed else ""
        rest = ""
        if call.arguments.startswith(sent):
            rest = call.arguments[len(sent) :]
        else:
            yield ARGUMENTS_REPLACED
        if rest or streamed is None or not streamed.named:
            yield self._extend_call(call.call_id, call.name, rest)
