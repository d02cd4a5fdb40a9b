"""Claude's answers, heard as parts.

Dialect notes: a block's index is our key; blocks of text in a row are one message, each a part of
it. A citation notes the whole of its block. A signature seals its thinking when the block ends, and
the thinking goes into the seal with it, since both must come back unchanged. A search that was
asked for in OpenAI's words is told in them; other tools that the provider runs are items that hold
their blocks. Counts of tokens are totals, and later ones overwrite; those of the input do not
include what the cache gave or took.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from antiphon.adapters.anthropic.wire_types import (
    SLUG,
    ContentBlock,
    Delta,
    ErrorBody,
    MessageBody,
    OpenBlock,
    RawBlock,
    SealedThinking,
    StreamEvent,
    Usage,
    decode_citation,
    read_event,
    read_message,
    read_raw_block,
)
from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    Adapter,
    Decoder,
    Prompt,
    finish_part,
)
from antiphon.adapters.conversation import dropped_call_warning, history_tool_names
from antiphon.adapters.errors import ErrorInfo, infer_status
from antiphon.adapters.json_access import to_json_text
from antiphon.protocol import parts
from antiphon.protocol.items import ExtensionItem
from antiphon.protocol.json_schema import is_array, is_object
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import is_extension_type
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.tools import WEB_SEARCH_TYPES
from antiphon.wire import json, sse

REASONS: Mapping[str, parts.Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}
PAUSED_MESSAGE = "The provider paused a long turn; send the conversation again to let it go on."
INCLUDE_SOURCES = "web_search_call.action.sources"


class AnthropicDecoder(Decoder):
    """Hears one message of Claude's."""

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
        self._has_calls = False
        self._input_tokens = self._cache_write_tokens = self._cache_read_tokens = 0

    # --- streams ---

    def decode_chunk(self, chunk: object) -> Sequence[Part]:
        """Return the parts that an event means."""
        sent = cast("sse.SseEvent", chunk)
        if sent.data == sse.DONE:
            self.done = True
            return ()
        event = read_event(sent.data)
        match event.type or sent.event:
            case "content_block_delta" if event.delta:
                return self._decode_delta(event.index, event.delta)
            case "content_block_start" if block := event.content_block:
                whole = partial(read_raw_block, sent.data, "content_block")
                return [*self.complete_calls(), *self._start_block(event.index, block, whole)]
            case "content_block_stop":
                return self._stop_block(event.index)
            case type:
                return self._decode_message_event(type, event)

    def _decode_message_event(self, type: str, event: StreamEvent) -> Sequence[Part]:
        """Hear what is said of the message as a whole."""
        match type:
            case "message_start":
                return self._usage_parts(event.message.usage if event.message else None)
            case "message_delta":
                return self._usage_parts(event.usage) + self._stop_parts(event.delta or Delta())
            case "message_stop":
                self.done = True
                return () if self.finished else self._finish_parts(None)
            case "error":
                return (self._failure(event.error),)
            case _:
                return ()

    # --- whole answers ---

    def decode_body(self, body: bytes) -> list[Part]:
        """Return the parts that a whole answer means."""
        answer = read_message(body)
        if answer.error is not None:
            return [self._failure(answer.error)]
        if answer.content is None:
            raise ValueError("it is no message")
        told: list[Part] = []
        for index, block in enumerate(answer.content):
            told += self.complete_calls()
            told += self._start_block(index, block, partial(read_raw_block, body, "content", index))
            told += self._stop_block(index)
        told += self._usage_parts(answer.usage)
        return told + (self._stop_parts(answer) or self._finish_parts(None))

    # --- blocks ---

    def _start_block(
        self, index: int, block: ContentBlock, read_raw: Callable[[], RawBlock]
    ) -> Sequence[Part]:
        before, opened = self._last_block, OpenBlock(block, index)
        self._open_blocks[index] = self._last_block = opened
        match block.type:
            case "text":
                if before is not None and before.block.type == "text":
                    opened.key, opened.part = before.key, before.part + 1
                opened.notes += block.citations if is_array(block.citations) else []
                return self._text_parts(opened, block.text or None)
            case "thinking":
                return self._reasoning_parts(opened, block.thinking)
            case "redacted_thinking" if block.data:
                sealed = to_json_text(SealedThinking(redacted=block.data))
                return (parts.Reasoning(key=index, encrypted_content=sealed),)
            case "tool_use" if not self._may_call:
                del self._open_blocks[index]
                return (dropped_call_warning(block.name or ""),)
            case "tool_use":
                self._has_calls = True
                return (parts.Call(index, block.name or "", call_id=block.id or ""),)
            case _:
                return self._start_server_tool(opened, read_raw)

    def _decode_delta(self, index: int, delta: Delta) -> Sequence[Part]:
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
                opened.notes.append(delta.citation)
            case _:
                pass
        return ()

    def _stop_block(self, index: int) -> Sequence[Part]:
        opened = self._open_blocks.pop(index, None)
        if opened is None:
            return ()
        block, key = opened.block, opened.key
        match block.type:
            case "text" if opened.notes:
                notes = (decode_citation(note, opened.size) for note in opened.notes)
                return [parts.Annotation(note, key, opened.part) for note in notes if note]
            case "thinking" if block.signature:
                sealed = to_json_text(
                    SealedThinking(block.signature, repair_surrogates("".join(opened.pieces)))
                )
                return (parts.Reasoning(key=key, encrypted_content=sealed),)
            case "tool_use":
                self.ended_calls.append(key)
                given = to_json_text(block.input) if block.input and not opened.size else ""
                return (parts.Call(key, arguments=given),)
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
        if self._wants_summary:
            return (parts.Reasoning(key=opened.key, summary=text),)
        return (parts.Reasoning(text, opened.key),)

    # --- tools that the provider runs ---

    def _start_server_tool(
        self, opened: OpenBlock, read_raw: Callable[[], RawBlock]
    ) -> Sequence[Part]:
        type = opened.block.type
        if type == "server_tool_use":
            opened.raw = read_raw()
        elif type == "web_search_tool_result" and self._has_web_search:
            return (parts.Whole(self._web_search_item(opened.block)),)
        elif type.endswith("_tool_result") or type == "container_upload":
            return _server_tool_parts(type, read_raw())
        return ()

    def _stop_server_tool(self, opened: OpenBlock) -> Sequence[Part]:
        block = opened.block
        try:
            given = _tool_input(opened)
        except json.JSONError:  # it was not run, and would be refused if it went back
            message = f"The call of '{block.name}' was cut short; it was left out."
            return (parts.Warn("dropped_call", message),)
        if block.name == "web_search" and self._has_web_search:
            self._search_queries[block.id or ""] = given.get("query") if is_object(given) else None
            return ()
        return _server_tool_parts(block.type, opened.raw | {"input": given})

    def _web_search_item(self, block: ContentBlock) -> ExtensionItem:
        """Tell a search as OpenAI tells it."""
        found = block.content if is_array(block.content) else None
        action = {
            "type": "search",
            "query": self._search_queries.get(block.tool_use_id or "") or "",
        }
        if self._wants_sources:
            pages = [page for page in found or [] if is_object(page)]
            action["sources"] = [{"type": "url", "url": page.get("url")} for page in pages]
        status = "failed" if found is None else "completed"
        return ExtensionItem(type="openai:web_search_call", status=status, extra={"action": action})

    # --- the message ---

    def _usage_parts(self, counts: Usage | None) -> list[Part]:
        if counts is None:
            return []
        self._input_tokens = _coalesce(counts.input_tokens, self._input_tokens)
        self._cache_write_tokens = _coalesce(
            counts.cache_creation_input_tokens, self._cache_write_tokens
        )
        self._cache_read_tokens = _coalesce(counts.cache_read_input_tokens, self._cache_read_tokens)
        spent = counts.output_tokens_details
        return [
            parts.Usage(
                input_tokens=self._input_tokens
                + self._cache_write_tokens
                + self._cache_read_tokens,
                output_tokens=counts.output_tokens,
                cached_tokens=self._cache_read_tokens,
                reasoning_tokens=spent.thinking_tokens if spent else None,
            )
        ]

    def _stop_parts(self, stop: Delta | MessageBody) -> list[Part]:
        reason, details = stop.stop_reason, stop.stop_details
        if reason is None:
            return []
        told: list[Part] = []
        if reason == "refusal" and details and details.explanation:
            told.append(parts.Refusal(details.explanation, key="refusal"))
        if reason == "pause_turn":
            told.append(parts.Warn("paused", PAUSED_MESSAGE))
        return told + self._finish_parts(reason)

    def _finish_parts(self, reason: str | None) -> list[Part]:
        return self.finish_parts(finish_part(reason, REASONS, has_calls=self._has_calls))

    def _failure(self, told: ErrorBody | None) -> parts.Failure:
        error = told or ErrorBody()
        fault = ErrorInfo(error.message or "", error.type)
        return self.adapter.failure_part(fault, infer_status(fault, 500))


def _tool_input(opened: OpenBlock) -> object:
    """Return the input of a tool that the provider runs; raises JSONError if it is not whole."""
    if not opened.pieces:
        return opened.block.input
    return json.decode_lenient(repair_surrogates("".join(opened.pieces)).encode())


def _server_tool_parts(type: str, block: RawBlock) -> Sequence[Part]:
    """Tell a block that is only Anthropic's, so that it can go back as it came."""
    name = f"{SLUG}{type}"
    if not is_extension_type(name):
        return ()
    return (parts.Whole(ExtensionItem(type=name, status="completed", extra={"block": block})),)


def _coalesce(new: int | None, old: int) -> int:
    return old if new is None else new
