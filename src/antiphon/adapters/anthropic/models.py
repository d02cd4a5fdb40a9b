"""What each Claude model supports, and how its thinking and sampling are requested.

The API rejects parameters that a model does not support, so they are adjusted here by the model's
name. Bedrock follows the same rules for the Claude models that it hosts.
"""

import re
from typing import Literal

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.protocol.request import ReasoningConfig
from antiphon.protocol.tools import must_call

# Searched, not matched: Bedrock and Vertex put a vendor, a region or a date around the name.
CLAUDE_NAME = re.compile(
    r"claude-(?:(?P<family>opus|sonnet|haiku|fable|mythos)-)?"
    r"(?:instant-)?v?(?:(?P<major>\d)(?:[.-](?P<minor>\d{1,2}))?(?!\d)|preview)"
)
# The API has no default: `max_tokens` is mandatory.
DEFAULT_MAX_TOKENS = 8192
"""Tokens for the answer when neither the client nor the configuration sets a limit."""

THINKING_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 32768}
"""The thinking tokens to allow for each effort."""

MIN_BUDGET = 1024

DisabledThinking = Literal["disabled", "between_tools"]


class Claude(Struct, frozen=True, kw_only=True):
    """What one model supports. The defaults apply to models with an unknown name."""

    supports_thinking: bool = True
    uses_thinking_budget: bool = False
    """Whether it takes a budget of thinking tokens instead of an effort."""
    thinks_by_default: bool = False
    disabled_thinking: DisabledThinking | None = "disabled"
    """The thinking type that turns thinking off; None if the model always thinks."""
    supports_forced_tools: bool = True
    supports_sampling: bool = True
    """Whether it takes `temperature` and `top_p`."""
    supports_schemas: bool = True
    """Whether it can be held to a schema, in its answer and in its calls."""
    supports_system_messages: bool = False
    """Whether system messages are supported within the conversation."""
    supports_xhigh: bool = True
    """Whether it has the effort `xhigh`."""


def lookup_claude(model: str) -> Claude:
    """Return what a model supports, by its name."""
    found = CLAUDE_NAME.search(model.lower())
    if found is None:
        return Claude()
    family = found["family"]
    # A preview has no number; it belongs to the generation of 5.
    version = (int(found["major"] or 5), int(found["minor"] or 0))
    top_family = family in ("fable", "mythos")
    disabled_thinking: DisabledThinking | None = "disabled"
    if top_family or (family == "opus" and version >= (5, 5)):
        disabled_thinking = None
    elif family == "sonnet" and version >= (5, 5):
        disabled_thinking = "between_tools"
    return Claude(
        supports_thinking=version >= (3, 7),
        uses_thinking_budget=version < (4, 6),
        thinks_by_default=version >= (5, 0),
        disabled_thinking=disabled_thinking,
        supports_forced_tools=not (version >= (5, 1) if top_family else version >= (5, 5) and family != "haiku"),
        supports_sampling=version < (4, 7),
        supports_schemas=version >= (4, 5),
        supports_system_messages=version >= (4, 8),
        supports_xhigh=version >= (4, 7),
    )


class ThinkingPlan(Struct, frozen=True):
    """The thinking that is requested from the model."""

    thinking: dict[str, object] | None = None
    effort: str | None = None
    expected_tokens: int = 0
    """The tokens that the model may use for thinking."""

    @property
    def thinks(self) -> bool:
        """Whether thinking is turned on explicitly."""
        return bool(self.thinking and self.thinking["type"] in ("enabled", "adaptive"))


