"""The types of Gemini's responses, as far as they are read, and the stored thought signature."""

from itertools import zip_longest
from typing import Literal

from msgspec import Struct

from antiphon.adapters.base import JsonReader
from antiphon.adapters.media import TokenLogprob, convert_logprobs
from antiphon.protocol.items import LogProb
from antiphon.protocol.parts import Usage
from antiphon.protocol.struct import JsonObject


class ThoughtSignature(Struct, frozen=True, omit_defaults=True):
    """The `encrypted_content` of a reasoning item: a signature, and the part that it signs."""

    on: Literal["call", "text", "thought"]
    signature: str
    length: int = 0
    """The length of the signed part, if that is text."""
    id: bool = False
    """Whether Google gave the signed call an id."""

    @property
    def fields(self) -> JsonObject:
        """The field that signs a part."""
        return {"thoughtSignature": self.signature}


class GoogleStruct(Struct, rename="camel", gc=False):
    """An object in a response. Every field may be missing."""


class FunctionCall(GoogleStruct):
    """A call. Without a name it is the rest of another, which Vertex AI sends only on request."""

    id: str | None = None
    name: str | None = None
    args: dict[str, object] | None = None


class ContentPart(GoogleStruct):
    """A part of the content. The last three fields are not supported."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    inline_data: object = None
    executable_code: object = None
    code_execution_result: object = None


class Content(GoogleStruct):
    """The content of a candidate."""

    parts: list[ContentPart] | None = None


class Citation(GoogleStruct):
    """A span of the text, in bytes; or a source; or a span that quotes a source."""

    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None
    uri: str | None = None
    title: str | None = None


class GroundingChunk(GoogleStruct):
    """A source, by the tool that found it."""

    web: Citation | None = None
    retrieved_context: Citation | None = None
    maps: Citation | None = None


class GroundingSupport(GoogleStruct):
    """A span of the text, and the indexes of its sources."""

    segment: Citation | None = None
    grounding_chunk_indices: list[int] | None = None


class SourceMetadata(GoogleStruct):
    """The sources of the text: what tools found, or citations (under Vertex AI's name, or the Gemini API's)."""

    grounding_chunks: list[GroundingChunk] | None = None
    grounding_supports: list[GroundingSupport] | None = None
    citations: list[Citation] | None = None
    citation_sources: list[Citation] | None = None


class LogprobCandidate(GoogleStruct):
    """A token and its log probability."""

    token: str | None = None
    log_probability: float | None = None

    def to_token(self, others: "list[LogprobCandidate]") -> TokenLogprob:
        """Return the token with its alternatives."""
        tops = [other.to_token([]) for other in others]
        return TokenLogprob(self.token or "", self.log_probability or 0.0, top_logprobs=tops)


class TopCandidates(GoogleStruct):
    """The most likely tokens at one position."""

    candidates: list[LogprobCandidate] | None = None


class LogprobsResult(GoogleStruct):
    """The log probabilities of a chunk."""

    chosen_candidates: list[LogprobCandidate] | None = None
    top_candidates: list[TopCandidates] | None = None

    @property
    def logprobs(self) -> list[LogProb] | None:
        """The log probabilities in the protocol's form."""
        pairs = zip_longest(self.chosen_candidates or (), self.top_candidates or ())
        return convert_logprobs([one.to_token((top and top.candidates) or []) for one, top in pairs if one])


class Candidate(GoogleStruct):
    """One of several answers; only one is requested."""

    index: int | None = None
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    citation_metadata: SourceMetadata | None = None
    grounding_metadata: SourceMetadata | None = None
    logprobs_result: LogprobsResult | None = None


class PromptFeedback(GoogleStruct):
    """Why the prompt was blocked."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class UsageMetadata(GoogleStruct):
    """Token counts so far."""

    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None

    @property
    def usage(self) -> Usage:
        """The counts in the protocol's form: thoughts are output, results of tools are input."""
        input, output = self.prompt_token_count, self.candidates_token_count
        thoughts = self.thoughts_token_count
        return Usage(
            None if input is None else input + (self.tool_use_prompt_token_count or 0),
            None if output is None and thoughts is None else (output or 0) + (thoughts or 0),
            self.cached_content_token_count,
            thoughts,
        )


class GenerateContentResponse(GoogleStruct):
    """A chunk of a stream, or a complete response."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageMetadata | None = None
    error: object = None


_read_one = JsonReader(GenerateContentResponse)
_read_many = JsonReader(list[GenerateContentResponse])


def decode_responses(data: bytes) -> list[GenerateContentResponse]:
    """Read a response, or an array of chunks; raises ValueError."""
    return _read_many(data) if data[:1] == b"[" else [_read_one(data)]
