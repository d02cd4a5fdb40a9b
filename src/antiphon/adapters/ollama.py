"""Ollama's own chat API.

Dialect notes: an answer is lines of JSON. A call comes whole, and its index restarts in every line,
so calls are counted here. The last line says `stop` even after calls, and omits counts that are zero.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from typing import ClassVar, cast

from msgspec import Struct

from antiphon.adapters.base import MAX_EVENT_BYTES, Adapter, Decoder, JsonReader, Prompt, Provider
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    EMPTY_SCHEMA,
    ConversationTurn,
    encode_pieces,
    split_turns,
)
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, format_feature, nearest_effort, wants_logprobs
from antiphon.adapters.json_access import drop_empty, parse_arguments, to_json_text
from antiphon.adapters.media import TokenLogprob, convert_logprobs, read_image
from antiphon.protocol import parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import Content, FunctionCallOutput, InputImage, Message, Reasoning, content_text
from antiphon.protocol.parts import Part
from antiphon.protocol.request import JsonSchemaFormat
from antiphon.protocol.struct import JsonObject, drop_none
from antiphon.protocol.tools import FunctionTool
from antiphon.transport.request import Upstream
from antiphon.wire import json, sse

DEFAULT_PORT = "11434"
SAMPLING_OPTIONS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop")
"""The options with the same name and meaning in both APIs."""


class Ollama(Adapter):
    """An Ollama server, or Ollama's cloud."""

    name = "ollama"
    default_url = f"http://127.0.0.1:{DEFAULT_PORT}"
    key_env = ("OLLAMA_API_KEY",)
    field_variables: ClassVar = {"base_url": ("OLLAMA_HOST",)}
    models_list = ("models", "name")
    features = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens logprobs
        reasoning tools json_object json_schema images""".split()
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        # Ollama's documentation shows the address with the path of its own API, or of OpenAI's.
        self.base_url = self.base_url.removesuffix("/api").removesuffix("/v1")

    @classmethod
    def parse_variable(cls, field: str, value: str) -> str:
        """Return the address that OLLAMA_HOST means, by the rules of Ollama's own client.

        >>> [Ollama.parse_variable("base_url", host) for host in ("0.0.0.0", "gpu:80", "https://a/")]
        ['http://127.0.0.1:11434', 'http://gpu:80', 'https://a']
        """
        scheme, separator, rest = value.strip().rpartition("://")
        authority, slash, path = rest.partition("/")
        if authority.count(":") > 1 and not authority.startswith("["):
            authority = f"[{authority}]"
        host, colon, port = authority.rpartition(":")
        if not colon or "]" in port:
            host, port = authority, ""
        # The variable also tells a server which addresses to listen on. "All addresses" cannot be
        # connected to everywhere, so the client uses the loopback address.
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104
        if not separator and not port:
            port = DEFAULT_PORT
        return f"{scheme or 'http'}://{host}{':' if port else ''}{port}{slash}{path}".rstrip("/")

    def encode(self, prompt: Prompt) -> Upstream:
        return Upstream(url=f"{self.base_url}/api/chat", body=encode_body(prompt))

    def decoder(self, prompt: Prompt) -> Decoder:
        return OllamaDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return this adapter without reasoning, for a model that rejects `think`."""
        rejects_thinking = error.status == 400 and "does not support thinking" in error.payload.message
        if not (rejects_thinking and "reasoning" in self.features):
            return None
        # A copy, because requests that are under way still use this adapter.
        other = copy(self)
        other.features = self.features - {"reasoning"}
        return other

    def models_request(self) -> Upstream | None:
        return Upstream(method="GET", url=f"{self.base_url}/api/tags")

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        return parse_ollama_error(body)


def encode_body(prompt: Prompt) -> JsonObject:
    """Encode a prompt; raises RequestError."""
    request, format = prompt.request, prompt.request.text.format
    schema = format.schema if isinstance(format, JsonSchemaFormat) else None
    options: JsonObject = {name: getattr(request, name) for name in SAMPLING_OPTIONS}
    body: JsonObject = {
        "model": prompt.model,
        "messages": encode_messages(prompt),
        "stream": prompt.stream,
        "options": drop_none(options | {"num_predict": request.max_output_tokens}),
        "format": schema or ("json" if format_feature(request) else None),
        "think": encode_think(prompt),
        "tools": [encode_tool(tool) for tool in request.tools if isinstance(tool, FunctionTool)],
        "logprobs": wants_logprobs(request) or None,
        "top_logprobs": request.top_logprobs or None,
        # By default Ollama drops the start of a long conversation without a word.
        "truncate": False if request.truncation == "disabled" else None,
    }
    return drop_empty(body)


