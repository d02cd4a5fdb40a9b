"""Log probabilities of tokens, converted to the protocol's type."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.protocol.content import LogProb, TopLogProb


class TokenLogprob(Struct, gc=False):
    """A token with its log probability, and the most likely alternatives."""

    token: str = ""
    logprob: float = 0.0
    bytes: list[int] | None = None
    top_logprobs: "list[TokenLogprob] | None" = None

    @property
    def to_logprob(self) -> LogProb:
        """The token as the protocol has it. Bytes that are missing are those of its text."""
        # The protocol requires `bytes`; several providers leave them out.
        return LogProb(
            token=self.token,
            logprob=self.logprob,
            bytes=list(self.token.encode(errors="replace")) if self.bytes is None else self.bytes,
            top_logprobs=[
                TopLogProb(token=top.token, logprob=top.logprob, bytes=top.bytes)
                for top in (other.to_logprob for other in self.top_logprobs or ())
            ],
        )


def convert_logprobs(tokens: Sequence[TokenLogprob] | None) -> list[LogProb] | None:
    """Convert tokens; None if there are none."""
    return [token.to_logprob for token in tokens or ()] or None
