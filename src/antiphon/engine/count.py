"""How many tokens a request would give its model to read."""

from antiphon.core import tokens
from antiphon.core.request import Request
from antiphon.core.response import InputTokens, ResponseWarning
from antiphon.engine.engine import ANONYMOUS, Caller, Engine

ESTIMATED_WARNING = ResponseWarning(
    code="usage_estimated",
    message="This model does not count tokens; this is an estimate.",
    param="input_tokens",
)


async def count_input_tokens(engine: Engine, request: Request, caller: Caller = ANONYMOUS) -> InputTokens:
    """Count what a request's model would read; raises RequestError or StoreError.

    What is too long is counted all the same, unless the request says that it is to be cut.
    """
    asked = await engine.prepare_candidate(request, caller)
    turn = asked.build_turn(truncate=request.truncation == "auto")
    counted = await asked.model.count(turn)
    if counted is not None:
        return InputTokens(input_tokens=counted)
    estimate = tokens.estimate_prompt(turn.instructions, turn.tools, turn.items)
    return InputTokens(input_tokens=estimate, warnings=[ESTIMATED_WARNING])
