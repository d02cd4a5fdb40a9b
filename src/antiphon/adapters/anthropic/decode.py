"""Decodes Anthropic's responses into parts.

Dialect notes: a block's index is its key; consecutive text blocks are content parts of one message. A citation
annotates its whole block. The signature of a thinking block is stored together with the thinking, since both must be
sent back unchanged. A web search that was requested as OpenAI's tool becomes OpenAI's item; other server tools become
items that hold their blocks. Token counts are totals: later ones replace earlier ones.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from msgspec import Struct

from antiphon.adapters.anthropic import wire_types
from antiphon.adapters.base import MAX_EVENT_BYTES, Adapter, Decoder, Prompt
from antiphon.adapters.conversation import dropped_call_warning, history_tool_names
from antiphon.adapters.errors import infer_status, parse_error
from antiphon.adapters.json_access import to_json_text
from antiphon.protocol import parts
from antiphon.protocol.items import ExtensionAnnotation, ExtensionItem, TextAnnotation, UrlCitation
from antiphon.protocol.json_schema import is_array, is_object
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import as_array, as_object, as_string, is_extension_type, omit
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.tools import WEB_SEARCH_TYPES
from antiphon.wire import json, sse

REASONS: dict[str, parts.Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}
PAUSED_MESSAGE = "The provider paused a long turn. Send the conversation again to continue it."
INCLUDE_SOURCES = "web_search_call.action.sources"
INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class OpenBlock(Struct):
    """A content block that is being streamed."""

    block: wire_types.ContentBlock
    key: int
    part: int = 0
    pieces: list[str] = []
    size: int = 0
    citations: list[object] = []
    raw: wire_types.RawBlock = {}


class AnthropicDecoder(Decoder):
    """Decodes one message."""

    reasons = REASONS

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        super().__init__(adapter, sse.Decoder(MAX_EVENT_BYTES))
        reasoning = prompt.request.reasoning
        self._wants_summary = bool(reasoning and reasoning.summary)
        self._wants_sources = INCLUDE_SOURCES in prompt.request.include
        self._may_call = not history_tool_names(prompt)
        self._has_web_search = any(tool.type in WEB_SEARCH_TYPES for tool in prompt.request.tools)
        self._open_blocks: dict[int, OpenBlock] = {}
        self._last_block: OpenBlock | None = None
        self._search_queries: dict[str, object] = {}
        self._input_counts = dict.fromkeys(INPUT_COUNTS, 0)

    def decode_chunk(self, chunk: object) -> Sequence[Part]:
        sent = cast("sse.SseEvent", chunk)
        if sent.data == sse.DONE:
            self.done = True
            return ()
        event = wire_types.read_event(sent.data)
        # The most frequent event is tested first.
        match event.type or sent.event:
            case "content_block_delta" if event.delta:
                return self._decode_delta(event.index, event.delta)
            case "content_block_start" if block := event.content_block:
                read_raw = partial(wire_types.read_raw_block, sent.data, "content_block")
                return [*self.complete_calls(), *self._start_block(event.index, block, read_raw)]
            case "content_block_stop":
                return self._stop_block(event.index)
            case type:
                return self._decode_message_event(type, event)

    def _decode_message_event(self, type: str, event: wire_types.StreamEvent) -> Sequence[Part]:
        match type:
            case "message_start":
                return self._usage_parts(event.message.usage if event.message else None)
            case "message_delta":
                return self._usage_parts(event.usage) + self._stop_parts(event.delta or wire_types.Delta())
            case "message_stop":
                self.done = True
                return () if self.finished else self.finish_parts(None)
            case "error":
                return (self._failure(event.error),)
            case _:
                return ()

    def decode_body(self, body: bytes) -> list[Part]:
        message = wire_types.read_message(body)
        if message.error is not None:
            return [self._failure(message.error)]
        if message.content is None:
            raise ValueError("the response is not a message")
        decoded: list[Part] = []
        for index, block in enumerate(message.content):
            read_raw = partial(wire_types.read_raw_block, body, "content", index)
            decoded += self.complete_calls()
            decoded += self._start_block(index, block, read_raw)
            decoded += self._stop_block(index)
        decoded += self._usage_parts(message.usage)
        return decoded + (self._stop_parts(message) or self.finish_parts(None))

    def _start_block(
        self, index: int, block: wire_types.ContentBlock, read_raw: Callable[[], wire_types.RawBlock]
    ) -> Sequence[Part]:
        before, opened = self._last_block, OpenBlock(block, index)
        self._open_blocks[index] = self._last_block = opened
        match block.type:
            case "text":
                # Citations split a text into blocks; together they are one message.
                if before is not None and before.block.type == "text":
                    opened.key, opened.part = before.key, before.part + 1
                opened.citations += as_array(block.citations)
                return self._text_parts(opened, block.text or None)
            case "thinking":
                return self._reasoning_parts(opened, block.thinking)
            case "redacted_thinking" if block.data:
                sealed = to_json_text(wire_types.SealedThinking(redacted=block.data))
                return (parts.Reasoning(key=index, encrypted_content=sealed),)
            # The tools were sent only because the history has calls; the client offers none.
            case "tool_use" if not self._may_call:
                del self._open_blocks[index]
                return (dropped_call_warning(block.name or ""),)
            case "tool_use":
                self.has_calls = True
                return (parts.Call(index, block.name or "", call_id=block.id or ""),)
            case _:
                return self._start_server_tool(opened, read_raw)

    def _decode_delta(self, index: int, delta: wire_types.Delta) -> Sequence[Part]:
        opened = self._open_blocks.get(index)
        if opened is None:
            return ()
        match opened.block.type, delta.type:
            case "text", "text_delta":
                return self._text_parts(opened, delta.text)
            case "thinking", "thinking_delta":
                return self._reasoning_parts(opened, delta.thinking)
            case "tool_use", "input_json_delta" if delta.partial_json:
                opened.size += 1
                return (parts.Call(opened.key, arguments=delta.partial_json),)
            case "server_tool_use", "input_json_delta" if delta.partial_json:
                opened.pieces.append(delta.partial_json)
            case "thinking", "signature_delta":
                opened.block.signature = delta.signature
            case "text", "citations_delta":
                opened.citations.append(delta.citation)
            case _:
                pass
        return ()

    def _stop_block(self, index: int) -> Sequence[Part]:
        opened = self._open_blocks.pop(index, None)
        if opened is None:
            return ()
        block, key = opened.block, opened.key
        match block.type:
            case "text" if opened.citations:
                notes = (decode_citation(note, opened.size) for note in opened.citations)
                return [parts.Annotation(note, key, opened.part) for note in notes if note]
            case "thinking" if block.signature:
                thinking = repair_surrogates("".join(opened.pieces))
                sealed = to_json_text(wire_types.SealedThinking(block.signature, thinking))
                return (parts.Reasoning(key=key, encrypted_content=sealed),)
            case "tool_use":
                self.ended_calls.append(key)
                # A stream repeats no arguments here: the start has `{}` and deltas bring the rest.
                has_input = block.input and not opened.size
                return (parts.Call(key, arguments=to_json_text(block.input) if has_input else ""),)
            case "server_tool_use":
                return self._stop_server_tool(opened)
            case _:
                return ()

    def _text_parts(self, opened: OpenBlock, text: str | None) -> Sequence[Part]:
        if text is None:
            return ()
        opened.size += len(text)
        return (parts.Text(text, opened.key, opened.part),)

    def _reasoning_parts(self, opened: OpenBlock, text: str | None) -> Sequence[Part]:
        if not text:
            return ()
        opened.pieces.append(text)
        # Only if a summary was requested is the thinking one; otherwise it is the thinking itself.
        if self._wants_summary:
            return (parts.Reasoning(key=opened.key, summary=text),)
        return (parts.Reasoning(text, opened.key),)

    def _start_server_tool(self, opened: OpenBlock, read_raw: Callable[[], wire_types.RawBlock]) -> Sequence[Part]:
        type = opened.block.type
        # read_raw() parses the JSON once more, so it is called only where all fields are needed.
        if type == "server_tool_use":
            opened.raw = read_raw()
        elif type == "web_search_tool_result" and self._has_web_search:
            return (parts.Whole(self._web_search_item(opened.block)),)
        elif type.endswith("_tool_result") or type == "container_upload":
            return _server_tool_parts(type, read_raw())
        return ()

    def _stop_server_tool(self, opened: OpenBlock) -> Sequence[Part]:
        block, input = opened.block, opened.block.input
        try:
            if opened.pieces:
                text = repair_surrogates("".join(opened.pieces))
                input = json.decode_lenient(text.encode())
        except json.JSONError:
            # Truncated before it ran. Anthropic would reject it in the next request.
            message = f"The call of '{block.name}' was cut off and was left out."
            return (parts.Warn("dropped_call", message),)
        if block.name == "web_search" and self._has_web_search:
            self._search_queries[block.id or ""] = input.get("query") if is_object(input) else None
            return ()
        return _server_tool_parts(block.type, opened.raw | {"input": input})

    def _web_search_item(self, block: wire_types.ContentBlock) -> ExtensionItem:
        action = {"type": "search", "query": self._search_queries.get(block.tool_use_id or "") or ""}
        if self._wants_sources:
            pages = filter(is_object, as_array(block.content))
            action["sources"] = [{"type": "url", "url": page.get("url")} for page in pages]
        status = "completed" if is_array(block.content) else "failed"
        return ExtensionItem(type="openai:web_search_call", status=status, extra={"action": action})

    def _usage_parts(self, usage: wire_types.Usage | None) -> list[Part]:
        if usage is None:
            return []
        # message_delta need not repeat the counts of message_start.
        for name, count in self._input_counts.items():
            new = getattr(usage, name)
            self._input_counts[name] = count if new is None else new
        details = usage.output_tokens_details
        thinking = details.thinking_tokens if details else None
        cached = self._input_counts["cache_read_input_tokens"]
        # In the protocol cached tokens are a part of the input tokens.
        return [parts.Usage(sum(self._input_counts.values()), usage.output_tokens, cached, thinking)]

    def _stop_parts(self, stop: wire_types.Delta | wire_types.MessageBody) -> list[Part]:
        reason, explanation = stop.stop_reason, as_object(stop.stop_details).get("explanation")
        if reason is None:
            return []
        finish = self.finish_parts(reason)
        if reason == "refusal" and explanation:
            return [parts.Refusal(as_string(explanation), key="refusal"), *finish]
        return [parts.Warn("paused", PAUSED_MESSAGE), *finish] if reason == "pause_turn" else finish

    def _failure(self, error: object) -> parts.Failure:
        info = parse_error(error)
        return self.adapter.failure_part(info, infer_status(info, 500))


def _server_tool_parts(type: str, block: wire_types.RawBlock) -> Sequence[Part]:
    """Return a block as an item from which it can be sent back unchanged."""
    name = f"{wire_types.SLUG}{type}"
    if not is_extension_type(name):
        return ()
    return (parts.Whole(ExtensionItem(type=name, status="completed", extra={"block": block})),)


def decode_citation(citation: object, length: int) -> TextAnnotation | None:
    """Return a citation as an annotation of its whole block, which has `length` characters."""
    if not is_object(citation):
        return None
    url, type = citation.get("url"), f"{wire_types.SLUG}{citation.get('type')}"
    if isinstance(url, str):
        return UrlCitation(url=url, start_index=0, end_index=length, title=as_string(citation.get("title")))
    return ExtensionAnnotation(type=type, extra=omit(citation, ("type",))) if is_extension_type(type) else None
