"""Decodes chat chunks and whole answers into parts.

Dialect notes: a whole answer is one chunk whose choice has a `message` instead of a `delta`. A
call's id and name come once, its arguments in fragments, and only the index says which call a
fragment belongs to; servers repeat, omit and reuse all three, which `tool_calls.py` handles.
Reasoning comes in one of three fields; `reasoning_state.py` keeps what is sent back with it. Usage
may come in any chunk, usually in a last one without choices. `[DONE]` ends a stream, even one
without a finish reason.
"""

from collections.abc import Iterable, Mapping

from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    TRUNCATION_REASONS,
    Adapter,
    Decoder,
    finish_part,
)
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.logprobs import convert_logprobs
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
    read_chunk,
)
from antiphon.protocol import content, parts
from antiphon.protocol.parts import Part
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
"""The finish reasons. `model_length` is Mistral's name for a full context window."""

FAILURE_REASONS = frozenset({"error", "insufficient_system_resource", "abort", "network_error"})
"""Finish reasons that are failures: of OpenRouter and Mistral, DeepSeek, vLLM, and Zhipu."""

TEXT_PIECES = frozenset({"text", "thinking", "refusal"})
"""The types of content pieces that hold text."""


def text_in_chunk(data: bytes) -> object:
    """Return the text of a chunk's first choice."""
    delta = (read_chunk(data).choices or [Choice()])[0].delta
    return delta and delta.content


