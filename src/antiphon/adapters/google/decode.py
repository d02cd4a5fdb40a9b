"""Decodes Gemini's responses into parts.

Dialect notes: every chunk has the form of a complete response and no type; there is no `[DONE]`. A call arrives
complete and without an index, so calls are counted. `thought: true` marks a summary of the thinking. The signature of a
call becomes a reasoning part before it, that of a text one after it. Usage is repeated; the last counts. Citations have
byte offsets. An error may appear in the stream as bare JSON without `data:`.
"""

import re
from collections.abc import Iterator
from typing import cast

from antiphon.adapters.base import MAX_EVENT_BYTES, Adapter, Decoder
from antiphon.adapters.errors import TRUNCATED
from antiphon.adapters.google import wire_types
from antiphon.adapters.json_access import to_json_text
from antiphon.protocol import parts
from antiphon.protocol.items import LogProb, UrlCitation
from antiphon.protocol.parts import Finish, Part, Reason, Reasoning
from antiphon.protocol.struct import as_object
from antiphon.wire import sse

FILTER_REASONS = """SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR IMAGE_SAFETY
    IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION""".split()
REASONS: dict[str, Reason] = {
    "STOP": "stop",
    "FINISH_REASON_UNSPECIFIED": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(FILTER_REASONS, "content_filter"),
}
FAILURE_REASONS = {
    "MALFORMED_FUNCTION_CALL": "the model made a malformed call.",
    "UNEXPECTED_TOOL_CALL": "the model called a tool that was not offered.",
    "TOO_MANY_TOOL_CALLS": "the model called too many tools in a row.",
    "MISSING_THOUGHT_SIGNATURE": "a call in the conversation has no thought signature.",
    "MALFORMED_RESPONSE": "the model's response is malformed.",
    "NO_IMAGE": "the model generated no image.",
    "IMAGE_OTHER": "the model could not generate the image.",
    "OTHER": "the model stopped for an unknown reason.",
}
"""Finish reasons that mean failure, with a message in case Google sends none."""

BARE_JSON_LINE = re.compile(rb"\n[{\[]")


class GoogleSseDecoder:
    """Splits a stream into events. Bare JSON, where it begins, is one more event at the end."""

    def __init__(self) -> None:
        self._sse = sse.Decoder(MAX_EVENT_BYTES)
        self._bare_json = bytearray()
        self._at_line_start = True

    def feed(self, data: bytes) -> list[sse.SseEvent]:
        """Return the events that the bytes complete."""
        start = -1
        if self._bare_json or (self._at_line_start and data[:1] in (b"{", b"[")):
            start = 0
        elif found := BARE_JSON_LINE.search(data):
            start = found.start() + 1
        self._at_line_start = data.endswith(b"\n") if data else self._at_line_start
        if start < 0:
            return self._sse.feed(data)
        self._bare_json += data[start:]
        if len(self._bare_json) > MAX_EVENT_BYTES:
            raise ValueError(f"JSON of more than {MAX_EVENT_BYTES} bytes")
        return self._sse.feed(data[:start])

    def close(self) -> list[sse.SseEvent]:
        """Return an event that lacks its blank line, and the bare JSON."""
        bare = [sse.SseEvent("message", bytes(self._bare_json))] if self._bare_json else []
        return self._sse.close() + bare


