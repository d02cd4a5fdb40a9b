"""How much of a model's window a run may fill, and what goes when it is nearly full.

A tool's result that is too long is cut where it is made; of many tool rounds the oldest are left
out. Either way the model is told. All tokens here are estimates.
"""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.client.agent.graphemes import grapheme_boundary
from antiphon.protocol import token_estimate
from antiphon.protocol.content import InputText
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
)

COMPLETION_TOKENS = 4096
"""How much of the window is left for the answer, if nobody says."""

_BREAKS = ("\n", "}", "]", ",")


class ContextStrategy(Struct, frozen=True, kw_only=True):
    """What a run does to stay within its model's window."""

    tool_result_token_limit: int = 128_000
    tool_round_limit: int = 10
    rebudget_threshold: float = 0.75

    def __post_init__(self) -> None:
        limits = {
            "tool_result_token_limit": self.tool_result_token_limit,
            "tool_round_limit": self.tool_round_limit,
        }
        for name, limit in limits.items():
            if limit < 1:
                raise _invalid_option_error(name, f"must be at least 1, not {limit}")
        if not 0 < self.rebudget_threshold <= 1:
            reason = f"must be over 0 and at most 1, not {self.rebudget_threshold}"
            raise _invalid_option_error("rebudget_threshold", reason)


def _invalid_option_error(name: str, reason: str) -> RequestError:
    param = f"context_strategy.{name}"
    return RequestError(f"Invalid '{param}': it {reason}.", param=param, code="invalid_value")


class ContextUsage(Struct, frozen=True, kw_only=True):
    """How full a window is."""

    used_tokens: int
    max_tokens: int
    percentage: float
    remaining_tokens: int

    def exceeds(self, threshold: float) -> bool:
        """Tell whether so large a share is used, or more."""
        return self.used_tokens >= self.max_tokens * threshold


class ContextBudget:
    """What a run may give its model to read: the window, less the answer and a reserve."""

    def __init__(self, size: int, completion: int = COMPLETION_TOKENS) -> None:
        if size < 1:
            message = f"Invalid 'context_window': it must be at least 1, not {size}."
            raise RequestError(message, param="context_window", code="invalid_value")
        # A window that the answer alone would fill is shared by halves.
        answer = completion if completion < size else size // 2
        self.limit = max(1, (size - answer) * 95 // 100)

    def usage(self, used: int) -> ContextUsage:
        """Tell how full the window is when so many tokens are used."""
        return ContextUsage(
            used_tokens=used,
            max_tokens=self.limit,
            percentage=round(100 * used / self.limit, 1),
            remaining_tokens=max(0, self.limit - used),
        )


class TruncatedResult(Struct, frozen=True, kw_only=True):
    """A tool's result that was cut, and how much of it is left."""

    tool_name: str
    text: str
    original_tokens: int
    truncated_tokens: int


def truncate_result(tool_name: str, text: str, limit: int) -> TruncatedResult | None:
    """Cut a tool's result to a limit of tokens, marker included; None if it fits as it is."""
    original = token_estimate.estimate_text(text)
    if original <= limit:
        return None
    room = limit - token_estimate.estimate_text(_truncation_marker(tool_name, original, limit))
    shown = _cut_at_break(_take_tokens(text, room))
    left = token_estimate.estimate_text(shown)
    return TruncatedResult(
        tool_name=tool_name,
        text=_take_tokens(shown + _truncation_marker(tool_name, original, left), limit),
        original_tokens=original,
        truncated_tokens=left,
    )


def _truncation_marker(tool_name: str, original: int, shown: int) -> str:
    return (
        f"\n\n[truncated by {tool_name}: original ~{original} tokens, "
        f"showing first ~{shown} tokens]"
    )


def _take_tokens(text: str, limit: int) -> str:
    """Return as much of a text's beginning as a limit of tokens holds, graphemes whole."""
    if token_estimate.estimate_text(text) <= limit:
        return text
    end, left = 0, limit
    while left > 0:  # no character is more than one token, so as many as are left always fit
        piece = text[end : end + left]
        left -= token_estimate.estimate_text(piece)
        end += len(piece)
    return text[: grapheme_boundary(text, end)]


def _cut_at_break(text: str) -> str:
    """Return a text up to its last line end or end of a JSON value, if that is in its second half.

    A number that is cut in two would still be a number, and wrong.
    """
    end = max(text.rfind(mark) for mark in _BREAKS) + 1
    return text[: grapheme_boundary(text, end)] if end > len(text) // 2 else text


def drop_oldest_rounds(
    header: Sequence[Item], rounds: Sequence[Sequence[Item]], keep: int
) -> tuple[list[Item], int]:
    """Return what to send if only the latest rounds are kept, and how many are dropped.

    A call and its output stay together: the round of a call that is answered later is kept too.
    """
    dropped = max(0, len(rounds) - max(0, keep))
    while dropped and _separates_call_from_output(rounds, dropped):
        dropped -= 1
    kept = [item for round in rounds[dropped:] for item in round]
    note = [_dropped_rounds_note(dropped, len(rounds) - dropped)] if dropped else []
    return [*header, *note, *kept], dropped


def _separates_call_from_output(rounds: Sequence[Sequence[Item]], at: int) -> bool:
    """Tell whether an output would be kept without its call; ids may come again in every round."""
    called: set[str] = set()
    for item in (item for round in rounds[at:] for item in round):
        if isinstance(item, FunctionCall):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id not in called:
            return True
    return False


def _dropped_rounds_note(dropped: int, kept: int) -> Message:
    text = (
        f"[Context management: {dropped} earlier tool calling round(s) were removed to stay within "
        f"token limits. The most recent {kept} round(s) are preserved below.]"
    )
    return Message(role="system", content=[InputText(text=text)])