class ChatDecoder(Decoder):
    """Decodes one answer."""

    def __init__(self, adapter: Adapter) -> None:
        self._sse = sse.Decoder(MAX_EVENT_BYTES)
        super().__init__(adapter, self._sse)
        self._fast_text = ChatTextFastPath()
        self._tool_calls = ToolCalls()
        self._reasoning = ReasoningState()

    def feed(self, data: bytes | None) -> list[Part]:
        """Return the parts that these bytes complete, by the text fast path where it applies."""
        if data and self.text_fast_path and (texts := self.text_fast_path(data)):
            self._reasoning.last = "text"
            return [parts.Text(text) for text in texts]
        decoded = super().feed(data)
        # The fast path needs whole events: it does not know what an earlier read left over.
        is_ready = not (self._sse.is_mid_event or self.done or self._reasoning.has_details_due)
        self.text_fast_path = (
            self._fast_text.extract_texts if is_ready and self._fast_text.is_learned else None
        )
        return decoded

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        """Decode one event."""
        if not isinstance(chunk, sse.SseEvent):
            return ()
        data = chunk.data
        if chunk.event == "error":
            return (self._failure(parse_error_data(data)),)
        if data.startswith(sse.DONE):
            ending = self._finish_parts(None)
            self.done = True
            return ending
        if not data:
            return ()
        body = read_chunk(data)
        choices = body.choices
        if choices and len(choices) == 1 and not (body.usage or body.error or body.x_groq):
            # Nearly every chunk holds text and nothing else. This is the hot path of a stream that
            # the fast path cannot handle.
            choice = choices[0]
            delta = choice.delta
            if (
                delta is not None
                and type(text := delta.content) is str
                and text
                and not (choice.finish_reason or choice.index or choice.logprobs or choice.error)
                and not (delta.reasoning_content or delta.reasoning or delta.tool_calls)
                and not (delta.refusal or delta.function_call or delta.annotations)
                and not (delta.images or delta.audio or delta.reasoning_details)
                and not (self._reasoning.details and self._reasoning.has_details_due)
            ):
                self._reasoning.last = "text"
                if self._fast_text.attempts_left:
                    self._fast_text.learn(data, text, text_in_chunk)
                return (parts.Text(text),)
        return self._decode(body, data)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Decode a whole answer, which must have a choice."""
        decoded = self._decode(read_chunk(body), body)
        if decoded and isinstance(decoded[-1], parts.Failure):
            return decoded
        if all(isinstance(part, parts.Usage) for part in decoded):
            error = ErrorInfo("answered without a choice.", "model_error", "upstream_invalid")
            decoded.append(self.adapter.failure_part(error))
        elif not any(isinstance(part, parts.Finish) for part in decoded):
            decoded += self._finish_parts(None)
        return decoded

    def _decode(self, chunk: Chunk, data: bytes) -> list[Part]:
        if chunk.error or chunk.object == "error":
            return [self._failure(parse_error_data(data))]
        extras = chunk.x_groq or GroqExtras()
        if extras.error:
            return [self._failure({"error": extras.error})]
        decoded: list[Part] = []
        # We never ask for more than one choice, but some servers send several.
        for choice in chunk.choices or ():
            if not choice.index:
                self._decode_choice(choice, decoded)
        if usage := chunk.usage or extras.usage:
            decoded.append(usage_part(usage))
        return decoded

    def _decode_choice(self, choice: Choice, decoded: list[Part]) -> None:
        if choice.error:
            decoded.append(self._failure({"error": choice.error}))
            return
        if choice.delta is not None:
            self._decode_message(choice.delta, choice.logprobs, decoded)
        elif choice.message is not None:
            self._tool_calls.by_position = True
            self._decode_message(choice.message, choice.logprobs, decoded)
        # Servers may repeat the reason, for example in the chunk with the usage.
        if choice.finish_reason and not self.finished:
            decoded += self._finish_parts(choice.finish_reason)

    def _decode_message(
        self, message: MessageDelta, logprobs: Logprobs | None, decoded: list[Part]
    ) -> None:
        fragments = message.tool_calls or (
            message.function_call and [ToolCallFragment(function=message.function_call)]
        )
        thinking = message.reasoning_content or message.reasoning
        if thinking and isinstance(thinking, str):
            field = "reasoning_content" if message.reasoning_content else "reasoning"
            decoded.append(self._reasoning.add_text(thinking, field))
        if message.reasoning_details:
            self._reasoning.add_details(message.reasoning_details)
        text = message.content or message.refusal
        if fragments or (text and self._reasoning.has_details_due):
            decoded += self._reasoning.flush()
        if isinstance(message.content, list):
            self._decode_pieces(message.content, decoded)
        # A chunk without anything becomes an empty text, so that every chunk has a delta.
        elif message.content or not (
            decoded or fragments or message.refusal or message.reasoning_details
        ):
            tokens = convert_logprobs(logprobs.content) if logprobs else None
            decoded.append(parts.Text(message.content or "", logprobs=tokens))
        if message.refusal:
            decoded.append(parts.Refusal(message.refusal))
        if message.annotations:
            decoded.extend(citation_parts(message.annotations))
        if fragments:
            decoded.extend(self._tool_calls.feed(fragments))
            self._reasoning.last = ""
        elif decoded and type(decoded[-1]) is not parts.Reasoning:
            self._reasoning.last = "text" if text or self._reasoning.last == "text" else ""
        if message.images or message.audio or has_unsupported_pieces(message.content):
            decoded += self.unsupported_output_parts()

    def _decode_pieces(self, pieces: list[ContentPiece], decoded: list[Part]) -> None:
        before = len(decoded)
        for piece in pieces:
            if thinking := thinking_text(piece.thinking):
                decoded.append(self._reasoning.add_text(thinking, "content"))
            elif piece.refusal:
                decoded.append(parts.Refusal(piece.refusal))
            elif piece.text:
                self._reasoning.last = "text"
                decoded.append(parts.Text(piece.text))
        if len(decoded) == before:
            decoded.append(parts.Text(""))

    def _finish_parts(self, raw: str | None) -> list[Part]:
        if self.finished:
            return []
        if raw in FAILURE_REASONS:
            error = ErrorInfo(f"stopped with '{raw}'.", "model_error", raw)
            return [self.adapter.failure_part(error)]
        truncated = REASONS.get(raw or "") in TRUNCATION_REASONS
        return [
            *self._reasoning.flush(),
            *self._tool_calls.flush(truncated=truncated),
            finish_part(raw, REASONS, has_calls=self._tool_calls.has_calls),
        ]

    def _failure(self, value: object) -> parts.Failure:
        return self.adapter.failure_part(parse_error(value))


def parse_error_data(data: bytes) -> object:
    """Return an error event as JSON; plain text is wrapped in an object."""
    try:
        return json.decode_lenient(data)
    except json.JSONError:
        return {"error": data.decode(errors="replace")}


def usage_part(usage: Usage) -> parts.Usage:
    """Convert token counts. The prompt's tokens include the cached ones.

    Some servers, such as xAI's, count reasoning tokens only in the total.
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
    """Yield the annotations that are citations."""
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
    """Return the text of a thinking piece."""
    if isinstance(thinking, list):
        return "".join(piece.text or "" for piece in thinking)
    return thinking or ""


def has_unsupported_pieces(content: list[ContentPiece] | str | None) -> bool:
    """Return whether any content piece, or any piece of its thinking, is not text."""
    return isinstance(content, list) and any(
        has_unsupported_pieces(piece.thinking)
        or not (piece.type in TEXT_PIECES or piece.text or piece.thinking or piece.refusal)
        for piece in content
    )