def plan_thinking(prompt: Prompt, claude: Claude, *, calls_without_thinking: bool) -> ThinkingPlan:
    """Decide how the model thinks; warn where it cannot think as the request asks.

    `calls_without_thinking`: the last assistant turn has calls and does not start with thinking.
    """
    request = prompt.request
    reasoning = request.reasoning or ReasoningConfig()
    effort, summary = reasoning.effort, reasoning.summary
    wanted = effort not in (None, "none") or summary
    if not claude.supports_thinking:
        if wanted:
            _warn(prompt, "it does not support thinking, so 'reasoning' was not sent")
        return ThinkingPlan()
    # The API rejects thinking together with a forced call. The call wins: without it the response
    # would not be what the client asked for.
    forced = bool(request.tools) and claude.supports_forced_tools and must_call(request.tool_choice)
    if claude.disabled_thinking is None:
        if effort == "none":
            _warn(prompt, "it always thinks, so the lowest effort was sent")
            effort = "low"
        if forced and summary:
            _warn(prompt, "it cannot show its thinking while a tool call is forced")
        return _plan_effort(prompt, claude, effort, shows_summary=bool(summary) and not forced)
    if forced and wanted:
        _warn(prompt, "it cannot think while a tool call is forced, so thinking was turned off")
    elif effort == "none" and summary:
        _warn(prompt, "there is no summary without thinking, and thinking was turned off")
    if forced or effort == "none":
        return ThinkingPlan({"type": claude.disabled_thinking} if claude.thinks_by_default else None)
    if effort is None and not claude.thinks_by_default:
        if summary:
            _warn(prompt, "it thinks only if 'reasoning.effort' is set")
        return ThinkingPlan()
    if effort and claude.uses_thinking_budget:
        return _plan_budget(prompt, effort, calls_without_thinking)
    return _plan_effort(prompt, claude, effort, shows_summary=bool(summary))


def choose_max_tokens(prompt: Prompt, plan: ThinkingPlan) -> int:
    """Return the limit on output tokens. Thinking counts towards it, so it gets room of its own."""
    limit = prompt.request.max_output_tokens or prompt.capabilities.max_output_tokens
    return limit or DEFAULT_MAX_TOKENS + plan.expected_tokens


def _plan_effort(prompt: Prompt, claude: Claude, effort: str | None, *, shows_summary: bool) -> ThinkingPlan:
    expected_tokens = THINKING_BUDGETS[effort or "high"]
    thinking: dict[str, object] | None = None
    if shows_summary:
        thinking = {"type": "adaptive", "display": "summarized"}
    # A model that always thinks need not be told to.
    elif effort and claude.disabled_thinking:
        thinking = {"type": "adaptive"}
    if effort == "xhigh" and not claude.supports_xhigh:
        _warn(prompt, "it has no effort 'xhigh', so 'high' was sent")
        effort = "high"
    return ThinkingPlan(thinking, "low" if effort == "minimal" else effort, expected_tokens)


def _plan_budget(prompt: Prompt, effort: str, calls_without_thinking: bool) -> ThinkingPlan:
    # With a budget, an assistant turn with calls must start with its own thinking.
    if calls_without_thinking:
        _warn(prompt, "the thinking before the last calls is missing, so thinking was left off")
        return ThinkingPlan()
    budget = THINKING_BUDGETS[effort]
    limit = prompt.request.max_output_tokens or prompt.capabilities.max_output_tokens
    if limit and limit <= MIN_BUDGET:
        _warn(prompt, f"{limit} output tokens leave no room for thinking, so it was left off")
        return ThinkingPlan()
    # The API rejects a budget that is not smaller than max_tokens.
    if limit and budget >= limit:
        budget = max(MIN_BUDGET, limit // 2)
        _warn(prompt, f"{limit} output tokens leave room for {budget} thinking tokens")
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, None, budget)


def _warn(prompt: Prompt, reason: str) -> None:
    message = f"'reasoning' was changed for the model '{prompt.model}': {reason}."
    prompt.warn("reasoning_changed", message, "reasoning")


def encode_sampling(prompt: Prompt, claude: Claude, *, thinks: bool) -> dict[str, float]:
    """Return `temperature` or `top_p`, whichever may be sent; warn of what is left out."""
    request = prompt.request
    options = {"temperature": request.temperature, "top_p": request.top_p}
    # 1 is the default of both. Sending it would only force the older version of the API.
    sampling = {name: value for name, value in options.items() if value is not None and value != 1}
    rejected = ""
    if not claude.supports_sampling:
        rejected = f"the model '{prompt.model}' does not support it"
    elif thinks:
        rejected = "it is not supported while the model thinks"
    for name in list(sampling) if rejected else list(sampling)[1:]:
        del sampling[name]
        reason = rejected or "it is not supported together with 'temperature'"
        prompt.warn("unsupported_parameter", f"'{name}' was not sent: {reason}.", name)
    if sampling.get("temperature", 0) > 1:
        message = "Anthropic supports no temperature above 1; 1 was used."
        prompt.warn("unsupported_parameter", message, "temperature")
        del sampling["temperature"]
    return sampling
