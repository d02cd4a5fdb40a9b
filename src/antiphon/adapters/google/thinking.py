"""Thinking, as Gemini knows it: how much of it to ask for, and the signatures it wants back.

Dialect notes: Gemini 3 and later think by level, and not all levels are known to all models; 2.5
thinks by a budget of tokens; what is older does not think. A signature belongs to one part of an
answer, mostly to the first call, and has to come back on that very part.
"""

import re
from typing import Literal

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.adapters.fields import Fields
from antiphon.adapters.options import FOUR, THREE, nearest

OLD = re.compile(r"gemini-[12]\b")
BUDGETED = re.compile(r"gemini-2\.5\b")
MINIMAL = re.compile(r"gemini-3(?:\.[0-6])?-flash")
"""The models that know the level MINIMAL; others refuse it."""

BUDGETS = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 24_576,
    "max": 24_576,
}
PRO_BUDGETS = BUDGETS | {"none": 128, "xhigh": 32_768, "max": 32_768}

SKIP = "skip_thought_signature_validator"
"""What Google wants instead of a signature on a call that none of its models has made."""


class Seal(Struct, frozen=True, omit_defaults=True):
    """A signature, and which part of the answer it stands on."""

    on: Literal["call", "text", "thought"]
    signature: str
    length: int = 0
    """How many characters of the text before it the signed part has."""
    id: bool = False
    """Whether the signed call has an id of Google's."""

    @property
    def fields(self) -> Fields:
        """What the signed part has beside its own fields."""
        return {"thoughtSignature": self.signature}


def short(model: str) -> str:
    """Return a model's name without its path."""
    return model.rpartition("/")[2]


def is_old(model: str) -> bool:
    """Tell whether a model came before Gemini 3."""
    return OLD.match(short(model)) is not None


def demands_signatures(model: str) -> bool:
    """Tell whether a model refuses calls without a signature."""
    return short(model).startswith("gemini-") and not is_old(model)


def thinking(prompt: Prompt) -> Fields | None:
    """Write how much to think, and whether to tell of it."""
    asked = prompt.request.reasoning
    if asked is None or (asked.effort is None and asked.summary is None):
        return None
    model = short(prompt.model)
    if is_old(model) and not BUDGETED.match(model):
        if asked.effort != "none" or asked.summary:
            message = f"'{model}' does not think; 'reasoning' was not sent."
            prompt.warn("unsupported_parameter", message, "reasoning")
        return None
    config: Fields = {}
    if asked.summary or asked.effort != "none":
        config["includeThoughts"] = True
    if asked.effort is not None:
        config |= _budget(prompt, asked.effort) if is_old(model) else _level(prompt, asked.effort)
    return config


def _level(prompt: Prompt, effort: str) -> Fields:
    levels = FOUR if MINIMAL.match(short(prompt.model)) else THREE
    return {"thinkingLevel": nearest(prompt, effort, levels).upper()}


def _budget(prompt: Prompt, effort: str) -> Fields:
    pro = "-pro" in short(prompt.model)
    budget = PRO_BUDGETS[effort] if pro else BUDGETS[effort]
    if pro and effort == "none":
        message = f"This model always thinks; it was given a budget of {budget} tokens."
        prompt.warn("approximated_parameter", message, "reasoning.effort")
    return {"thinkingBudget": budget}
