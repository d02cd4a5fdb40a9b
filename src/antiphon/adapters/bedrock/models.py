"""What the families of models behind Bedrock want, where Converse itself does not say.

Dialect notes: how hard to think is asked in a different way of each family; Claude's own rules are
those of its maker. Cache points and strict tools are refused by models that do not know them.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from antiphon.adapters.anthropic.models import (
    CLAUDE_NAME,
    Claude,
    choose_max_tokens,
    lookup_claude,
    plan_thinking,
)
from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import role_of
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, EFFORTS_WITHOUT_MINIMAL, nearest_effort
from antiphon.protocol.items import (
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)

VENDORS = (
    "ai21",
    "amazon",
    "anthropic",
    "cohere",
    "deepseek",
    "meta",
    "mistral",
    "moonshot",
    "openai",
)
STRICT_CLAUDE_VERSIONS = frozenset({("4", "5"), ("4", "6")})
"""The Claudes that take `strict` through Converse; older and newer ones refuse the field."""


class ThinkingOptions(Struct):
    """How a model is told to think."""

    fields: dict[str, object] = field(default_factory=dict[str, object])
    """What goes into `additionalModelRequestFields`."""
    effort: str | None = None
    """What goes into `outputConfig`."""
    allows_sampling: bool = True
    """Whether temperature and top_p may be said beside it."""
    max_tokens: int | None = None
    """How much may be written in all, if more has to be said of it than the client does."""


def find_claude(model: str) -> Claude | None:
    """Return what is known of a Claude, or None for any other model."""
    return lookup_claude(model) if "anthropic." in model else None


def supports_strict_tools(model: str) -> bool:
    """Tell whether a model takes strict tools."""
    if find_claude(model) is None:
        return True
    found = CLAUDE_NAME.search(model)
    return found is not None and (found["major"], found["minor"]) in STRICT_CLAUDE_VERSIONS


def thinking_is_summary(prompt: Prompt) -> bool:
    """Tell whether the thinking that comes back is a summary of it."""
    wish = prompt.request.reasoning
    return bool(wish and wish.summary) and find_claude(prompt.model) is not None


def encode_thinking(prompt: Prompt) -> ThinkingOptions:
    """Say how hard to think, in the words of the model's family."""
    if found := find_claude(prompt.model):
        return _encode_claude_thinking(prompt, found)
    wish = prompt.request.reasoning
    if wish is None:
        return ThinkingOptions()
    if wish.summary:
        message = "This model writes no summaries of its thinking; what it shows is told as it is."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    return ThinkingOptions() if wish.effort is None else _encode_other_thinking(prompt, wish.effort)


def _encode_claude_thinking(prompt: Prompt, claude: Claude) -> ThinkingOptions:
    made = plan_thinking(
        prompt, claude, calls_without_thinking=_calls_without_thinking(prompt.items)
    )
    fields: dict[str, object] = {"thinking": made.thinking} if made.thinking else {}
    # Converse's own limit is less than many a model thinks for.
    limited = made.expected_tokens or prompt.capabilities.max_output_tokens
    room = choose_max_tokens(prompt, made) if limited else None
    return ThinkingOptions(fields, made.effort, allows_sampling=not made.thinks, max_tokens=room)


def _encode_other_thinking(prompt: Prompt, effort: str) -> ThinkingOptions:
    model = prompt.model
    if "amazon.nova" in model:
        return _encode_nova_thinking(prompt, effort)
    if "openai.gpt-oss" in model or "moonshot" in model:
        return ThinkingOptions(
            {"reasoning_effort": nearest_effort(prompt, effort, EFFORTS_LOW_TO_HIGH)}
        )
    if "openai." in model:
        return ThinkingOptions(
            {"reasoning": {"effort": nearest_effort(prompt, effort, EFFORTS_WITHOUT_MINIMAL)}}
        )
    return ThinkingOptions(
        effort=None if effort == "none" else nearest_effort(prompt, effort, EFFORTS_WITHOUT_MINIMAL)
    )


def _encode_nova_thinking(prompt: Prompt, effort: str) -> ThinkingOptions:
    if effort == "none":
        return ThinkingOptions()
    if "nova-2" not in prompt.model:
        message = "This model cannot think; it was not told to."
        prompt.warn("unsupported_parameter", message, "reasoning.effort")
        return ThinkingOptions()
    levels = dict(EFFORTS_LOW_TO_HIGH)
    if prompt.request.max_output_tokens is not None:  # at the highest level it takes no limit
        levels |= dict.fromkeys(("high", "xhigh", "max"), "medium")
    level = nearest_effort(prompt, effort, levels)
    config = {"type": "enabled", "maxReasoningEffort": level}
    return ThinkingOptions({"reasoningConfig": config}, allows_sampling=level != "high")


def _calls_without_thinking(items: Sequence[Item]) -> bool:
    """Tell whether a model goes on after calls that it made without a thought of its own."""
    # What the system says goes to the front, wherever it stood.
    last = next((item for item in reversed(items) if role_of(item) != "system"), None)
    if not isinstance(last, FunctionCallOutput):
        return False
    for item in reversed(items):
        if isinstance(item, Message) and item.role == "user":
            break
        if isinstance(item, Reasoning) and item.encrypted_content:
            return False
    return True
