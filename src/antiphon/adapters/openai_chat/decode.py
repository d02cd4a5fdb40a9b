"""What stands beside the words of a chat answer, put right where it has the wrong shape.

Only what could not be read as it came is brought here. Counts, log probabilities and annotations
are kept as far as they fit; calls may have numbers for ids and texts for indexes, and arguments of
any kind. The words themselves are not touched: an answer without readable words is none.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    TRUNCATION_REASONS,
    Adapter,
    Decoder,
    JsonReader,
    finish_part,
)
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.json_access import as_array, as_object, to_json_text
from antiphon.adapters.logprobs import TokenLogprob, convert_logprobs
from antiphon.adapters.openai_chat.fast_text import ChatTextFastPath
from antiphon.adapters.openai_chat.reasoning_state import ReasoningState
from antiphon.adapters.openai_chat.tool_calls import ToolCalls
from antiphon.adapters.openai_chat.wire_types import (
    AnnotationBody,
    Choice,
    Chunk,
    ContentPiece,
    GroqExtras,
    Logprobs,
    MessageDelta,
    ToolCallFragment,
    Usage,
)
from antiphon.protocol import content, parts
from antiphon.protocol.parts import Part
from antiphon.wire import json, sse

FieldChange = Callable[[object], object]


def normalize_chunk(chunk: object) -> object:
    """Return a chunk, or a whole answer, whose side data has the right shape."""
    return _apply_changes(chunk, CHUNK_CHANGES)


def fits(kind: object, value: object) -> bool:
    """Tell whether a value can be read as something of a kind."""
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _apply_changes(value: object, changes: Mapping[str, FieldChange]) -> object:
    """Return an object with some of its members changed, if it has them."""
    fields = as_object(value)
    new = {name: change(fields[name]) for name, change in changes.items() if name in fields}
    return fields | new if new else value


def _change_each(changes: Mapping[str, FieldChange]) -> FieldChange:
    return lambda value: [_apply_changes(entry, changes) for entry in as_array(value)] or value


def _change_object(changes: Mapping[str, FieldChange]) -> FieldChange:
    return lambda value: _apply_changes(value, changes)


def _normalize_usage(value: object) -> object:
    counts = as_object(value).items()
    return {name: count for name, count in counts if fits(Usage, {name: count})} or None


def _normalize_groq(value: object) -> object:
    return _apply_changes(as_object(value), {"usage": _normalize_usage})


def _normalize_logprobs(value: object) -> object:
    return {
        "content": [t for t in as_array(as_object(value).get("content")) if fits(TokenLogprob, t)]
    }


def _normalize_annotations(value: object) -> object:
    return [note for note in as_array(value) if fits(AnnotationBody, note)]


def _normalize_id(value: object) -> object:
    return str(value) if isinstance(value, int) else value


def _normalize_index(value: object) -> object:
    return value if fits(int, value) else None


def _normalize_arguments(value: object) -> object:
    return to_json_text(value) if value else ""  # PHP writes an empty object as a list


FUNCTION_CHANGE = _change_object({"arguments": _normalize_arguments})
MESSAGE_CHANGE = _change_object(
    {
        "tool_calls": _change_each(
            {"id": _normalize_id, "index": _normalize_index, "function": FUNCTION_CHANGE}
        ),
        "function_call": FUNCTION_CHANGE,
        "annotations": _normalize_annotations,
    }
)
CHUNK_CHANGES: Mapping[str, FieldChange] = {
    "choices": _change_each(
        {"delta": MESSAGE_CHANGE, "message": MESSAGE_CHANGE, "logprobs": _normalize_logprobs}
    ),
    "usage": _normalize_usage,
    "x_groq": _normalize_groq,
}
"""What is changed of a chunk, and how."""


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
        self.text_fast_path = (
            self._fast_text.extract_texts if between and self._fast_text.is_learned else None
        )
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

    def _decode_message(
        self, message: MessageDelta, logprobs: Logprobs | None, told: list[Part]
    ) -> None:
        called = message.tool_calls or (
            message.function_call and [ToolCallFragment(function=message.function_call)]
        )
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
        elif message.content or not (
            told or called or message.refusal or message.reasoning_details
        ):
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
        return [
            *self._reasoning.flush(),
            *told,
            finish_part(raw, REASONS, has_calls=self._tool_calls.has_calls),
        ]

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
