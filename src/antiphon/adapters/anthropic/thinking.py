"""How hard Claude is to think, and how much room it has: decided once, before the body is written.

Dialect notes: what is thought counts towards `max_tokens`; a budget is at least 1024 and less than
that. Thinking and a tool that must be called exclude each other, and the tool wins.
"""

from msgspec import Struct

from antiphon.adapters.anthropic.models import Claude
from antiphon.adapters.base import Prompt
from antiphon.core.request import ReasoningConfig
from antiphon.core.tools import must_call

DEFAULT_MAX_TOKENS = 8192
"""Room for an answer when neither the client nor the configuration says how much."""

BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 32768,
}
"""Room for thinking by effort, for models that want a number."""

MIN_BUDGET = 1024
EFFORTS = {"minimal": "low"}


class Plan(Struct, frozen=True):
    """What is decided about thinking."""

    thinking: dict[str, object] | None = None
    effort: str | None = None
    room: int = 0
    """The tokens that the model may well think for."""

    @property
    def thinks(self) -> bool:
        """Whether the model is told to think."""
        return bool(self.thinking and self.thinking["type"] in ("enabled", "adaptive"))


def plan(prompt: Prompt, claude: Claude, *, bare: bool) -> Plan:
    """Decide how to think; `bare` says that the last turn with calls begins without a thought."""
    request = prompt.request
    reasoning = request.reasoning or ReasoningConfig()
    if not claude.thinks:
        return _never(prompt, reasoning)
    forced = bool(request.tools) and claude.obeys and must_call(request.tool_choice)
    if claude.off is None:
        return _always(prompt, claude, reasoning, forced=forced)
    if forced and _is_wished(reasoning):
        _warn(prompt, "it cannot think when it must call a tool; it was told not to")
    elif reasoning.effort == "none" and reasoning.summary:
        _warn(prompt, "what is not thought has no summary; it was told not to think")
    if forced or reasoning.effort == "none":
        return Plan({"type": claude.off} if claude.eager else None)
    if reasoning.effort is None:
        return _unasked(prompt, claude, reasoning)
    if claude.budgeted:
        return _budgeted(prompt, reasoning.effort, bare=bare)
    effort = _effort(prompt, claude, reasoning.effort)
    return Plan(_adaptive(reasoning), effort, BUDGETS[reasoning.effort])


def max_tokens(prompt: Prompt, plan: Plan) -> int:
    """Return how much may be written in all."""
    said = prompt.request.max_output_tokens or prompt.capabilities.max_output_tokens
    return said or DEFAULT_MAX_TOKENS + plan.room


def _is_wished(reasoning: ReasoningConfig) -> bool:
    return reasoning.effort not in (None, "none") or bool(reasoning.summary)


def _never(prompt: Prompt, reasoning: ReasoningConfig) -> Plan:
    if _is_wished(reasoning):
        _warn(prompt, "it cannot think; it was left out")
    return Plan()


def _always(prompt: Prompt, claude: Claude, reasoning: ReasoningConfig, *, forced: bool) -> Plan:
    effort = reasoning.effort
    if effort == "none":
        _warn(prompt, "it always thinks; it was told to do so as little as it can")
        effort = "low"
    if forced and reasoning.summary:
        _warn(prompt, "it cannot show its thinking when it must call a tool")
    thinking = _adaptive(reasoning) if reasoning.summary and not forced else None
    word = _effort(prompt, claude, effort) if effort else None
    return Plan(thinking, word, BUDGETS[effort or "high"])


def _unasked(prompt: Prompt, claude: Claude, reasoning: ReasoningConfig) -> Plan:
    if not claude.eager:
        if reasoning.summary:
            _warn(prompt, "it thinks only if it is told how hard, in 'reasoning.effort'")
        return Plan()
    return Plan(_adaptive(reasoning) if reasoning.summary else None, None, BUDGETS["high"])


def _adaptive(reasoning: ReasoningConfig) -> dict[str, object]:
    shown: dict[str, object] = {"display": "summarized"} if reasoning.summary else {}
    return {"type": "adaptive"} | shown


def _effort(prompt: Prompt, claude: Claude, effort: str) -> str:
    if effort in claude.lacks:
        _warn(prompt, f"it has no effort '{effort}'; 'high' was sent")
        return "high"
    return EFFORTS.get(effort, effort)


def _budgeted(prompt: Prompt, effort: str, *, bare: bool) -> Plan:
    if bare:
        _warn(prompt, "it cannot go on thinking where other thoughts are missing; it was left out")
        return Plan()
    budget = BUDGETS[effort]
    limit = prompt.request.max_output_tokens or prompt.capabilities.max_output_tokens
    if limit and limit <= MIN_BUDGET:
        _warn(prompt, f"{limit} output tokens leave no room to think; it was left out")
        return Plan()
    if limit and budget >= limit:
        budget = max(MIN_BUDGET, limit // 2)
        _warn(prompt, f"{limit} output tokens leave room for {budget} tokens of thinking")
    return Plan({"type": "enabled", "budget_tokens": budget}, None, budget)


def _warn(prompt: Prompt, reason: str) -> None:
    message = f"'reasoning' was changed for the model '{prompt.model}': {reason}."
    prompt.warn("reasoning_changed", message, "reasoning")
