"""The context of a run: its history, the budget of the context window, and what is dropped.

A tool result over its limit is truncated when it is created. When the window is nearly full, the
oldest tool rounds are dropped. The model is notified of both. All token counts are estimates.
"""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.client.agent.events import ContextAction, ContextUsage
from antiphon.client.agent.smoothing import grapheme_boundary
from antiphon.protocol.context import estimate_text
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, InputText, Item, Message
from antiphon.protocol.response import Response

COMPLETION_TOKENS = 4096
"""Tokens of the window reserved for the answer unless `max_output_tokens` is set."""

_BREAKS = ("\n", "}", "]", ",")


class ContextStrategy(Struct, frozen=True, kw_only=True):
    """The limits that keep a run within the context window."""

    tool_result_token_limit: int = 128_000
    tool_round_limit: int = 10
    rebudget_threshold: float = 0.75

    def __post_init__(self) -> None:
        for name in ("tool_result_token_limit", "tool_round_limit"):
            if (limit := getattr(self, name)) < 1:
                raise _invalid_option_error(f"context_strategy.{name}", f"must be at least 1, not {limit}")
        if not 0 < self.rebudget_threshold <= 1:
            reason = f"must be over 0 and at most 1, not {self.rebudget_threshold}"
            raise _invalid_option_error("context_strategy.rebudget_threshold", reason)


def _invalid_option_error(param: str, reason: str) -> RequestError:
    return RequestError(f"Invalid '{param}': it {reason}.", param=param, code="invalid_value")


