"""What Gemini answers, heard as parts.

Dialect notes: every chunk has the shape of a whole answer and no name; there is no `[DONE]`. A call
comes whole, its arguments an object, and has no number of its own, so ours is a running one.
`thought: true` marks a summary of the thinking. A signature on a call is told before it, one on a
text after it. Usage is repeated, and the last one is right. Offsets of citations count bytes. An
error may stand in the stream as bare JSON, without `data:`.
"""

import re
from collections.abc import Iterator, Mapping

from antiphon.adapters.base import (
    MAX_EVENT_BYTES,
    Adapter,
    Decoder,
    finish_part,
)
from antiphon.adapters.errors import TRUNCATED, ErrorInfo
from antiphon.adapters.google.thinking import ThoughtSignature
from antiphon.adapters.google.wire_types import (
    Candidate,
    CitationMetadata,
    CitedPage,
    ContentPart,
    FunctionCall,
    GenerateContentResponse,
    GroundingMetadata,
    Segment,
    decode_responses,
)
from antiphon.adapters.json_access import to_json_text
from antiphon.protocol.content import LogProb, UrlCitation
from antiphon.protocol.parts import (
    Annotation,
    Call,
    Failure,
    Finish,
    Part,
    Reason,
    Reasoning,
    Refusal,
    Text,
)
from antiphon.wire import sse

