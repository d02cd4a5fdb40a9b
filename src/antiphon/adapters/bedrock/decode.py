"""Decodes Converse's responses into parts.

Dialect notes: a stream consists of AWS event-stream messages. Text and reasoning have no start
event, only calls do; a block's index is its key. In a stream the stop reason comes before the usage. A citation with a
URL annotates its whole block. A signature is stored together with the text that it signs.
"""

import base64
from collections.abc import Sequence
from typing import cast

from antiphon.adapters.base import MAX_EVENT_BYTES, Adapter, Decoder, Prompt
from antiphon.adapters.bedrock import wire_types
from antiphon.adapters.conversation import dropped_call_warning, history_tool_names
from antiphon.adapters.json_access import drop_empty, to_json_text
from antiphon.protocol import parts
from antiphon.protocol.items import ExtensionAnnotation, UrlCitation
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import as_object
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.wire import aws_eventstream, json
from antiphon.wire.aws_eventstream import EventStreamMessage

REASONS: dict[str, parts.Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
FAILURE_REASONS = {
    "malformed_model_output": "the model's output is malformed.",
    "malformed_tool_use": "the model made a malformed tool call.",
}
"""Stop reasons that mean failure."""

KNOWN_EVENTS = frozenset("contentBlockStart contentBlockDelta contentBlockStop messageStop metadata".split())
EXCEPTION_STATUSES = {
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "modeltimeoutexception": 408,
    "modelerrorexception": 424,
    "modelstreamerrorexception": 424,
    "throttlingexception": 429,
    "modelnotreadyexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
}
"""The HTTP status of each exception, for those that arrive within a stream."""


class BedrockDecoder(Decoder):
    """Decodes one response."""

    reasons = REASONS
    failure_reasons = FAILURE_REASONS

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        super().__init__(adapter, aws_eventstream.Decoder(MAX_EVENT_BYTES))
        reasoning = prompt.request.reasoning
        # Only Claude summarizes its thinking on request.
        self._is_summary = bool(reasoning and reasoning.summary) and "anthropic." in prompt.model
        self._input_includes_cache = "openai." in prompt.model
        self._may_call = not history_tool_names(prompt)
        self._call_indexes: set[int] = set()
        self._block_index = -1
        self._text_length = 0
        self._thinking_pieces: list[str] = []
        self._signature = ""
        self._redacted = b""
        self._citations: list[wire_types.Citation] = []

    def decode_chunk(self, chunk: object) -> Sequence[Part]:
        message = cast("EventStreamMessage", chunk)
        type = message.headers.get(":event-type")
        if type is None:
            return self._decode_exception(message)
        if type not in KNOWN_EVENTS:
            return ()
        event = wire_types.read_event(message.payload)
        if event.delta:
            return self._decode_delta(event.content_block_index, event.delta)
        return self._decode_event(str(type), event)

    def _decode_event(self, type: str, event: wire_types.ConverseEvent) -> Sequence[Part]:
        match type:
            case "contentBlockStart" if event.start and event.start.tool_use:
                return self._start_call(event.content_block_index, event.start.tool_use)
            case "contentBlockStop":
                return self._stop_block(event.content_block_index)
            case "messageStop":
                return self.finish_parts(event.stop_reason)
            case "metadata" if event.usage:
                return (self._usage_part(event.usage),)
            case _:
                return ()

    def decode_body(self, body: bytes) -> Sequence[Part]:
        response = wire_types.read_event(body)
        if response.output is None:
            raise ValueError("the response has no output")
        message = response.output.message
        decoded: list[Part] = []
        for index, block in enumerate((message and message.content) or ()):
            decoded += self._decode_block(index, block)
        if response.usage:
            decoded.append(self._usage_part(response.usage))
        return [*decoded, *self.finish_parts(response.stop_reason)]

    def _start_block(self, index: int) -> Sequence[Part]:
        """Start a block, which proves that the calls before it are complete."""
        self._block_index, self._text_length = index, 0
        self._thinking_pieces, self._signature, self._redacted = [], "", b""
        return self.complete_calls()

    def _decode_delta(self, index: int, delta: wire_types.ContentBlock) -> Sequence[Part]:
        # Text and reasoning have no start event: a new index starts a block.
        if index != self._block_index:
            return [*self._start_block(index), *self._decode_delta(index, delta)]
        if delta.text is not None:
            self._text_length += len(delta.text)
            return (parts.Text(delta.text, index),)
        if delta.tool_use:
            arguments = delta.tool_use.input
            # Increments of dropped calls and of Bedrock's own tools are ignored.
            if index in self._call_indexes and isinstance(arguments, str) and arguments:
                return (parts.Call(index, arguments=arguments),)
            return ()
        if reasoning := delta.reasoning_content:
            return self._reasoning_parts(index, reasoning.reasoning_text or reasoning)
        if delta.citation:
            self._citations.append(delta.citation)
        return () if delta.image is None else self.unsupported_output_parts()

    def _start_call(self, index: int, call: wire_types.ToolUse) -> Sequence[Part]:
        started = self._start_block(index)
        # Tools that Bedrock runs itself need no answer from the client.
        if call.type == "server_tool_use":
            return started
        if not self._may_call:
            return [*started, dropped_call_warning(call.name)]
        self.has_calls = True
        self._call_indexes.add(index)
        return [*started, parts.Call(index, call.name, call_id=call.tool_use_id)]

    def _stop_block(self, index: int) -> Sequence[Part]:
        if index != self._block_index:
            return ()
        if index in self._call_indexes:
            self.ended_calls.append(index)
            return ()
        citations, self._citations = self._citations, []
        return [decode_citation(citation, index, self._text_length) for citation in citations]

    def _reasoning_parts(self, index: int, reasoning: wire_types.ReasoningContent) -> Sequence[Part]:
        decoded: list[Part] = []
        if text := reasoning.text:
            self._thinking_pieces.append(text)
            is_summary = self._is_summary
            decoded.append(parts.Reasoning(key=index, summary=text) if is_summary else parts.Reasoning(text, index))
        if reasoning.signature or reasoning.redacted_content:
            self._signature += reasoning.signature or ""
            # Each increment is base64 of its own, perhaps with padding.
            self._redacted += base64.b64decode(reasoning.redacted_content or "")
            thinking = repair_surrogates("".join(self._thinking_pieces))
            redacted = base64.b64encode(self._redacted).decode()
            sealed = to_json_text(wire_types.SealedThinking(thinking, self._signature, redacted))
            decoded.append(parts.Reasoning(key=index, encrypted_content=sealed))
        return decoded

    def _decode_block(self, index: int, block: wire_types.ContentBlock) -> list[Part]:
        """Decode a complete block like the increments of a stream."""
        if call := block.tool_use:
            decoded = list(self._start_call(index, call))
            if index in self._call_indexes:
                arguments = to_json_text(call.input) if call.input else ""
                decoded += [parts.Call(index, arguments=arguments), *self._stop_block(index)]
            return decoded
        cited = block.citations_content
        deltas = (cited.content or []) if cited else [block]
        decoded = [part for delta in deltas for part in self._decode_delta(index, delta)]
        if cited:
            self._citations += cited.citations or ()
            decoded += self._stop_block(index)
        return decoded

    def _usage_part(self, usage: wire_types.Usage) -> Part:
        read, written = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
        input = usage.input_tokens or 0
        # In streams of OpenAI's models the input tokens include the cached ones.
        included = self._input_includes_cache and input >= read + written
        total = input if included else input + read + written
        return parts.Usage(total, usage.output_tokens or 0, read)

    def _decode_exception(self, message: EventStreamMessage) -> Sequence[Part]:
        """Return the failure for an exception or a connection error within a stream."""
        headers = message.headers
        match headers.get(":message-type"):
            case "exception":
                name = str(headers.get(":exception-type", ""))
                body = json.decode_lenient(message.payload or b"{}")
            case "error":
                name = str(headers.get(":error-code", ""))
                body = {"message": headers.get(":error-message")}
            case _:
                return ()
        status = EXCEPTION_STATUSES.get(name.lower(), 502)
        # A stream writes throttlingException, a header ThrottlingException.
        header = {"x-amzn-errortype": name[:1].upper() + name[1:]}
        return (self.adapter.failure_part(self.adapter.parse_error(status, header, body), status),)


def decode_citation(citation: wire_types.Citation, key: int, length: int) -> Part:
    """Return a citation: one with a URL spans its whole block of `length` characters, others have no place in it."""
    location = citation.location or {}
    url = as_object(location.get("web")).get("url", citation.source)
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        title = citation.title or url
        return parts.Annotation(UrlCitation(url=url, title=title, start_index=0, end_index=length), key)
    fields = {"title": citation.title, "source": citation.source, "location": location}
    return parts.Annotation(ExtensionAnnotation(type="bedrock:citation", extra=drop_empty(fields)), key)
