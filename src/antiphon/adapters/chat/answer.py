"""Chat Completions, heard: the chunks of a stream and whole answers, as parts.

Dialect notes: a whole answer is one chunk whose choice has a `message` in place of a `delta`. A
call's id and name come once, its arguments bit by bit, and only its index says which call a bit
belongs to; servers repeat, omit and reuse ids, names and indexes, so `calls.py` sorts them.
Thinking has three spellings, and `thinking.py` knows what it goes back with. Usage comes in any
chunk, mostly in one without choices after the last. `[DONE]` ends a stream, also one that never
said why.
"""

from collections.abc import Iterable, Mapping

from antiphon.adapters.base import TRUNCATION_REASONS, MAX_EVENT_BYTES, Adapter, Decoder, JsonReader, finish_part
from antiphon.adapters.chat.calls import ToolCalls
from antiphon.adapters.chat.refrain import ChatTextFastPath
from antiphon.adapters.chat.shapes import (
    Choice,
    Chunk,
    ToolCallFragment,
    GroqExtras,
    Logprobs,
    AnnotationBody,
    ContentPiece,
    MessageDelta,
    Usage,
)
from antiphon.adapters.chat.thinking import ReasoningState
from antiphon.adapters.chat.tidy import normalize_chunk
from antiphon.adapters.faults import ErrorInfo, parse_error
from antiphon.adapters.logprobs import convert_logprobs
from antiphon.core import content, parts
from antiphon.core.parts import Part
from antiphon.wire import json, sse