REASONS: Mapping[str, Reason] = {
    "STOP": "stop",
    "FINISH_REASON_UNSPECIFIED": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
FAILURE_REASONS: Mapping[str, str] = {
    "MALFORMED_FUNCTION_CALL": "the model made a call that cannot be read.",
    "UNEXPECTED_TOOL_CALL": "the model called a tool that it was not given.",
    "TOO_MANY_TOOL_CALLS": "the model called too many tools in a row.",
    "MISSING_THOUGHT_SIGNATURE": "a call in the conversation has lost its thought signature.",
    "MALFORMED_RESPONSE": "the model made an answer that cannot be read.",
    "NO_IMAGE": "the model was to make an image and made none.",
    "IMAGE_OTHER": "the model could not make the image.",
    "OTHER": "the model broke off for a reason that Google does not name.",
}
"""The reasons after which there is no answer: failures, in words for when Google has none."""

BARE_JSON_LINE = re.compile(rb"\n[{\[]")
"""A line that is no field of an event, but JSON."""


class GoogleSseDecoder:
    """Cuts a stream into events, up to where bare JSON begins, which is one more at the end."""

    def __init__(self) -> None:
        self._sse = sse.Decoder(MAX_EVENT_BYTES)
        self._bare_json = bytearray()
        self._at_line_start = True

    def feed(self, data: bytes) -> list[sse.SseEvent]:
        """Return the events that some bytes complete."""
        start = 0 if self._bare_json else self._find_bare_json(data)
        self._at_line_start = data.endswith(b"\n") if data else self._at_line_start
        if start < 0:
            return self._sse.feed(data)
        self._bare_json += data[start:]
        if len(self._bare_json) > MAX_EVENT_BYTES:
            raise ValueError(f"JSON of more than {MAX_EVENT_BYTES} bytes")
        return self._sse.feed(data[:start])

    def close(self) -> list[sse.SseEvent]:
        """Return the event whose blank line never came, and the bare JSON."""
        bare = [sse.SseEvent("message", bytes(self._bare_json))] if self._bare_json else []
        return self._sse.close() + bare

    def _find_bare_json(self, data: bytes) -> int:
        if self._at_line_start and data[:1] in (b"{", b"["):
            return 0
        found = BARE_JSON_LINE.search(data)
        return found.start() + 1 if found else -1


class GoogleDecoder(Decoder):
    """Hears one answer of Gemini's."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, GoogleSseDecoder())
        self._call_count = 0
        self._reasoning_key = 0
        self._text_pieces: list[str] = []
        self._pending_signature: Reasoning | None = None
        self._last_finish: Finish | None = None
        self._seen_citations: set[tuple[str, int, int]] = set()

    def decode_chunk(self, chunk: object) -> list[Part]:
        """Return the parts that a chunk means."""
        told: list[Part] = []
        if isinstance(chunk, sse.SseEvent):
            self.done = chunk.data == sse.DONE
            for answer in () if self.done else decode_responses(chunk.data):
                self._decode_response(answer, told)
        return told

    def decode_body(self, body: bytes) -> list[Part]:
        """Return the parts that an answer means, or an array of chunks."""
        answers = decode_responses(body.strip())
        told: list[Part] = []
        for answer in answers:
            self._decode_response(answer, told)
        if not (told or self._last_finish):
            raise ValueError("it is no answer")
        if self._last_finish is None and not any(isinstance(part, Failure) for part in told):
            spoke = len(answers) == 1 and answers[0].candidates
            told.append(Finish("stop") if spoke else self.adapter.failure_part(TRUNCATED))
        return told

    def _decode_response(self, answer: GenerateContentResponse, parts: list[Part]) -> None:
        if answer.usage_metadata:
            parts.append(answer.usage_metadata.usage)
        if error := answer.error:
            status = error.code if error.code and 400 <= error.code < 600 else 502
            parts.append(self.adapter.failure_part(error.fault, status))
        for candidate in answer.candidates or ():
            if not candidate.index:
                self._decode_candidate(candidate, parts)
        if (feedback := answer.prompt_feedback) and feedback.block_reason:
            if feedback.block_reason_message:
                parts.append(Refusal(feedback.block_reason_message))
            self._add_finish(Finish("content_filter", feedback.block_reason), parts)

    def _decode_candidate(self, candidate: Candidate, parts: list[Part]) -> None:
        before = len(parts)
        if candidate.content and candidate.content.parts:
            scores = candidate.logprobs_result.logprobs if candidate.logprobs_result else None
            for piece in candidate.content.parts:
                scores = self._decode_part(piece, scores, parts)
        if len(parts) == before:
            parts.append(Text(""))  # for those who want a delta of every chunk
        if self._text_pieces and (candidate.grounding_metadata or candidate.citation_metadata):
            self._add_citations(candidate, parts)
        if raw := candidate.finish_reason:
            if raw in FAILURE_REASONS:
                words = candidate.finish_message or FAILURE_REASONS[raw]
                parts.append(self.adapter.failure_part(ErrorInfo(words, "model_error", raw)))
            else:
                self._add_finish(finish_part(raw, REASONS, has_calls=bool(self._call_count)), parts)

    def _add_finish(self, end: Finish, parts: list[Part]) -> None:
        self._flush_signature(parts)
        if end != self._last_finish:  # old models say STOP in every chunk
            self._last_finish = end
            parts.append(end)

    def _decode_part(
        self, piece: ContentPart, scores: list[LogProb] | None, parts: list[Part]
    ) -> list[LogProb] | None:
        """Tell a part of the content; return the logprobs that are still to be told."""
        signature = piece.thought_signature
        if piece.function_call:
            self._decode_call(piece.function_call, signature, parts)
        elif piece.thought:
            self._flush_signature(parts)
            self._text_pieces.clear()
            if piece.text:
                parts.append(Reasoning(key=self._reasoning_key, summary=piece.text))
            if signature:
                parts.append(self._signature_part(ThoughtSignature("thought", signature)))
        elif piece.text or signature:
            self._flush_signature(parts)
            text = piece.text or ""
            if text:
                self._text_pieces.append(text)
                parts.append(Text(text, logprobs=scores))
                scores = None
            if signature:  # told when it is clear that no note on the text will come any more
                self._pending_signature = self._signature_part(
                    ThoughtSignature("text", signature, len(text))
                )
        elif piece.inline_data or piece.executable_code or piece.code_execution_result:
            parts += self.unsupported_output_parts()
        return scores

    def _decode_call(self, call: FunctionCall, signature: str | None, parts: list[Part]) -> None:
        if not call.name:
            return
        self._flush_signature(parts)
        self._text_pieces.clear()
        if signature:
            parts.append(
                self._signature_part(ThoughtSignature("call", signature, id=bool(call.id)))
            )
        arguments = to_json_text(call.args)
        parts.append(Call(self._call_count, call.name, arguments, call.id or "", complete=True))
        self._call_count += 1

    def _signature_part(self, seal: ThoughtSignature) -> Reasoning:
        """Make a seal for the thoughts just told, if any; those that follow are others."""
        self._reasoning_key += 1
        return Reasoning(key=self._reasoning_key - 1, encrypted_content=to_json_text(seal))

    def _flush_signature(self, parts: list[Part]) -> None:
        if self._pending_signature:
            parts.append(self._pending_signature)
            self._pending_signature = None
            self._text_pieces.clear()

    # --- notes on the text ---

    def _add_citations(self, candidate: Candidate, parts: list[Part]) -> None:
        text = "".join(self._text_pieces)
        for segment, page in find_citations(candidate):
            start, end = find_span(text, segment)
            place = (page.uri or "", start, end)
            if page.uri and place not in self._seen_citations:
                self._seen_citations.add(place)
                note = UrlCitation(
                    url=page.uri, title=page.title or "", start_index=start, end_index=end
                )
                parts.append(Annotation(note))


def find_citations(candidate: Candidate) -> Iterator[tuple[Segment, CitedPage]]:
    """Pair every span of the text with each of its sources."""
    grounding = candidate.grounding_metadata or GroundingMetadata()
    sources = grounding.grounding_chunks or []
    for support in grounding.grounding_supports or ():
        for index in support.grounding_chunk_indices or ():
            if support.segment and 0 <= index < len(sources):
                source = sources[index]
                yield (
                    support.segment,
                    source.web or source.retrieved_context or source.maps or CitedPage(),
                )
    citations = candidate.citation_metadata or CitationMetadata()
    for citation in citations.citations or citations.citation_sources or ():
        yield citation, CitedPage(citation.uri, citation.title)


def find_span(text: str, segment: Segment) -> tuple[int, int]:
    """Return where a segment begins and ends, in characters; its own words have the last say."""
    data = text.encode(errors="surrogatepass")
    first = max(0, segment.start_index or 0)
    last = len(data) if segment.end_index is None else max(first, segment.end_index)
    start = len(data[:first].decode(errors="ignore"))
    end = len(data[:last].decode(errors="ignore"))
    if segment.text and text[start:end] != segment.text:
        found = text.find(segment.text)
        if found >= 0:
            return found, found + len(segment.text)
    return start, end