def encode_messages(prompt: Prompt) -> list[JsonObject]:
    """Encode a conversation as messages; raises RequestError."""
    messages: list[JsonObject] = []
    if prompt.request.instructions:
        messages.append({"role": "system", "content": prompt.request.instructions})
    names: dict[str, str] = {}
    for turn in split_turns(prompt.items):
        if turn.role == "assistant":
            names |= {call.call_id: call.name for call in turn.calls}
            messages += encode_assistant(turn)
            continue
        for item in turn.items:
            if isinstance(item, Message):
                messages.append({"role": turn.role, **encode_content(prompt, item)})
            elif isinstance(item, FunctionCallOutput):
                ids: JsonObject = {"tool_name": names.get(item.call_id, ""), "tool_call_id": item.call_id}
                messages.append({"role": "tool", **ids, **encode_content(prompt, item)})
    # Ollama takes a request without messages as a command to load the model.
    if not messages:
        raise prompt.unsupported_error(EMPTY_CONVERSATION, "input")
    return messages


def encode_assistant(turn: ConversationTurn) -> list[JsonObject]:
    """Encode a turn of the assistant; its own reasoning is sent back only beside calls."""
    texts = [item.text for item in turn.items if isinstance(item, Message)]
    calls = [
        {"id": call.call_id, "function": {"name": call.name, "arguments": parse_arguments(call.arguments)}}
        for call in turn.calls
    ]
    thinking = [
        content_text(part)
        for item in turn.items
        if isinstance(item, Reasoning) and item.encrypted_content
        for part in item.content or []
    ]
    message = drop_empty(
        {"content": "\n".join(filter(None, texts)), "thinking": "".join(thinking) if calls else "", "tool_calls": calls}
    )
    return [{"role": "assistant", **message}] if message else []


def encode_content(prompt: Prompt, item: Message | FunctionCallOutput) -> JsonObject:
    """Encode the content of an item: all text as one string, and the images beside it."""
    images: list[str] = []

    def encode_part(part: Content) -> list[str]:
        if isinstance(part, InputImage):
            images.append(read_image(part).data)
        text = content_text(part)
        return [text] if text else []

    text = "\n".join(encode_pieces(prompt, item, encode_part))
    return {"content": text, **drop_empty({"images": images})}


def encode_tool(tool: FunctionTool) -> JsonObject:
    function = drop_empty({"name": tool.name, "description": tool.description})
    return {"type": "function", "function": function | {"parameters": tool.parameters or EMPTY_SCHEMA}}


def encode_think(prompt: Prompt) -> bool | str | None:
    """Encode the reasoning effort: three levels for gpt-oss, on or off for all other models."""
    reasoning = prompt.request.reasoning
    if reasoning and reasoning.summary:
        message = "Ollama has no reasoning summaries; the reasoning itself is sent."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    effort = reasoning and reasoning.effort
    if effort is None:
        return None
    if prompt.model.rpartition("/")[2].startswith("gpt-oss"):  # it cannot be switched off
        return nearest_effort(prompt, effort, EFFORTS_LOW_TO_HIGH)
    if effort == "none":
        return False
    nearest_effort(prompt, effort, {effort: "on"})
    return True


REASONS: dict[str, parts.Reason] = {"stop": "stop", "length": "length", "load": "stop", "unload": "stop"}
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

    reasons = REASONS

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, sse.NdjsonDecoder(MAX_EVENT_BYTES))
        self._call_count = 0
        self._in_reasoning = False

    def is_stream(self, content_type: str) -> bool:
        """Treat every body as a stream: a whole answer is a stream of one line."""
        return True

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        line = read_line(cast("bytes", chunk))
        if line.error is not None:
            return (self.adapter.failure_part(parse_ollama_error({"error": line.error})),)
        decoded: list[Part] = []
        if line.message is not None:
            self._decode_message(line.message, line.logprobs, decoded)
        # The last line has all counts, and no other line has any.
        if line.done:
            decoded.append(parts.Usage(line.prompt_eval_count or 0, line.eval_count or 0))
            decoded += self.finish_parts(line.done_reason or "")
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
        for call in message.tool_calls or ():
            self._in_reasoning = False
            self._call_count += 1
            self.has_calls = True
            text = to_json_text(call.function.arguments)
            decoded.append(parts.Call(self._call_count, call.function.name, text, call.id or "", complete=True))
        if not decoded:
            # An empty line becomes an empty text, so that every chunk has a delta.
            decoded.append(parts.Text(""))


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