REASONS: Mapping[str, parts.Reason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
"""Why a model stops; `model_length` is Mistral's word for a window that is full."""

FAILURE_REASONS = frozenset({"error", "insufficient_system_resource", "abort", "network_error"})
"""Reasons that are failures: OpenRouter's and Mistral's, DeepSeek's, vLLM's, and Zhipu's."""

TEXT_PIECES = frozenset({"text", "thinking", "refusal"})
"""The pieces of content that are words, if they hold anything."""

read_chunk = JsonReader(Chunk, normalize_chunk)


def text_in_chunk(data: bytes) -> object:
    """Return the words of a chunk that has a choice."""
    said = (read_chunk(data).choices or [Choice()])[0].delta
    return said and said.content


class ChatDecoder(Decoder):
    """Hears one answer."""

    def __init__(self, adapter: Adapter) -> None:
        self._sse = sse.Decoder(MAX_EVENT_BYTES)
        super().__init__(adapter, self._sse)
        self._fast_text = ChatTextFastPath()
        self._tool_calls = ToolCalls()
        self._reasoning = ReasoningState()

    def feed(self, data: bytes | None) -> list[Part]:
        """Return the parts that some bytes complete; words that come as before, without ado."""
        if data and self.text_fast_path and (said := self.text_fast_path(data)):
            self._reasoning.last = "words"
            return [parts.Text(words) for words in said]
        told = super().feed(data)
        between = not (self._sse.is_mid_event or self.done or self._reasoning.has_details_due)
        self.text_fast_path = self._fast_text.extract_texts if between and self._fast_text.is_learned else None
        return told

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Read one event."""
        if not isinstance(chunk, sse.SseEvent):
            return ()
        data = chunk.data
        if chunk.event == "error":
            return (self._failure(parse_error_data(data)),)
        if data.startswith(sse.DONE):
            told = self._finish_parts(None)
            self.done = True
            return told
        if not data:
            return ()
        heard = read_chunk(data)
        choices = heard.choices
        if choices and len(choices) == 1 and not (heard.usage or heard.error or heard.x_groq):
            # Words and nothing else, as nearly every chunk is.
            choice = choices[0]
            said = choice.delta
            if (
                said is not None
                and type(words := said.content) is str
                and words
                and not (choice.finish_reason or choice.index or choice.logprobs or choice.error)
                and not (said.reasoning_content or said.reasoning or said.tool_calls)
                and not (said.refusal or said.function_call or said.annotations)
                and not (said.images or said.audio or said.reasoning_details)
                and not (self._reasoning.details and self._reasoning.has_details_due)
            ):
                self._reasoning.last = "words"
                if self._fast_text.trials:
                    self._fast_text.learn(data, words, text_in_chunk)
                return (parts.Text(words),)
        return self._decode(heard, data)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Read a whole answer, which must hold one."""
        told = self._decode(read_chunk(body), body)
        if told and isinstance(told[-1], parts.Failure):
            return told
        if all(isinstance(part, parts.Usage) for part in told):
            fault = ErrorInfo("answered without a choice.", "model_error", "upstream_invalid")
            told.append(self.adapter.failure_part(fault))
        elif not any(isinstance(part, parts.Finish) for part in told):
            told += self._finish_parts(None)
        return told

    # --- what a chunk says ---

    def _decode(self, chunk: Chunk, data: bytes) -> list[Part]:
        if chunk.error or chunk.object == "error":
            return [self._failure(parse_error_data(data))]
        aside = chunk.x_groq or GroqExtras()
        if aside.error:
            return [self._failure({"error": aside.error})]
        told: list[Part] = []
        for choice in chunk.choices or ():
            if not choice.index:
                self._decode_choice(choice, told)
        if usage := chunk.usage or aside.usage:
            told.append(usage_part(usage))
        return told

    def _decode_choice(self, choice: Choice, told: list[Part]) -> None:
        if choice.error:
            told.append(self._failure({"error": choice.error}))
            return
        if choice.delta is not None:
            self._decode_message(choice.delta, choice.logprobs, told)
        elif choice.message is not None:
            self._tool_calls.by_position = True
            self._decode_message(choice.message, choice.logprobs, told)
        if choice.finish_reason and not self.finished:
            told += self._finish_parts(choice.finish_reason)

    def _decode_message(self, message: MessageDelta, logprobs: Logprobs | None, told: list[Part]) -> None:
        called = message.tool_calls or (message.function_call and [ToolCallFragment(function=message.function_call)])
        thinking = message.reasoning_content or message.reasoning
        if thinking and isinstance(thinking, str):
            field = "reasoning_content" if message.reasoning_content else "reasoning"
            told.append(self._reasoning.add_text(thinking, field))
        if message.reasoning_details:
            self._reasoning.add_details(message.reasoning_details)
        words = message.content or message.refusal
        if called or (words and self._reasoning.has_details_due):
            told += self._reasoning.flush()
        if isinstance(message.content, list):
            self._decode_pieces(message.content, told)
        elif message.content or not (told or called or message.refusal or message.reasoning_details):
            tokens = convert_logprobs(logprobs.content) if logprobs else None
            told.append(parts.Text(message.content or "", logprobs=tokens))
        if message.refusal:
            told.append(parts.Refusal(message.refusal))
        if message.annotations:
            told.extend(citation_parts(message.annotations))
        if called:
            told.extend(self._tool_calls.feed(called))
        if called:
            self._reasoning.last = ""
        elif told and type(told[-1]) is not parts.Reasoning:
            self._reasoning.last = "words" if words or self._reasoning.last == "words" else ""
        if message.images or message.audio or has_unsupported_pieces(message.content):
            told += self.unsupported_output_parts()

    def _decode_pieces(self, pieces: list[ContentPiece], told: list[Part]) -> None:
        before = len(told)
        for piece in pieces:
            if thinking := thinking_text(piece.thinking):
                told.append(self._reasoning.add_text(thinking, "content"))
            elif piece.refusal:
                told.append(parts.Refusal(piece.refusal))
            elif piece.text:
                self._reasoning.last = "words"
                told.append(parts.Text(piece.text))
        if len(told) == before:
            told.append(parts.Text(""))

    # --- how it ends ---

    def _finish_parts(self, raw: str | None) -> list[Part]:
        if self.finished:
            return []
        if raw in FAILURE_REASONS:
            fault = ErrorInfo(f"stopped with '{raw}'.", "model_error", raw)
            return [self.adapter.failure_part(fault)]
        told = self._tool_calls.flush(truncated=REASONS.get(raw or "") in TRUNCATION_REASONS)
        return [*self._reasoning.flush(), *told, finish_part(raw, REASONS, has_calls=self._tool_calls.has_calls)]

    def _failure(self, value: object) -> parts.Failure:
        return self.adapter.failure_part(parse_error(value))


def parse_error_data(data: bytes) -> object:
    """Read an error, which may be mere words."""
    try:
        return json.decode_lenient(data)
    except json.JSONError:
        return {"error": data.decode(errors="replace")}


def usage_part(usage: Usage) -> parts.Usage:
    """Read token counts; those of the prompt include what was cached.

    Some servers, xAI's for one, count thinking in nothing but the total.
    """
    read = usage.prompt_tokens_details or usage.prompt_token_details
    written = usage.completion_tokens_details
    given, made, total = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
    cached = read.cached_tokens if read else None
    if given is not None and made is not None and total is not None and (cached or 0) <= given:
        made = max(made, total - given)
    return parts.Usage(
        given,
        made,
        cached,
        written.reasoning_tokens if written else None,
    )


def citation_parts(annotations: list[AnnotationBody]) -> Iterable[Part]:
    """Read the annotations that are citations."""
    for note in annotations:
        if cited := note.url_citation:
            yield parts.Annotation(
                content.UrlCitation(
                    url=cited.url,
                    title=cited.title or "",
                    start_index=max(0, cited.start_index or 0),
                    end_index=max(0, cited.end_index or 0),
                )
            )


def thinking_text(thinking: list[ContentPiece] | str | None) -> str:
    """Return the words of a thinking piece."""
    if isinstance(thinking, list):
        return "".join(piece.text or "" for piece in thinking)
    return thinking or ""


def has_unsupported_pieces(content: list[ContentPiece] | str | None) -> bool:
    """Tell whether any piece of content, or of a thought in it, is none: an image, say."""
    return isinstance(content, list) and any(
        has_unsupported_pieces(piece.thinking)
        or not (piece.type in TEXT_PIECES or piece.text or piece.thinking or piece.refusal)
        for piece in content
    )
