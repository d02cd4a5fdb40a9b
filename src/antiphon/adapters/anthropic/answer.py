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

from antiphon.adapters.anthropic.shapes import (
    SLUG,
    Answer,
    Block,
    Counts,
    Delta,
    Event,
    Opened,
    Raw,
    Seal,
    Told,
    note_of,
    raw,
    read_answer,
    read_event,
)
from antiphon.adapters.base import MAX_EVENT, Adapter, Decoder, Prompt, finish
from antiphon.adapters.faults import Fault, status_of
from antiphon.adapters.fields import json_text
from antiphon.adapters.recall import dropped, recalled
from antiphon.core import parts
from antiphon.core.items import ExtensionItem
from antiphon.core.parts import Part
from antiphon.core.schema import is_array, is_object
from antiphon.core.surrogates import mend
from antiphon.core.tools import WEB_SEARCH
from antiphon.core.value import is_extension_type
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
PAUSED = "The provider paused a long turn; send the conversation again to let it go on."
SOURCES = "web_search_call.action.sources"


class AnthropicDecoder(Decoder):
    """Hears one message of Claude's."""

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        super().__init__(adapter, sse.Decoder(MAX_EVENT))
        reasoning = prompt.request.reasoning
        self._summarised = bool(reasoning and reasoning.summary)
        self._sourced = SOURCES in prompt.request.include
        self._may_call = not recalled(prompt)
        self._searches = any(tool.type in WEB_SEARCH for tool in prompt.request.tools)
        self._open: dict[int, Opened] = {}
        self._last: Opened | None = None
        self._queries: dict[str, object] = {}
        self._calls = False
        self._input = self._written = self._cached = 0

    # --- streams ---

    def read(self, chunk: object) -> Sequence[Part]:
        """Return the parts that an event means."""
        sent = cast("sse.Event", chunk)
        if sent.data == sse.DONE:
            self.done = True
            return ()
        event = read_event(sent.data)
        match event.type or sent.event:
            case "content_block_delta" if event.delta:
                return self._grown(event.index, event.delta)
            case "content_block_start" if block := event.content_block:
                whole = partial(raw, sent.data, "content_block")
                return [*self.settled(), *self._begun(event.index, block, whole)]
            case "content_block_stop":
                return self._ended(event.index)
            case type:
                return self._message(type, event)

    def _message(self, type: str, event: Event) -> Sequence[Part]:
        """Hear what is said of the message as a whole."""
        match type:
            case "message_start":
                return self._counted(event.message.usage if event.message else None)
            case "message_delta":
                return self._counted(event.usage) + self._stopped(event.delta or Delta())
            case "message_stop":
                self.done = True
                return () if self.finished else self._finish(None)
            case "error":
                return (self._failed(event.error),)
            case _:
                return ()

    # --- whole answers ---

    def read_whole(self, body: bytes) -> list[Part]:
        """Return the parts that a whole answer means."""
        answer = read_answer(body)
        if answer.error is not None:
            return [self._failed(answer.error)]
        if answer.content is None:
            raise ValueError("it is no message")
        told: list[Part] = []
        for index, block in enumerate(answer.content):
            told += self.settled()
            told += self._begun(index, block, partial(raw, body, "content", index))
            told += self._ended(index)
        told += self._counted(answer.usage)
        return told + (self._stopped(answer) or self._finish(None))

    # --- blocks ---

    def _begun(self, index: int, block: Block, whole: Callable[[], Raw]) -> Sequence[Part]:
        before, opened = self._last, Opened(block, index)
        self._open[index] = self._last = opened
        match block.type:
            case "text":
                if before is not None and before.block.type == "text":
                    opened.key, opened.part = before.key, before.part + 1
                opened.notes += block.citations if is_array(block.citations) else []
                return self._text(opened, block.text or None)
            case "thinking":
                return self._thought(opened, block.thinking)
            case "redacted_thinking" if block.data:
                sealed = json_text(Seal(redacted=block.data))
                return (parts.Reasoning(key=index, encrypted_content=sealed),)
            case "tool_use" if not self._may_call:
                del self._open[index]
                return (dropped(block.name or ""),)
            case "tool_use":
                self._calls = True
                return (parts.Call(index, block.name or "", call_id=block.id or ""),)
            case _:
                return self._served_begun(opened, whole)

    def _grown(self, index: int, delta: Delta) -> Sequence[Part]:
        opened = self._open.get(index)
        if opened is None:
            return ()
        match opened.block.type, delta.type:
            case "text", "text_delta":
                return self._text(opened, delta.text)
            case "thinking", "thinking_delta":
                return self._thought(opened, delta.thinking)
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

    def _ended(self, index: int) -> Sequence[Part]:
        opened = self._open.pop(index, None)
        if opened is None:
            return ()
        block, key = opened.block, opened.key
        match block.type:
            case "text" if opened.notes:
                notes = (note_of(note, opened.size) for note in opened.notes)
                return [parts.Annotation(note, key, opened.part) for note in notes if note]
            case "thinking" if block.signature:
                sealed = json_text(Seal(block.signature, mend("".join(opened.pieces))))
                return (parts.Reasoning(key=key, encrypted_content=sealed),)
            case "tool_use":
                self.ended_calls.append(key)
                given = json_text(block.input) if block.input and not opened.size else ""
                return (parts.Call(key, arguments=given),)
            case "server_tool_use":
                return self._served(opened)
            case _:
                return ()

    def _text(self, opened: Opened, text: str | None) -> Sequence[Part]:
        if text is None:
            return ()
        opened.size += len(text)
        return (parts.Text(text, opened.key, opened.part),)

    def _thought(self, opened: Opened, text: str | None) -> Sequence[Part]:
        if not text:
            return ()
        opened.pieces.append(text)
        if self._summarised:
            return (parts.Reasoning(key=opened.key, summary=text),)
        return (parts.Reasoning(text, opened.key),)

    # --- tools that the provider runs ---

    def _served_begun(self, opened: Opened, whole: Callable[[], Raw]) -> Sequence[Part]:
        type = opened.block.type
        if type == "server_tool_use":
            opened.raw = whole()
        elif type == "web_search_tool_result" and self._searches:
            return (parts.Whole(self._searched(opened.block)),)
        elif type.endswith("_tool_result") or type == "container_upload":
            return _hosted(type, whole())
        return ()

    def _served(self, opened: Opened) -> Sequence[Part]:
        block = opened.block
        try:
            given = _given(opened)
        except json.JSONError:  # it was not run, and would be refused if it went back
            message = f"The call of '{block.name}' was cut short; it was left out."
            return (parts.Warn("dropped_call", message),)
        if block.name == "web_search" and self._searches:
            self._queries[block.id or ""] = given.get("query") if is_object(given) else None
            return ()
        return _hosted(block.type, opened.raw | {"input": given})

    def _searched(self, block: Block) -> ExtensionItem:
        """Tell a search as OpenAI tells it."""
        found = block.content if is_array(block.content) else None
        action = {"type": "search", "query": self._queries.get(block.tool_use_id or "") or ""}
        if self._sourced:
            pages = [page for page in found or [] if is_object(page)]
            action["sources"] = [{"type": "url", "url": page.get("url")} for page in pages]
        status = "failed" if found is None else "completed"
        return ExtensionItem(type="openai:web_search_call", status=status, extra={"action": action})

    # --- the message ---

    def _counted(self, counts: Counts | None) -> list[Part]:
        if counts is None:
            return []
        self._input = _either(counts.input_tokens, self._input)
        self._written = _either(counts.cache_creation_input_tokens, self._written)
        self._cached = _either(counts.cache_read_input_tokens, self._cached)
        spent = counts.output_tokens_details
        return [
            parts.Usage(
                input_tokens=self._input + self._written + self._cached,
                output_tokens=counts.output_tokens,
                cached_tokens=self._cached,
                reasoning_tokens=spent.thinking_tokens if spent else None,
            )
        ]

    def _stopped(self, said: Delta | Answer) -> list[Part]:
        reason, details = said.stop_reason, said.stop_details
        if reason is None:
            return []
        told: list[Part] = []
        if reason == "refusal" and details and details.explanation:
            told.append(parts.Refusal(details.explanation, key="refusal"))
        if reason == "pause_turn":
            told.append(parts.Warn("paused", PAUSED))
        return told + self._finish(reason)

    def _finish(self, reason: str | None) -> list[Part]:
        return self.ending(finish(reason, REASONS, called=self._calls))

    def _failed(self, told: Told | None) -> parts.Failure:
        error = told or Told()
        fault = Fault(error.message or "", error.type)
        return self.adapter.failure(fault, status_of(fault, 500))


def _given(opened: Opened) -> object:
    """Return the input of a tool that the provider runs; raises JSONError if it is not whole."""
    if not opened.pieces:
        return opened.block.input
    return json.decode_lenient(mend("".join(opened.pieces)).encode())


def _hosted(type: str, block: Raw) -> Sequence[Part]:
    """Tell a block that is only Anthropic's, so that it can go back as it came."""
    name = f"{SLUG}{type}"
    if not is_extension_type(name):
        return ()
    return (parts.Whole(ExtensionItem(type=name, status="completed", extra={"block": block})),)


def _either(new: int | None, old: int) -> int:
    return old if new is None else new
