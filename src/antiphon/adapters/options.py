"""Options of a request, for providers that know fewer words for them than we do."""

from collections.abc import Mapping

from antiphon.adapters.base import Prompt
from antiphon.core.request import INCLUDE_LOGPROBS, Request

EFFORTS_WITHOUT_MINIMAL = {"minimal": "low"}
"""The nearest of none, low, medium, high, xhigh and max, for an effort that is none of them."""

EFFORTS_MINIMAL_TO_HIGH = {"none": "minimal", "xhigh": "high", "max": "high"}
EFFORTS_LOW_TO_HIGH = EFFORTS_MINIMAL_TO_HIGH | {"none": "low", "minimal": "low"}


def nearest_effort(prompt: Prompt, effort: str, levels: Mapping[str, str]) -> str:
    """Return the effort that a model knows, and say so if it is not the one that was asked for."""
    level = levels.get(effort, effort)
    if level != effort:
        message = f"This model does not know the effort '{effort}'; it was told '{level}'."
        prompt.warn("approximated_parameter", message, "reasoning.effort")
    return level


def service_tier_name(prompt: Prompt, names: Mapping[str, str]) -> str | None:
    """Return what a provider calls the tier that was asked for, if it has it."""
    wish = prompt.request.service_tier
    if wish not in names and wish not in ("auto", "default"):
        message = f"There is no tier '{wish}' for this model; it was not sent."
        prompt.warn("unsupported_parameter", message, "service_tier")
    return names.get(wish)


def wants_logprobs(request: Request) -> bool:
    """Tell whether the answer shall say how likely its tokens were."""
    return bool(request.top_logprobs) or INCLUDE_LOGPROBS in request.include