class GoogleDecoder(Decoder):
    """Decodes one response."""

    reasons = REASONS
    failure_reasons = FAILURE_REASONS

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, GoogleSseDecoder())
        self._call_count = 0
        self._reasoning_key = 0
        # The text of the current message so far; citations refer to it.
        self._text_pieces: list[str] = []
        self._pending_signature: Reasoning | None = None
        self._last_finish: Finish | None = None
        self._seen_citations: set[tuple[str, int, int]] = set()

    def decode_chunk(self, chunk: object) -> list[Part]:
        event = cast("sse.SseEvent", chunk)
        # Google sends no [DONE], but a proxy in between may.
        self.done = event.data == sse.DONE
        decoded: list[Part] = []
        for response in () if self.done else wire_types.decode_responses(event.data):
            self._decode_response(response, decoded)
        return decoded

    def decode_body(self, body: bytes) -> list[Part]:
        """Return the parts of a complete response, or of an array of chunks."""
        responses = wire_types.decode_responses(body.strip())
        decoded: list[Part] = []
        for response in responses:
            self._decode_response(response, decoded)
        if not (decoded or self._last_finish):
            raise ValueError("the response is empty")
        failed = any(isinstance(part, parts.Failure) for part in decoded)
        if self._last_finish is None and not failed:
            # A single response is complete even without a reason; an array was cut off.
            complete = len(responses) == 1 and responses[0].candidates
            decoded.append(Finish("stop") if complete else self.adapter.failure_part(TRUNCATED))
        return decoded

    def _decode_response(self, response: wire_types.GenerateContentResponse, decoded: list[Part]) -> None:
        if response.usage_metadata:
            decoded.append(response.usage_metadata.usage)
        if response.error is not None:
            code = as_object(response.error).get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else 502
            info = self.adapter.parse_error(status, {}, {"error": response.error})
            decoded.append(self.adapter.failure_part(info, status))
        for candidate in response.candidates or ():
            # Only one candidate is requested; parts of another would mix with it.
            if not candidate.index:
                self._decode_candidate(candidate, decoded)
        if (feedback := response.prompt_feedback) and feedback.block_reason:
            if feedback.block_reason_message:
                decoded.append(parts.Refusal(feedback.block_reason_message))
            self._add_end(Finish("content_filter", feedback.block_reason), decoded)

    def _decode_candidate(self, candidate: wire_types.Candidate, decoded: list[Part]) -> None:
        before = len(decoded)
        if candidate.content and candidate.content.parts:
            result = candidate.logprobs_result
            logprobs = result.logprobs if result else None
            for part in candidate.content.parts:
                logprobs = self._decode_part(part, logprobs, decoded)
        # Some readers expect a delta for every chunk.
        if len(decoded) == before:
            decoded.append(parts.Text(""))
        if self._text_pieces and (candidate.grounding_metadata or candidate.citation_metadata):
            self._add_citations(candidate, decoded)
        if candidate.finish_reason:
            self._add_end(self.finish_parts(candidate.finish_reason, candidate.finish_message)[0], decoded)

    def _add_end(self, end: Part, decoded: list[Part]) -> None:
        if isinstance(end, Finish):
            self._flush_signature(decoded)
            # Old models send STOP with every chunk.
            if end == self._last_finish:
                return
            self._last_finish = end
        decoded.append(end)

    def _decode_part(
        self, part: wire_types.ContentPart, logprobs: list[LogProb] | None, decoded: list[Part]
    ) -> list[LogProb] | None:
        """Decode a part of the content; return the log probabilities that are not yet used."""
        signature = part.thought_signature
        if part.function_call:
            self._decode_call(part.function_call, signature, decoded)
        elif part.thought:
            self._flush_signature(decoded)
            self._text_pieces.clear()
            if part.text:
                decoded.append(Reasoning(key=self._reasoning_key, summary=part.text))
            if signature:
                decoded.append(self._signature_part(wire_types.ThoughtSignature("thought", signature)))
        elif part.text or signature:
            self._flush_signature(decoded)
            text = part.text or ""
            if text:
                self._text_pieces.append(text)
                decoded.append(parts.Text(text, logprobs=logprobs))
                logprobs = None
            # Kept back: a reasoning part would end the text, and citations may still follow.
            if signature:
                signed = wire_types.ThoughtSignature("text", signature, len(text))
                self._pending_signature = self._signature_part(signed)
        elif part.inline_data or part.executable_code or part.code_execution_result:
            decoded += self.unsupported_output_parts()
        return logprobs

    def _decode_call(self, call: wire_types.FunctionCall, signature: str | None, decoded: list[Part]) -> None:
        # The rest of a call in increments, which are never requested.
        if not call.name:
            return
        self._flush_signature(decoded)
        self._text_pieces.clear()
        if signature:
            signed = wire_types.ThoughtSignature("call", signature, id=bool(call.id))
            decoded.append(self._signature_part(signed))
        key, arguments, id = self._call_count, to_json_text(call.args), call.id or ""
        decoded.append(parts.Call(key, call.name, arguments, id, complete=True))
        self._call_count += 1
        self.has_calls = True

    def _signature_part(self, signature: wire_types.ThoughtSignature) -> Reasoning:
        """Return the part that ends the current reasoning item with a signature."""
        self._reasoning_key += 1
        return Reasoning(key=self._reasoning_key - 1, encrypted_content=to_json_text(signature))

    def _flush_signature(self, decoded: list[Part]) -> None:
        if self._pending_signature:
            decoded.append(self._pending_signature)
            self._pending_signature = None
            self._text_pieces.clear()

    def _add_citations(self, candidate: wire_types.Candidate, decoded: list[Part]) -> None:
        text = "".join(self._text_pieces)
        for segment, page in find_citations(candidate):
            start, end = find_span(text, segment)
            key = (page.uri or "", start, end)
            # A chunk may repeat the citations of earlier ones.
            if page.uri and key not in self._seen_citations:
                self._seen_citations.add(key)
                title = page.title or ""
                citation = UrlCitation(url=page.uri, title=title, start_index=start, end_index=end)
                decoded.append(parts.Annotation(citation))


def find_citations(candidate: wire_types.Candidate) -> Iterator[tuple[wire_types.Citation, wire_types.Citation]]:
    """Pair every cited span of the text with each of its sources."""
    grounding = candidate.grounding_metadata or wire_types.SourceMetadata()
    chunks = grounding.grounding_chunks or []
    for support in grounding.grounding_supports or ():
        for index in support.grounding_chunk_indices or ():
            if support.segment and 0 <= index < len(chunks):
                chunk = chunks[index]
                yield support.segment, chunk.web or chunk.retrieved_context or chunk.maps or wire_types.Citation()
    citations = candidate.citation_metadata or wire_types.SourceMetadata()
    for citation in citations.citations or citations.citation_sources or ():
        yield citation, citation


def find_span(text: str, segment: wire_types.Citation) -> tuple[int, int]:
    """Return the start and the end of a segment, in characters."""
    data = text.encode(errors="surrogatepass")
    first = max(0, segment.start_index or 0)
    last = len(data) if segment.end_index is None else max(first, segment.end_index)
    start = len(data[:first].decode(errors="ignore"))
    end = len(data[:last].decode(errors="ignore"))
    # Offsets that do not fit the text: the segment's own text shows where it is.
    if segment.text and text[start:end] != segment.text:
        found = text.find(segment.text)
        if found >= 0:
            return found, found + len(segment.text)
    return start, end
