"""Thinking, as Gemini knows it: how much of it to ask for, and the signatures it wants back.

Dialect notes: Gemini 3 and later think by level, and not all levels are known to all models; 2.5
thinks by a budget of tokens; what is older does not think. A signature belongs to one part of an
answer, mostly to the first call, and has to come back on that very part.
"""

import re
from typing import Literal

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, EFFORTS_MINIMAL_TO_HIGH, nearest_effort
from antiphon.adapters.json_access import JsonObject

BEFORE_GEMINI_3 = re.compile(r"gemini-[12]\b")
BUDGET_MODELS = re.compile(r"gemini-2\.5\b")
MINIMAL_LEVEL_MODELS = re.compile(r"gemini-3(?:\.[0-6])?-flash")
"""The models that know the level MINIMAL; others refuse it."""

THINKING_BUDGETS = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 24_576,
    "max": 24_576,
}
PRO_THINKING_BUDGETS = THINKING_BUDGETS | {"none": 128, "xhigh": 32_768, "max": 32_768}

SKIP_SIGNATURE_CHECK = "skip_thought_signature_validator"
"""What Google wants instead of a signature on a call that none of its models has made."""


class ThoughtSignature(Struct, frozen=True, omit_defaults=True):
    """A signature, and which part of the answer it stands on."""

    on: Literal["call", "text", "thought"]
    signature: str
    length: int = 0
    """How many characters of the text before it the signed part has."""
    id: bool = False
    """Whether the signed call has an id of Google's."""

    @property
    def fields(self) -> JsonObject:
        """What the signed part has beside its own fields."""
        return {"thoughtSignature": self.signature}


def strip_path(model: str) -> str:
    """Return a model's name without its path."""
    return model.rpartition("/")[2]


def is_before_gemini_3(model: str) -> bool:
    """Tell whether a model came before Gemini 3."""
    return BEFORE_GEMINI_3.match(strip_path(model)) is not None


def requires_signatures(model: str) -> bool:
    """Tell whether a model refuses calls without a signature."""
    return strip_path(model).startswith("gemini-") and not is_before_gemini_3(model)


def encode_thinking(prompt: Prompt) -> JsonObject | None:
    """Write how much to think, and whether to tell of it."""
    asked = prompt.request.reasoning
    if asked is None or (asked.effort is None and asked.summary is None):
        return None
    model = strip_path(prompt.model)
    if is_before_gemini_3(model) and not BUDGET_MODELS.match(model):
        if asked.effort != "none" or asked.summary:
            message = f"'{model}' does not think; 'reasoning' was not sent."
            prompt.warn("unsupported_parameter", message, "reasoning")
        return None
    config: JsonObject = {}
    if asked.summary or asked.effort != "none":
        config["includeThoughts"] = True
    if asked.effort is not None:
        config |= (
            _encode_budget(prompt, asked.effort)
            if is_before_gemini_3(model)
            else _encode_level(prompt, asked.effort)
        )
    return config


def _encode_level(prompt: Prompt, effort: str) -> JsonObject:
    levels = (
        EFFORTS_MINIMAL_TO_HIGH
        if MINIMAL_LEVEL_MODELS.match(strip_path(prompt.model))
        else EFFORTS_LOW_TO_HIGH
    )
    return {"thinkingLevel": nearest_effort(prompt, effort, levels).upper()}


def _encode_budget(prompt: Prompt, effort: str) -> JsonObject:
    pro = "-pro" in strip_path(prompt.model)
    budget = PRO_THINKING_BUDGETS[effort] if pro else THINKING_BUDGETS[effort]
    if pro and effort == "none":
        message = f"This model always thinks; it was given a budget of {budget} tokens."
        prompt.warn("approximated_parameter", message, "reasoning.effort")
    return {"thinkingBudget": budget}
