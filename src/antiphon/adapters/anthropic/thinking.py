"""How hard Claude is to think, and how much room it has: decided once, before the body is written.

Dialect notes: what is thought counts towards `max_tokens`; a budget is at least 1024 and less than
that. Thinking and a tool that must be called exclude each other, and the tool wins.
"""

from msgspec import Struct

from antiphon.adapters.anthropic.models import Claude
from antiphon.adapters.base import Prompt
from antiphon.protocol.request import ReasoningConfig
from antiphon.protocol.tools import must_call

DEFAULT_MAX_TOKENS = 8192
"""Room for an answer when neither the client nor the configuration says how much."""

THINKING_BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 32768,
}
"""Room for thinking by effort, for models that want a number."""

MIN_BUDGET = 1024
EFFORT_NAMES = {"minimal": "low"}


class ThinkingPlan(Struct, frozen=True):
    """What is decided about thinking."""

    thinking: dict[str, object] | None = None
    effort: str | None = None
    expected_tokens: int = 0
    """The tokens that the model may well think for."""

    @property
    def thinks(self) -> bool:
        """Whether the model is told to think."""
        return bool(self.thinking and self.thinking["type"] in ("enabled", "adaptive"))


def plan_thinking(prompt: Prompt, claude: Claude, *, calls_without_thinking: bool) -> ThinkingPlan:
    """Decide how to think; `bare` says that the last turn with calls begins without a thought."""
    request = prompt.request
    reasoning = request.reasoning or ReasoningConfig()
    if not claude.supports_thinking:
        return _plan_unsupported(prompt, reasoning)
    forced = bool(request.tools) and claude.supports_forced_tools and must_call(request.tool_choice)
    if claude.disabled_thinking is None:
        return _plan_always_on(prompt, claude, reasoning, forced=forced)
    if forced and _wants_thinking(reasoning):
        _warn(prompt, "it cannot think when it must call a tool; it was told not to")
    elif reasoning.effort == "none" and reasoning.summary:
        _warn(prompt, "what is not thought has no summary; it was told not to think")
    if forced or reasoning.effort == "none":
        return ThinkingPlan(
            {"type": claude.disabled_thinking} if claude.thinks_by_default else None
        )
    if reasoning.effort is None:
        return _plan_default(prompt, claude, reasoning)
    if claude.uses_thinking_budget:
        return _plan_budget(prompt, reasoning.effort, calls_without_thinking=calls_without_thinking)
    effort = _supported_effort(prompt, claude, reasoning.effort)
    return ThinkingPlan(_adaptive_thinking(reasoning), effort, THINKING_BUDGETS[reasoning.effort])


def choose_max_tokens(prompt: Prompt, plan: ThinkingPlan) -> int:
    """Return how much may be written in all."""
    said = prompt.request.max_output_tokens or prompt.capabilities.max_output_tokens
    return said or DEFAULT_MAX_TOKENS + plan.expected_tokens


def _wants_thinking(reasoning: ReasoningConfig) -> bool:
    return reasoning.effort not in (None, "none") or bool(reasoning.summary)


def _plan_unsupported(prompt: Prompt, reasoning: ReasoningConfig) -> ThinkingPlan:
    if _wants_thinking(reasoning):
        _warn(prompt, "it cannot think; it was left out")
    return ThinkingPlan()


def _plan_always_on(
    prompt: Prompt, claude: Claude, reasoning: ReasoningConfig, *, forced: bool
) -> ThinkingPlan:
    effort = reasoning.effort
    if effort == "none":
        _warn(prompt, "it always thinks; it was told to do so as little as it can")
        effort = "low"
    if forced and reasoning.summary:
        _warn(prompt, "it cannot show its thinking when it must call a tool")
    thinking = _adaptive_thinking(reasoning) if reasoning.summary and not forced else None
    word = _supported_effort(prompt, claude, effort) if effort else None
    return ThinkingPlan(thinking, word, THINKING_BUDGETS[effort or "high"])


def _plan_default(prompt: Prompt, claude: Claude, reasoning: ReasoningConfig) -> ThinkingPlan:
    if not claude.thinks_by_default:
        if reasoning.summary:
            _warn(prompt, "it thinks only if it is told how hard, in 'reasoning.effort'")
        return ThinkingPlan()
    return ThinkingPlan(
        _adaptive_thinking(reasoning) if reasoning.summary else None, None, THINKING_BUDGETS["high"]
    )


def _adaptive_thinking(reasoning: ReasoningConfig) -> dict[str, object]:
    shown: dict[str, object] = {"display": "summarized"} if reasoning.summary else {}
    return {"type": "adaptive"} | shown


def _supported_effort(prompt: Prompt, claude: Claude, effort: str) -> str:
    if effort in claude.unsupported_efforts:
        _warn(prompt, f"it has no effort '{effort}'; 'high' was sent")
        return "high"
    return EFFORT_NAMES.get(effort, effort)


def _plan_budget(prompt: Prompt, effort: str, *, calls_without_thinking: bool) -> ThinkingPlan:
    if calls_without_thinking:
        _warn(prompt, "it cannot go on thinking where other thoughts are missing; it was left out")
        return ThinkingPlan()
    budget = THINKING_BUDGETS[effort]
    limit = prompt.request.max_output_tokens or prompt.capabilities.max_output_tokens
    if limit and limit <= MIN_BUDGET:
        _warn(prompt, f"{limit} output tokens leave no room to think; it was left out")
        return ThinkingPlan()
    if limit and budget >= limit:
        budget = max(MIN_BUDGET, limit // 2)
        _warn(prompt, f"{limit} output tokens leave room for {budget} tokens of thinking")
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, None, budget)


def _warn(prompt: Prompt, reason: str) -> None:
    message = f"'reasoning' was changed for the model '{prompt.model}': {reason}."
    prompt.warn("reasoning_changed", message, "reasoning")
