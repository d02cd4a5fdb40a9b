"""Decodes Ollama's answers, which are lines of JSON, into parts.

Dialect notes: a call comes whole, and its index restarts in every line, so calls are counted here.
The last line says `stop` even after calls, and omits counts that are zero.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import cast

from msgspec import Struct

from antiphon.adapters.base import MAX_EVENT_BYTES, Adapter, Decoder, JsonReader, finish_part
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.json_access import to_json_text
from antiphon.adapters.media import TokenLogprob, convert_logprobs
from antiphon.protocol import parts
from antiphon.protocol.parts import Part
from antiphon.wire import json, ndjson

REASONS: Mapping[str, parts.Reason] = {"stop": "stop", "length": "length", "load": "stop", "unload": "stop"}
SEAL_MARK = '{"thinking":true}'
"""The seal of reasoning, which shows that it came from this server."""


class OllamaFunction(Struct, gc=False):
    """The name and the arguments of a call."""

    name: str = ""
    arguments: object = None


class OllamaToolCall(Struct, gc=False):
    """A complete call."""

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
    """Decodes one answer of Ollama."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, ndjson.Decoder(MAX_EVENT_BYTES))
        self._call_count = 0
        self._in_reasoning = False

    def is_stream(self, content_type: str) -> bool:
        """Treat every body as a stream: a whole answer is a stream of one line."""
        del content_type
        return True

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Decode one line."""
        line = read_line(cast("bytes", chunk))
        if line.error is not None:
            return (self.adapter.failure_part(parse_ollama_error({"error": line.error})),)
        decoded: list[Part] = []
        if line.message is not None:
            self._decode_message(line.message, line.logprobs, decoded)
        # The last line has all counts, and no other line has any.
        if line.done:
            decoded.append(parts.Usage(line.prompt_eval_count or 0, line.eval_count or 0))
            decoded.append(finish_part(line.done_reason or "", REASONS, has_calls=self._call_count > 0))
        return decoded

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Decode a whole answer, which is a single last line."""
        decoded = self.decode_chunk(body)
        if not decoded:
            raise ValueError("it has neither a message nor an end")
        return decoded

    def _decode_message(self, message: OllamaMessage, tokens: list[TokenLogprob] | None, decoded: list[Part]) -> None:
        if message.thinking:
            mark = None if self._in_reasoning else SEAL_MARK
            decoded.append(parts.Reasoning(message.thinking, encrypted_content=mark))
            self._in_reasoning = True
        if message.content:
            self._in_reasoning = False
            decoded.append(parts.Text(message.content, logprobs=convert_logprobs(tokens)))
        if message.tool_calls:
            self._in_reasoning = False
            decoded += [self._call_part(call) for call in message.tool_calls]
        if not decoded:
            # An empty line becomes an empty text, so that every chunk has a delta.
            decoded.append(parts.Text(""))

    def _call_part(self, call: OllamaToolCall) -> Part:
        self._call_count += 1
        text = to_json_text(call.function.arguments)
        return parts.Call(self._call_count, call.function.name, text, call.id or "", complete=True)


def parse_ollama_error(value: object) -> ErrorInfo:
    """Return the error in a body or a line.

    Ollama passes on the errors of its model runners, which are JSON inside the message.
    """
    error = parse_error(value)
    if error.message.startswith("{"):
        with suppress(json.JSONError):
            error = parse_error(json.decode_lenient(error.message.encode(errors="replace")))
    message = error.message.lower()
    if "model" in message and "not found" in message:
        return ErrorInfo(error.message, "not_found", "model_not_found", "model")
    return error
