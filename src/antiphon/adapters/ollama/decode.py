"""What Ollama answers, heard: lines of JSON in, parts out.

A call comes whole and its index starts again in every line, so calls are counted here. The last
line says `stop` even when calls were made, and leaves out the counts that are zero.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import cast

from msgspec import Struct

from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    Adapter,
    Decoder,
    JsonReader,
    finish_part,
)
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.json_access import to_json_text
from antiphon.adapters.logprobs import TokenLogprob, convert_logprobs
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from antiphon.wire import json, ndjson

REASONS: Mapping[str, parts.Reason] = {
    "stop": "stop",
    "length": "length",
    "load": "stop",
    "unload": "stop",
}
SEAL_MARK = '{"thinking":true}'
"""What is sealed with thinking, so that we know it again as this server's own."""


class OllamaFunction(Struct, gc=False):
    """What is called, and with what."""

    name: str = ""
    arguments: object = None


class OllamaToolCall(Struct, gc=False):
    """A call, whole."""

    function: OllamaFunction
    id: str | None = None


class OllamaMessage(Struct, gc=False):
    """What one line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[OllamaToolCall] | None = None


class OllamaLine(Struct, gc=False):
    """One line of the stream, or the whole answer."""

    message: OllamaMessage | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[TokenLogprob] | None = None
    error: object = None


read_line = JsonReader(OllamaLine)


class OllamaDecoder(Decoder):
    """Hears one answer of Ollama's."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, ndjson.Decoder(MAX_EVENT_BYTES))
        self._call_count = 0
        self._in_reasoning = False

    def is_stream(self, content_type: str) -> bool:
        """Take every body for lines: a whole answer is one line."""
        del content_type
        return True

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Hear one line."""
        line = read_line(cast("bytes", chunk))
        if line.error is not None:
            return (self.adapter.failure_part(parse_ollama_error({"error": line.error})),)
        told: list[Part] = []
        if line.message is not None:
            self._decode_message(line.message, line.logprobs, told)
        if line.done:
            told.append(parts.Usage(line.prompt_eval_count or 0, line.eval_count or 0))
            told.append(
                finish_part(line.done_reason or "", REASONS, has_calls=self._call_count > 0)
            )
        return told

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Hear a whole answer, which is the last line with everything in it."""
        told = self.decode_chunk(body)
        if not told:
            raise ValueError("it is no answer")
        return told

    def _decode_message(
        self, said: OllamaMessage, tokens: list[TokenLogprob] | None, told: list[Part]
    ) -> None:
        if said.thinking:
            mark = None if self._in_reasoning else SEAL_MARK
            told.append(parts.Reasoning(said.thinking, encrypted_content=mark))
            self._in_reasoning = True
        if said.content:
            self._in_reasoning = False
            told.append(parts.Text(said.content, logprobs=convert_logprobs(tokens)))
        if said.tool_calls:
            self._in_reasoning = False
            told += [self._call_part(call) for call in said.tool_calls]
        if not told:
            told.append(parts.Text(""))  # for those who want a delta of every line

    def _call_part(self, call: OllamaToolCall) -> Part:
        self._call_count += 1
        text = to_json_text(call.function.arguments)
        return parts.Call(self._call_count, call.function.name, text, call.id or "", complete=True)


def parse_ollama_error(value: object) -> ErrorInfo:
    """Find the error in a body or a line.

    What a runner says arrives as JSON inside the string.
    """
    fault = parse_error(value)
    if fault.message.startswith("{"):
        with suppress(json.JSONError):
            fault = parse_error(json.decode_lenient(fault.message.encode(errors="replace")))
    words = fault.message.lower()
    if "model" in words and "not found" in words:
        return ErrorInfo(fault.message, "not_found", "model_not_found", "model")
    return fault
