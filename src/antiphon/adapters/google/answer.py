"""What Gemini answers, heard as parts.

Dialect notes: every chunk has the shape of a whole answer and no name; there is no `[DONE]`. A call
comes whole, its arguments an object, and has no number of its own, so ours is a running one.
`thought: true` marks a summary of the thinking. A signature on a call is told before it, one on a
text after it. Usage is repeated, and the last one is right. Offsets of citations count bytes. An
error may stand in the stream as bare JSON, without `data:`.
"""

import re
from collections.abc import Iterator, Mapping

from antiphon.adapters.base import MAX_EVENT, Adapter, Decoder, finish
from antiphon.adapters.faults import CUT, Fault
from antiphon.adapters.fields import json_text
from antiphon.adapters.google.shapes import (
    Answer,
    Candidate,
    Citations,
    FunctionCall,
    Grounding,
    Page,
    Piece,
    Segment,
    answers_in,
)
from antiphon.adapters.google.thinking import Seal
from antiphon.core.content import LogProb, UrlCitation
from antiphon.core.parts import (
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
BROKEN: Mapping[str, str] = {
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

BARE = re.compile(rb"\n[{\[]")
"""A line that is no field of an event, but JSON."""


class Events:
    """Cuts a stream into events, up to where bare JSON begins, which is one more at the end."""

    def __init__(self) -> None:
        self._events = sse.Decoder(MAX_EVENT)
        self._bare = bytearray()
        self._new_line = True

    def feed(self, data: bytes) -> list[sse.Event]:
        """Return the events that some bytes complete."""
        start = 0 if self._bare else self._bare_at(data)
        self._new_line = data.endswith(b"\n") if data else self._new_line
        if start < 0:
            return self._events.feed(data)
        self._bare += data[start:]
        if len(self._bare) > MAX_EVENT:
            raise ValueError(f"JSON of more than {MAX_EVENT} bytes")
        return self._events.feed(data[:start])

    def close(self) -> list[sse.Event]:
        """Return the event whose blank line never came, and the bare JSON."""
        bare = [sse.Event("message", bytes(self._bare))] if self._bare else []
        return self._events.close() + bare

    def _bare_at(self, data: bytes) -> int:
        if self._new_line and data[:1] in (b"{", b"["):
            return 0
        found = BARE.search(data)
        return found.start() + 1 if found else -1


class GoogleDecoder(Decoder):
    """Hears one answer of Gemini's."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, Events())
        self._calls = 0
        self._thought = 0
        self._said: list[str] = []
        self._seal: Reasoning | None = None
        self._end: Finish | None = None
        self._cited: set[tuple[str, int, int]] = set()

    def read(self, chunk: object) -> list[Part]:
        """Return the parts that a chunk means."""
        told: list[Part] = []
        if isinstance(chunk, sse.Event):
            self.done = chunk.data == sse.DONE
            for answer in () if self.done else answers_in(chunk.data):
                self._hear(answer, told)
        return told

    def read_whole(self, body: bytes) -> list[Part]:
        """Return the parts that an answer means, or an array of chunks."""
        answers = answers_in(body.strip())
        told: list[Part] = []
        for answer in answers:
            self._hear(answer, told)
        if not (told or self._end):
            raise ValueError("it is no answer")
        if self._end is None and not any(isinstance(part, Failure) for part in told):
            spoke = len(answers) == 1 and answers[0].candidates
            told.append(Finish("stop") if spoke else self.adapter.failure(CUT))
        return told

    def _hear(self, answer: Answer, told: list[Part]) -> None:
        if answer.usage_metadata:
            told.append(answer.usage_metadata.told)
        if error := answer.error:
            status = error.code if error.code and 400 <= error.code < 600 else 502
            told.append(self.adapter.failure(error.fault, status))
        for candidate in answer.candidates or ():
            if not candidate.index:
                self._candidate(candidate, told)
        if (feedback := answer.prompt_feedback) and feedback.block_reason:
            if feedback.block_reason_message:
                told.append(Refusal(feedback.block_reason_message))
            self._finish(Finish("content_filter", feedback.block_reason), told)

    def _candidate(self, candidate: Candidate, told: list[Part]) -> None:
        before = len(told)
        if candidate.content and candidate.content.parts:
            scores = candidate.logprobs_result.told if candidate.logprobs_result else None
            for piece in candidate.content.parts:
                scores = self._piece(piece, scores, told)
        if len(told) == before:
            told.append(Text(""))  # for those who want a delta of every chunk
        if self._said and (candidate.grounding_metadata or candidate.citation_metadata):
            self._notes(candidate, told)
        if raw := candidate.finish_reason:
            if raw in BROKEN:
                words = candidate.finish_message or BROKEN[raw]
                told.append(self.adapter.failure(Fault(words, "model_error", raw)))
            else:
                self._finish(finish(raw, REASONS, called=bool(self._calls)), told)

    def _finish(self, end: Finish, told: list[Part]) -> None:
        self._release(told)
        if end != self._end:  # old models say STOP in every chunk
            self._end = end
            told.append(end)

    def _piece(
        self, piece: Piece, scores: list[LogProb] | None, told: list[Part]
    ) -> list[LogProb] | None:
        """Tell a part of the content; return the logprobs that are still to be told."""
        signature = piece.thought_signature
        if piece.function_call:
            self._call(piece.function_call, signature, told)
        elif piece.thought:
            self._release(told)
            self._said.clear()
            if piece.text:
                told.append(Reasoning(key=self._thought, summary=piece.text))
            if signature:
                told.append(self._sealed(Seal("thought", signature)))
        elif piece.text or signature:
            self._release(told)
            text = piece.text or ""
            if text:
                self._said.append(text)
                told.append(Text(text, logprobs=scores))
                scores = None
            if signature:  # told when it is clear that no note on the text will come any more
                self._seal = self._sealed(Seal("text", signature, len(text)))
        elif piece.inline_data or piece.executable_code or piece.code_execution_result:
            told += self.left_out()
        return scores

    def _call(self, call: FunctionCall, signature: str | None, told: list[Part]) -> None:
        if not call.name:
            return
        self._release(told)
        self._said.clear()
        if signature:
            told.append(self._sealed(Seal("call", signature, id=bool(call.id))))
        arguments = json_text(call.args)
        told.append(Call(self._calls, call.name, arguments, call.id or "", complete=True))
        self._calls += 1

    def _sealed(self, seal: Seal) -> Reasoning:
        """Make a seal for the thoughts just told, if any; those that follow are others."""
        self._thought += 1
        return Reasoning(key=self._thought - 1, encrypted_content=json_text(seal))

    def _release(self, told: list[Part]) -> None:
        if self._seal:
            told.append(self._seal)
            self._seal = None
            self._said.clear()

    # --- notes on the text ---

    def _notes(self, candidate: Candidate, told: list[Part]) -> None:
        text = "".join(self._said)
        for segment, page in cited(candidate):
            start, end = span(text, segment)
            place = (page.uri or "", start, end)
            if page.uri and place not in self._cited:
                self._cited.add(place)
                note = UrlCitation(
                    url=page.uri, title=page.title or "", start_index=start, end_index=end
                )
                told.append(Annotation(note))


def cited(candidate: Candidate) -> Iterator[tuple[Segment, Page]]:
    """Pair every span of the text with each of its sources."""
    grounding = candidate.grounding_metadata or Grounding()
    sources = grounding.grounding_chunks or []
    for support in grounding.grounding_supports or ():
        for index in support.grounding_chunk_indices or ():
            if support.segment and 0 <= index < len(sources):
                source = sources[index]
                yield (
                    support.segment,
                    source.web or source.retrieved_context or source.maps or Page(),
                )
    citations = candidate.citation_metadata or Citations()
    for citation in citations.citations or citations.citation_sources or ():
        yield citation, Page(citation.uri, citation.title)


def span(text: str, segment: Segment) -> tuple[int, int]:
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
