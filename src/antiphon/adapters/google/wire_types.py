"""The shapes of Gemini's answers, as far as we listen. Whatever else they hold is ignored."""

from itertools import zip_longest

from msgspec import Struct

from antiphon.adapters.base import JsonReader
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.logprobs import TokenLogprob, convert_logprobs
from antiphon.protocol.content import LogProb
from antiphon.protocol.parts import Usage


class GoogleStruct(Struct, rename="camel", gc=False):
    """Something in an answer. Everything may be missing."""


class FunctionCall(GoogleStruct):
    """A call; one without a name is the rest of another, which Vertex sends if asked to."""

    id: str | None = None
    name: str | None = None
    args: dict[str, object] | None = None


class ContentPart(GoogleStruct):
    """A part of the content; the last three are what we cannot tell."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    inline_data: object = None
    executable_code: object = None
    code_execution_result: object = None


class Content(GoogleStruct):
    """What the model said."""

    parts: list[ContentPart] | None = None


class Segment(GoogleStruct):
    """A span of the text, in bytes."""

    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None


class CitedPage(GoogleStruct):
    """A source."""

    uri: str | None = None
    title: str | None = None


class GroundingChunk(GoogleStruct):
    """A source, by where it was found."""

    web: CitedPage | None = None
    retrieved_context: CitedPage | None = None
    maps: CitedPage | None = None


class GroundingSupport(GoogleStruct):
    """A span of the text, and the sources it rests on."""

    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class GroundingMetadata(GoogleStruct):
    """What the text rests on."""

    grounding_chunks: list[GroundingChunk] | None = None
    grounding_supports: list[GroundingSupport] | None = None


class Citation(Segment):
    """A span of the text that was said elsewhere before."""

    uri: str | None = None
    title: str | None = None


class CitationMetadata(GoogleStruct):
    """Citations, which the two APIs name differently."""

    citations: list[Citation] | None = None
    citation_sources: list[Citation] | None = None


class LogprobCandidate(GoogleStruct):
    """A token, and how likely it was."""

    token: str | None = None
    log_probability: float | None = None

    def to_token(self, others: "list[LogprobCandidate]") -> TokenLogprob:
        """Return the token beside those that might have stood in its place."""
        tops = [other.to_token([]) for other in others]
        return TokenLogprob(self.token or "", self.log_probability or 0.0, top_logprobs=tops)


class TopCandidates(GoogleStruct):
    """The tokens that were weighed at one place."""

    candidates: list[LogprobCandidate] | None = None


class LogprobsResult(GoogleStruct):
    """The tokens of a chunk."""

    chosen_candidates: list[LogprobCandidate] | None = None
    top_candidates: list[TopCandidates] | None = None

    @property
    def logprobs(self) -> list[LogProb] | None:
        """The same in our words."""
        pairs = zip_longest(self.chosen_candidates or (), self.top_candidates or ())
        return convert_logprobs(
            [one.to_token((top and top.candidates) or []) for one, top in pairs if one]
        )


class Candidate(GoogleStruct):
    """An answer; we ask for one."""

    index: int | None = None
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    citation_metadata: CitationMetadata | None = None
    grounding_metadata: GroundingMetadata | None = None
    logprobs_result: LogprobsResult | None = None


class PromptFeedback(GoogleStruct):
    """Why the question was not let through."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class UsageMetadata(GoogleStruct):
    """Tokens, so far."""

    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None

    @property
    def usage(self) -> Usage:
        """The same in our words: what was thought is output too, what tools found is input."""
        given, thought = self.candidates_token_count, self.thoughts_token_count
        asked = self.prompt_token_count
        return Usage(
            None if asked is None else asked + (self.tool_use_prompt_token_count or 0),
            None if given is None and thought is None else (given or 0) + (thought or 0),
            self.cached_content_token_count,
            thought,
        )


class ErrorDetail(GoogleStruct):
    """More about an error."""

    reason: str | None = None
    retry_delay: str | None = None


class ErrorBody(GoogleStruct):
    """An error."""

    code: int | None = None
    message: str | None = None
    status: str | None = None
    details: list[ErrorDetail] | None = None

    @property
    def fault(self) -> ErrorInfo:
        """The error in our words; the status word is its code."""
        reasons = [detail.reason for detail in self.details or ()]
        if "API_KEY_INVALID" in reasons:  # Google says 400 to a wrong key
            return ErrorInfo(self.message or "", "authentication_error", "API_KEY_INVALID")
        return ErrorInfo(
            self.message or "", code=self.status or (str(self.code) if self.code else None)
        )


class GenerateContentResponse(GoogleStruct):
    """A chunk, or all of it."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageMetadata | None = None
    error: ErrorBody | None = None


_read_one = JsonReader(GenerateContentResponse)
_read_many = JsonReader(list[GenerateContentResponse])


def decode_responses(data: bytes) -> list[GenerateContentResponse]:
    """Read a chunk, or an array of chunks; raises ValueError."""
    return _read_many(data) if data[:1] == b"[" else [_read_one(data)]
