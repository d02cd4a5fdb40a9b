"""From a request to a run: what must hold before a response is begun."""

import difflib
import time
from collections.abc import Callable

from msgspec import UNSET

from antiphon.agents.agent import Agent
from antiphon.agents.registry import Agents
from antiphon.agents.turn import Turn
from antiphon.core import context, parts
from antiphon.core.errors import RequestError
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.core.tools import (
    AllowedTools,
    FunctionTool,
    FunctionToolChoice,
    SpecificToolChoice,
    must_call,
)
from antiphon.core.value import is_extension_type
from antiphon.engine.ids import new_id, padding
from antiphon.engine.run import Outlet, Run

REFUSED = {
    "prompt": "Prompt templates are not kept here. Send the text itself in 'instructions'.",
    "conversation": "Conversations are not kept here yet. Send the whole context in 'input'.",
}
"""Fields that would change the answer and cannot be honoured."""


class Engine:
    """Everything a response needs to be made: models, ids and a clock."""

    def __init__(
        self,
        agents: Agents,
        *,
        ids: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.agents = agents
        self._ids = ids
        self._clock = clock

    def open(self, request: Request, outlet: Outlet | None = None) -> Run:
        """Check a request and begin its response; raises RequestError."""
        agent, entry = self._model(request)
        self._check(request)
        response = Response.new(request, id=self._ids("resp"), created_at=int(self._clock()))
        items = context.assemble([], request.input)
        turn = Turn(
            request=request,
            input=context.fit(items, agent.window, request.truncation),
            entry=entry,
            response_id=response.id,
        )
        pad = padding if request.stream_options.include_obfuscation else None
        synth = Synth(response, ids=self._ids, clock=self._clock, pad=pad)
        for warning in warnings(request):
            synth.feed(warning)
        return Run(agent.stream, turn, synth, outlet)

    def _model(self, request: Request) -> tuple[Agent, str]:
        if not request.model or not (request.input or request.previous_response_id):
            missing = "input" if request.model else "model"
            raise RequestError(
                "A request needs 'model' and 'input'. GET /v1/models lists the models.",
                param=missing,
                code="missing_required_parameter",
            )
        if found := self.agents.find(request.model):
            return found
        raise RequestError(
            f"The model '{request.model}' does not exist. GET /v1/models lists those that do.",
            type="not_found",
            param="model",
            code="model_not_found",
        )

    def _check(self, request: Request) -> None:
        for name, advice in REFUSED.items():
            if request.get(name) is not None:
                raise RequestError(advice, param=name, code="unsupported_parameter")
        if request.background:
            raise RequestError(
                "Background responses are not made here yet. Leave 'background' out.",
                param="background",
                code="unsupported_parameter",
            )
        if request.previous_response_id:
            raise RequestError(
                f"Previous response with id '{request.previous_response_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        check_tool_choice(request)


def check_tool_choice(request: Request) -> None:
    """Refuse a tool choice that the offered tools cannot meet."""
    choice = request.tool_choice
    offered = {tool.name for tool in request.tools if isinstance(tool, FunctionTool)}
    named: list[SpecificToolChoice] = []
    if isinstance(choice, FunctionToolChoice):
        named = [choice]
    elif isinstance(choice, AllowedTools):
        named = choice.tools
    for tool in named:
        if isinstance(tool, FunctionToolChoice) and tool.name not in offered:
            raise RequestError(
                f"tool_choice names '{tool.name}', which is not offered. Add it to 'tools'.",
                param="tool_choice",
                code="invalid_value",
            )
    if must_call(choice) and not request.tools:
        raise RequestError(
            "tool_choice asks for a call, but there are no tools. Add some, or use 'auto'.",
            param="tool_choice",
            code="invalid_value",
        )


def warnings(request: Request) -> list[parts.Warn]:
    """Name the fields of a request that nothing here reads; extensions' own are theirs."""
    if request.extra is UNSET:
        return []
    known = Request.__struct_fields__
    found: list[parts.Warn] = []
    for name, value in request.extra.items():
        if value is not None and not is_extension_type(name):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            message = f"The field '{name}' is not used by this server.{hint}"
            found.append(parts.Warn("unused_parameter", message, name))
    return found
