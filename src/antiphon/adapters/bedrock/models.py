"""What the families of models behind Bedrock want, where Converse itself does not say.

Dialect notes: how hard to think is asked in a different way of each family; Claude's own rules are
those of its maker. Cache points and strict tools are refused by models that do not know them.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from antiphon.adapters.anthropic.models import NAME, Claude, known
from antiphon.adapters.anthropic.thinking import max_tokens, plan
from antiphon.adapters.base import Prompt
from antiphon.adapters.options import FIVE, THREE, nearest
from antiphon.adapters.story import role_of
from antiphon.core.items import FunctionCallOutput, Item, Message, Reasoning

MAKERS = (
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
STRICT_VERSIONS = frozenset({("4", "5"), ("4", "6")})
"""The Claudes that take `strict` through Converse; older and newer ones refuse the field."""


class Thinking(Struct):
    """How a model is told to think."""

    fields: dict[str, object] = field(default_factory=dict[str, object])
    """What goes into `additionalModelRequestFields`."""
    effort: str | None = None
    """What goes into `outputConfig`."""
    sampled: bool = True
    """Whether temperature and top_p may be said beside it."""
    room: int | None = None
    """How much may be written in all, if more has to be said of it than the client does."""


def claude(model: str) -> Claude | None:
    """Return what is known of a Claude, or None for any other model."""
    return known(model) if "anthropic." in model else None


def takes_strict(model: str) -> bool:
    """Tell whether a model takes strict tools."""
    if claude(model) is None:
        return True
    found = NAME.search(model)
    return found is not None and (found["major"], found["minor"]) in STRICT_VERSIONS


def summarises(prompt: Prompt) -> bool:
    """Tell whether the thinking that comes back is a summary of it."""
    wish = prompt.request.reasoning
    return bool(wish and wish.summary) and claude(prompt.model) is not None


def thinking(prompt: Prompt) -> Thinking:
    """Say how hard to think, in the words of the model's family."""
    if found := claude(prompt.model):
        return _of_claude(prompt, found)
    wish = prompt.request.reasoning
    if wish is None:
        return Thinking()
    if wish.summary:
        message = "This model writes no summaries of its thinking; what it shows is told as it is."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    return Thinking() if wish.effort is None else _of_others(prompt, wish.effort)


def _of_claude(prompt: Prompt, claude: Claude) -> Thinking:
    made = plan(prompt, claude, bare=_is_amid_calls(prompt.items))
    fields: dict[str, object] = {"thinking": made.thinking} if made.thinking else {}
    # Converse's own limit is less than many a model thinks for.
    limited = made.room or prompt.capabilities.max_output_tokens
    room = max_tokens(prompt, made) if limited else None
    return Thinking(fields, made.effort, sampled=not made.thinks, room=room)


def _of_others(prompt: Prompt, effort: str) -> Thinking:
    model = prompt.model
    if "amazon.nova" in model:
        return _of_nova(prompt, effort)
    if "openai.gpt-oss" in model or "moonshot" in model:
        return Thinking({"reasoning_effort": nearest(prompt, effort, THREE)})
    if "openai." in model:
        return Thinking({"reasoning": {"effort": nearest(prompt, effort, FIVE)}})
    return Thinking(effort=None if effort == "none" else nearest(prompt, effort, FIVE))


def _of_nova(prompt: Prompt, effort: str) -> Thinking:
    if effort == "none":
        return Thinking()
    if "nova-2" not in prompt.model:
        message = "This model cannot think; it was not told to."
        prompt.warn("unsupported_parameter", message, "reasoning.effort")
        return Thinking()
    levels = dict(THREE)
    if prompt.request.max_output_tokens is not None:  # at the highest level it takes no limit
        levels |= dict.fromkeys(("high", "xhigh", "max"), "medium")
    level = nearest(prompt, effort, levels)
    config = {"type": "enabled", "maxReasoningEffort": level}
    return Thinking({"reasoningConfig": config}, sampled=level != "high")


def _is_amid_calls(items: Sequence[Item]) -> bool:
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