class ContextBudget:
    """The tokens available for input: the window without the answer and a reserve of 5 %."""

    def __init__(self, size: int, completion: int = COMPLETION_TOKENS) -> None:
        if size < 1:
            raise _invalid_option_error("context_window", f"must be at least 1, not {size}")
        # If the answer alone would fill the window, input and answer get one half each.
        answer = completion if completion < size else size // 2
        self.limit = max(1, (size - answer) * 95 // 100)

    def usage(self, used: int) -> ContextUsage:
        """Return the usage of a number of tokens."""
        return ContextUsage(
            used_tokens=used,
            max_tokens=self.limit,
            percentage=round(100 * used / self.limit, 1),
            remaining_tokens=max(0, self.limit - used),
        )


def truncate_result(tool_name: str, text: str, limit: int) -> tuple[str, ContextAction] | None:
    """Truncate a tool result to a limit of tokens, marker included; return None if it fits."""
    original = estimate_text(text)
    if original <= limit:
        return None
    room = limit - estimate_text(_truncation_marker(tool_name, original, limit))
    shown = _cut_at_break(_take_tokens(text, room))
    left = estimate_text(shown)
    action = ContextAction(
        type="truncated_tool_result", tool_name=tool_name, original_tokens=original, truncated_tokens=left
    )
    return _take_tokens(shown + _truncation_marker(tool_name, original, left), limit), action


def _truncation_marker(tool_name: str, original: int, shown: int) -> str:
    return f"\n\n[truncated by {tool_name}: original ~{original} tokens, showing first ~{shown} tokens]"


def _take_tokens(text: str, limit: int) -> str:
    """Return the longest beginning of a text within a limit of tokens, graphemes whole."""
    if estimate_text(text) <= limit:
        return text
    end, left = 0, limit
    # No character is more than one token, so as many characters as tokens left always fit.
    while left > 0:
        piece = text[end : end + left]
        left -= estimate_text(piece)
        end += len(piece)
    return text[: grapheme_boundary(text, end)]


def _cut_at_break(text: str) -> str:
    """Return a text up to its last line end or end of a JSON value, if in its second half."""
    # A number cut in two would still be a number, and wrong.
    end = max(text.rfind(mark) for mark in _BREAKS) + 1
    return text[: grapheme_boundary(text, end)] if end > len(text) // 2 else text


def drop_oldest_rounds(header: Sequence[Item], rounds: Sequence[Sequence[Item]], keep: int) -> tuple[list[Item], int]:
    """Return the items to send if only the latest rounds are kept, and the number of dropped ones.

    A call and its output stay together: the round of a call that is answered later is kept too.
    """
    dropped = max(0, len(rounds) - max(0, keep))
    while dropped and _separates_call_from_output(rounds, dropped):
        dropped -= 1
    kept = [item for round in rounds[dropped:] for item in round]
    if not dropped:
        return [*header, *kept], 0
    text = (
        f"[Context management: {dropped} earlier tool calling round(s) were removed to stay within "
        f"token limits. The most recent {len(rounds) - dropped} round(s) are preserved below.]"
    )
    return [*header, Message(role="system", content=[InputText(text=text)]), *kept], dropped


def _separates_call_from_output(rounds: Sequence[Sequence[Item]], at: int) -> bool:
    """Return whether an output would be kept without its call."""
    # In order, because some models use the same call ids in every round.
    called: set[str] = set()
    for item in (item for round in rounds[at:] for item in round):
        if isinstance(item, FunctionCall):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id not in called:
            return True
    return False


class RunHistory:
    """All items of a run, and what of them the server remembers.

    A round that continues a response sends only new items. Once the server has lost its state,
    every further round sends all of them.
    """

    def __init__(self, history: Sequence[Item], prompt: Sequence[Item]) -> None:
        self._header = [*history, *prompt]
        self._prompt = list(prompt)
        self._rounds: list[list[Item]] = []
        self.new_items: list[Item] = []
        """Items that the server does not remember, if the next round continues a response."""
        self.previous_id: str | None = None
        """Id of the response that the next round continues; without one it sends all items."""
        self._resends_always = False
        self._dropped = 0
        """Number of rounds that are no longer sent."""

    @property
    def count(self) -> int:
        """Number of responses so far."""
        return len(self._rounds)

    @property
    def items(self) -> list[Item]:
        """The whole context, without dropped rounds."""
        items, _ = drop_oldest_rounds(self._header, self._rounds, len(self._rounds) - self._dropped)
        return items

    def add_response(self, response: Response) -> list[FunctionCall]:
        """Add a response; return its complete calls, without those that the server has answered itself."""
        # A call cut off by a token limit has no valid arguments, and nothing will answer it.
        whole = [i for i in response.output if not (isinstance(i, FunctionCall) and i.status == "incomplete")]
        self._rounds.append(whole)
        self.new_items = []
        self.previous_id = None if self._resends_always else response.id or None
        answered = {item.call_id for item in whole if isinstance(item, FunctionCallOutput)}
        return [item for item in whole if isinstance(item, FunctionCall) and item.call_id not in answered]

    def add_outputs(self, outputs: Sequence[FunctionCallOutput]) -> None:
        """Add the outputs of the last response's calls."""
        self._rounds[-1] += outputs
        self.new_items = list(outputs)

    def resend_always(self) -> None:
        """Send all items with every further round: the server has lost its state."""
        self.previous_id, self._resends_always = None, True

    def drop_oldest(self, keep: int) -> int:
        """Send only the latest rounds from now on; return how many are dropped by that."""
        dropped = max(0, len(self._rounds) - keep) - self._dropped
        if dropped > 0:
            self._dropped += dropped
            # The server remembers the dropped rounds too, so the context has to be sent anew.
            self.previous_id = None
        return max(0, dropped)

    def items_to_save(self) -> list[Item]:
        """Return the items for the conversation: the prompt and every finished round."""
        rounds = [round for round in self._rounds if _is_answered(round)]
        return [*self._prompt, *(item for round in rounds for item in round)] if rounds else []


def _is_answered(round: Sequence[Item]) -> bool:
    calls = {item.call_id for item in round if isinstance(item, FunctionCall)}
    return calls == {item.call_id for item in round if isinstance(item, FunctionCallOutput)}
