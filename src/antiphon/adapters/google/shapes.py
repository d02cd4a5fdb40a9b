"""The shapes of Gemini's answers, as far as we listen. Whatever else they hold is ignored."""

from itertools import zip_longest

from msgspec import Struct

from antiphon.adapters.base import Reader
from antiphon.adapters.faults import Fault
from antiphon.adapters.logprobs import Token, weighed
from antiphon.core.content import LogProb
from antiphon.core.parts import Usage


class Wire(Struct, rename="camel", gc=False):
    """Something in an answer. Everything may be missing."""


class FunctionCall(Wire):
    """A call; one without a name is the rest of another, which Vertex sends if asked to."""

    id: str | None = None
    name: str | None = None
    args: dict[str, object] | None = None


class Piece(Wire):
    """A part of the content; the last three are what we cannot tell."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    inline_data: object = None
    executable_code: object = None
    code_execution_result: object = None


class Content(Wire):
    """What the model said."""

    parts: list[Piece] | None = None


class Segment(Wire):
    """A span of the text, in bytes."""

    start_index: int | None = None
    end_index: int | None = None
    text: str | None = None


class Page(Wire):
    """A source."""

    uri: str | None = None
    title: str | None = None


class Source(Wire):
    """A source, by where it was found."""

    web: Page | None = None
    retrieved_context: Page | None = None
    maps: Page | None = None


class Support(Wire):
    """A span of the text, and the sources it rests on."""

    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class Grounding(Wire):
    """What the text rests on."""

    grounding_chunks: list[Source] | None = None
    grounding_supports: list[Support] | None = None


class Citation(Segment):
    """A span of the text that was said elsewhere before."""

    uri: str | None = None
    title: str | None = None


class Citations(Wire):
    """Citations, which the two APIs name differently."""

    citations: list[Citation] | None = None
    citation_sources: list[Citation] | None = None


class Weight(Wire):
    """A token, and how likely it was."""

    token: str | None = None
    log_probability: float | None = None

    def among(self, others: "list[Weight]") -> Token:
        """Return the token beside those that might have stood in its place."""
        tops = [other.among([]) for other in others]
        return Token(self.token or "", self.log_probability or 0.0, top_logprobs=tops)


class Weights(Wire):
    """The tokens that were weighed at one place."""

    candidates: list[Weight] | None = None


class LogprobsResult(Wire):
    """The tokens of a chunk."""

    chosen_candidates: list[Weight] | None = None
    top_candidates: list[Weights] | None = None

    @property
    def told(self) -> list[LogProb] | None:
        """The same in our words."""
        pairs = zip_longest(self.chosen_candidates or (), self.top_candidates or ())
        return weighed([one.among((top and top.candidates) or []) for one, top in pairs if one])


class Candidate(Wire):
    """An answer; we ask for one."""

    index: int | None = None
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    citation_metadata: Citations | None = None
    grounding_metadata: Grounding | None = None
    logprobs_result: LogprobsResult | None = None


class Feedback(Wire):
    """Why the question was not let through."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class UsageMetadata(Wire):
    """Tokens, so far."""

    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None

    @property
    def told(self) -> Usage:
        """The same in our words: what was thought is output too, what tools found is input."""
        given, thought = self.candidates_token_count, self.thoughts_token_count
        asked = self.prompt_token_count
        return Usage(
            None if asked is None else asked + (self.tool_use_prompt_token_count or 0),
            None if given is None and thought is None else (given or 0) + (thought or 0),
            self.cached_content_token_count,
            thought,
        )


class Detail(Wire):
    """More about an error."""

    reason: str | None = None
    retry_delay: str | None = None


class Error(Wire):
    """An error."""

    code: int | None = None
    message: str | None = None
    status: str | None = None
    details: list[Detail] | None = None

    @property
    def fault(self) -> Fault:
        """The error in our words; the status word is its code."""
        reasons = [detail.reason for detail in self.details or ()]
        if "API_KEY_INVALID" in reasons:  # Google says 400 to a wrong key
            return Fault(self.message or "", "authentication_error", "API_KEY_INVALID")
        return Fault(
            self.message or "", code=self.status or (str(self.code) if self.code else None)
        )


class Answer(Wire):
    """A chunk, or all of it."""

    candidates: list[Candidate] | None = None
    prompt_feedback: Feedback | None = None
    usage_metadata: UsageMetadata | None = None
    error: Error | None = None


ONE = Reader(Answer)
MANY = Reader(list[Answer])


def answers_in(data: bytes) -> list[Answer]:
    """Read a chunk, or an array of chunks; raises ValueError."""
    return MANY(data) if data[:1] == b"[" else [ONE(data)]
