"""What Ollama answers, heard: lines of JSON in, parts out.

A call comes whole and its index starts again in every line, so calls are counted here. The last
line says `stop` even when calls were made, and leaves out the counts that are zero.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import cast

from msgspec import Struct

from antiphon.adapters.base import MAX_EVENT, Adapter, Decoder, Reader, finish
from antiphon.adapters.faults import Fault, fault_in
from antiphon.adapters.fields import json_text
from antiphon.adapters.logprobs import Token, weighed
from antiphon.core import parts
from antiphon.core.parts import Part
from antiphon.wire import json, ndjson

REASONS: Mapping[str, parts.Reason] = {
    "stop": "stop",
    "length": "length",
    "load": "stop",
    "unload": "stop",
}
MARK = '{"thinking":true}'
"""What is sealed with thinking, so that we know it again as this server's own."""


class Function(Struct, gc=False):
    """What is called, and with what."""

    name: str = ""
    arguments: object = None


class ToolCall(Struct, gc=False):
    """A call, whole."""

    function: Function
    id: str | None = None


class Said(Struct, gc=False):
    """What one line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class Line(Struct, gc=False):
    """One line of the stream, or the whole answer."""

    message: Said | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[Token] | None = None
    error: object = None


read_line = Reader(Line)


class OllamaDecoder(Decoder):
    """Hears one answer of Ollama's."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, ndjson.Decoder(MAX_EVENT))
        self._calls = 0
        self._thinking = False

    def hears(self, content_type: str) -> bool:
        """Take every body for lines: a whole answer is one line."""
        del content_type
        return True

    def read(self, chunk: object) -> Iterable[Part]:
        """Hear one line."""
        line = read_line(cast("bytes", chunk))
        if line.error is not None:
            return (self.adapter.failure(fault_of({"error": line.error})),)
        told: list[Part] = []
        if line.message is not None:
            self._said(line.message, line.logprobs, told)
        if line.done:
            told.append(parts.Usage(line.prompt_eval_count or 0, line.eval_count or 0))
            told.append(finish(line.done_reason or "", REASONS, called=self._calls > 0))
        return told

    def read_whole(self, body: bytes) -> Iterable[Part]:
        """Hear a whole answer, which is the last line with everything in it."""
        told = self.read(body)
        if not told:
            raise ValueError("it is no answer")
        return told

    def _said(self, said: Said, tokens: list[Token] | None, told: list[Part]) -> None:
        if said.thinking:
            mark = None if self._thinking else MARK
            told.append(parts.Reasoning(said.thinking, encrypted_content=mark))
            self._thinking = True
        if said.content:
            self._thinking = False
            told.append(parts.Text(said.content, logprobs=weighed(tokens)))
        if said.tool_calls:
            self._thinking = False
            told += [self._call(call) for call in said.tool_calls]
        if not told:
            told.append(parts.Text(""))  # for those who want a delta of every line

    def _call(self, call: ToolCall) -> Part:
        self._calls += 1
        text = json_text(call.function.arguments)
        return parts.Call(self._calls, call.function.name, text, call.id or "", complete=True)


def fault_of(value: object) -> Fault:
    """Find the error in a body or a line.

    What a runner says arrives as JSON inside the string.
    """
    fault = fault_in(value)
    if fault.message.startswith("{"):
        with suppress(json.JSONError):
            fault = fault_in(json.decode_lenient(fault.message.encode(errors="replace")))
    words = fault.message.lower()
    if "model" in words and "not found" in words:
        return Fault(fault.message, "not_found", "model_not_found", "model")
    return fault
