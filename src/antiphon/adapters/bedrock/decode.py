"""What Bedrock answers, heard: messages of an event stream in, parts out.

Dialect notes: text and thinking have no start event, only calls do; a block's index is our key. The
stop reason comes before the usage. Citations belong to the text of their block, all of it. What
seals a thought (a signature, or the redacted thought itself) is kept with the very text it seals.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import cast

from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    Adapter,
    Decoder,
    Prompt,
    finish_part,
)
from antiphon.adapters.bedrock.models import thinking_is_summary
from antiphon.adapters.bedrock.wire_types import (
    Citation,
    ContentBlock,
    ReasoningContent,
    ReasoningText,
    SealedThinking,
    StreamEvent,
    ToolUse,
    Usage,
    read_event,
    read_response,
)
from antiphon.adapters.conversation import dropped_call_warning, history_tool_names
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.json_access import as_object, drop_empty, to_json_text
from antiphon.protocol import parts
from antiphon.protocol.content import ExtensionAnnotation, TextAnnotation, UrlCitation
from antiphon.protocol.parts import Part
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.wire import aws_eventstream, json
from antiphon.wire.aws_eventstream import EventStreamMessage

REASONS: Mapping[str, parts.Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
KNOWN_EVENTS = frozenset(
    "contentBlockStart contentBlockDelta contentBlockStop messageStop metadata".split()
)
FAILURE_REASONS = {
    "malformed_model_output": "what the model wrote is malformed.",
    "malformed_tool_use": "a call that the model made is malformed.",
}
"""Stop reasons that are failures."""

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
"""What an exception inside a stream would have been before it."""


class BedrockDecoder(Decoder):
    """Hears one answer of Bedrock's."""

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        super().__init__(adapter, aws_eventstream.Decoder(MAX_EVENT_BYTES))
        self._thinking_is_summary = thinking_is_summary(prompt)
        self._input_includes_cache = "openai." in prompt.model
        self._may_call = not history_tool_names(prompt)
        self._call_indexes: set[int] = set()
        self._block_index = -1
        self._text_length = 0
        self._thinking_pieces: list[str] = []
        self._signature = ""
        self._redacted = b""
        self._citations: list[Citation] = []

    def decode_chunk(self, chunk: object) -> Sequence[Part]:
        """Hear one message."""
        message = cast("EventStreamMessage", chunk)
        kind = message.headers.get(":event-type")
        if kind is None:
            return self._decode_exception(message)
        if kind not in KNOWN_EVENTS:
            return ()
        event = read_event(message.payload)
        if event.delta:
            return self._decode_delta(event.content_block_index, event.delta)
        return self._decode_event(str(kind), event)

    def _decode_event(self, kind: str, event: StreamEvent) -> Sequence[Part]:
        """Hear an event that says where the answer stands."""
        match kind:
            case "contentBlockStart" if event.start and event.start.tool_use:
                return self._start_call(event.content_block_index, event.start.tool_use)
            case "contentBlockStop":
                return self._stop_block(event.content_block_index)
            case "messageStop":
                return self._finish_parts(event.stop_reason)
            case "metadata" if event.usage:
                return (self._usage_part(event.usage),)
            case _:
                return ()

    def decode_body(self, body: bytes) -> Sequence[Part]:
        """Hear a whole answer."""
        whole = read_response(body)
        said = whole.output.message and whole.output.message.content
        told: list[Part] = []
        for index, block in enumerate(said or ()):
            self._decode_block(index, block, told)
        if whole.usage:
            told.append(self._usage_part(whole.usage))
        return [*told, *self._finish_parts(whole.stop_reason)]

    # --- blocks ---

    def _start_block(self, index: int) -> Sequence[Part]:
        """Begin another block, which shows that those before it were not cut."""
        self._block_index, self._text_length = index, 0
        self._thinking_pieces, self._signature, self._redacted = [], "", b""
        return self.complete_calls()

    def _decode_delta(self, index: int, delta: ContentBlock) -> Sequence[Part]:
        if index != self._block_index:
            return [*self._start_block(index), *self._decode_delta(index, delta)]
        if delta.text is not None:
            self._text_length += len(delta.text)
            return (parts.Text(delta.text, index),)
        if delta.tool_use:
            more = delta.tool_use.input
            if index in self._call_indexes and isinstance(more, str) and more:
                return (parts.Call(index, arguments=more),)
            return ()
        if delta.reasoning_content:
            return self._reasoning_parts(index, delta.reasoning_content)
        if delta.citation:
            self._citations.append(delta.citation)
        return () if delta.image is None else self.unsupported_output_parts()

    def _start_call(self, index: int, call: ToolUse) -> Sequence[Part]:
        told = self._start_block(index)
        if call.type == "server_tool_use":  # the provider's own affair
            return told
        if not self._may_call:
            return [*told, dropped_call_warning(call.name)]
        self._call_indexes.add(index)
        return [*told, parts.Call(index, call.name, call_id=call.tool_use_id)]

    def _stop_block(self, index: int) -> Sequence[Part]:
        if index != self._block_index:
            return ()
        if index in self._call_indexes:
            self.ended_calls.append(index)
            return ()
        notes, self._citations = self._citations, []
        return [decode_citation(note, index, self._text_length) for note in notes]

    def _reasoning_parts(self, index: int, thought: ReasoningContent) -> Sequence[Part]:
        if thought.text:
            self._thinking_pieces.append(thought.text)
            if self._thinking_is_summary:
                return (parts.Reasoning(key=index, summary=thought.text),)
            return (parts.Reasoning(thought.text, index),)
        if thought.signature:
            self._signature += thought.signature
        elif thought.redacted_content:
            self._redacted += base64.b64decode(thought.redacted_content)
        else:
            return ()
        redacted = base64.b64encode(self._redacted).decode()
        sealed = to_json_text(
            SealedThinking(
                repair_surrogates("".join(self._thinking_pieces)), self._signature, redacted
            )
        )
        return (parts.Reasoning(key=index, encrypted_content=sealed),)

    def _decode_block(self, index: int, block: ContentBlock, told: list[Part]) -> None:
        if call := block.tool_use:
            told += self._start_call(index, call)
            if index in self._call_indexes:
                given = to_json_text(call.input) if call.input else ""
                told += [parts.Call(index, arguments=given), *self._stop_block(index)]
        elif thought := block.reasoning_content:
            proven = thought.reasoning_text or ReasoningText()
            for piece in (
                ContentBlock(reasoning_content=ReasoningContent(text=proven.text)),
                ContentBlock(reasoning_content=ReasoningContent(signature=proven.signature)),
                ContentBlock(
                    reasoning_content=ReasoningContent(redacted_content=thought.redacted_content)
                ),
            ):
                told += self._decode_delta(index, piece)
        elif cited := block.citations_content:
            for piece in cited.content or ():
                told += self._decode_delta(index, piece)
            self._citations += cited.citations or ()
            told += self._stop_block(index)
        else:
            told += self._decode_delta(index, block)

    # --- the end ---

    def _finish_parts(self, reason: str | None) -> Sequence[Part]:
        if reason in FAILURE_REASONS:
            return (
                self.adapter.failure_part(
                    ErrorInfo(FAILURE_REASONS[reason], "model_error", reason)
                ),
            )
        return self.finish_parts(finish_part(reason, REASONS, has_calls=bool(self._call_indexes)))

    def _usage_part(self, usage: Usage) -> Part:
        read, written = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
        given = usage.input_tokens or 0
        # OpenAI's models on Bedrock count the cache twice in streams: inside the input as well.
        twice = self._input_includes_cache and given >= read + written
        total = given if twice else given + read + written
        return parts.Usage(total, usage.output_tokens or 0, read)

    def _decode_exception(self, message: EventStreamMessage) -> Sequence[Part]:
        """Tell an exception, or the error of a connection, that takes the place of an event."""
        headers = message.headers
        match headers.get(":message-type"):
            case "exception":
                name = str(headers.get(":exception-type", ""))
                value = json.decode_lenient(message.payload or b"{}")
            case "error":
                name = str(headers.get(":error-code", ""))
                value = {"message": headers.get(":error-message")}
            case _:
                return ()
        status = EXCEPTION_STATUSES.get(name.lower(), 502)
        fault = self.adapter.parse_error(
            status, {"x-amzn-errortype": name[:1].upper() + name[1:]}, value
        )
        return (self.adapter.failure_part(fault, status),)


def decode_citation(citation: Citation, key: int, length: int) -> Part:
    """Write a citation as a note on all the text of its block."""
    location = citation.location or {}
    url = as_object(location.get("web")).get("url", citation.source)
    note: TextAnnotation
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        title = citation.title or url
        note = UrlCitation(url=url, title=title, start_index=0, end_index=length)
    else:
        fields = {"title": citation.title, "source": citation.source, "location": location}
        note = ExtensionAnnotation(type="bedrock:citation", extra=drop_empty(fields))
    return parts.Annotation(note, key)
