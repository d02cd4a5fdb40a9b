"""`assistant` in plain Python, with Antiphon's own client."""

import json
import os
from collections.abc import AsyncIterator

from antiphon import AsyncClient, Call, Reasoning, Text, Turn, Usage, agent
from antiphon.protocol.events import OutputItemDone, OutputTextDelta, ReasoningSummaryTextDelta
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item
from antiphon.protocol.response import Response
from antiphon.protocol.tools import FunctionTool
from tests.bridges.agents.tools import PROMPT, choose_clothes, get_weather, work

TOOLS = {function.__name__: function for function in (get_weather, choose_clothes, work)}


def declare(name: str, *parameters: str) -> FunctionTool:
    """Declare a tool that takes strings."""
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return FunctionTool(name=name, parameters={"type": "object", "properties": properties})


DECLARATIONS = [declare("get_weather", "city"), declare("choose_clothes", "weather"), declare("work")]


@agent("assistant")
async def assistant(turn: Turn) -> AsyncIterator[object]:
    """Call the model until it calls no tool of this agent."""
    items: list[Item] = list(turn.items)
    instructions = "\n".join(filter(None, [PROMPT, turn.instructions]))
    tools = [*DECLARATIONS, *turn.functions]
    rounds: list[Response] = []
    async with AsyncClient(os.environ["OPENAI_BASE_URL"]) as client:
        while True:
            calls: list[FunctionCall] = []
            stream = client.stream(model="scripted", input=items, instructions=instructions, tools=tools)
            async for event in stream:
                match event:
                    case OutputTextDelta(delta=delta):
                        yield Text(delta, key=len(rounds))
                    case ReasoningSummaryTextDelta(delta=delta):
                        yield Reasoning(summary=delta, key=len(rounds))
                    case OutputItemDone(item=FunctionCall() as call):
                        calls.append(call)
                        yield Call(name=call.name, arguments=call.arguments, call_id=call.call_id, complete=True)
                    case _:
                        pass
            if stream.response.status != "completed":
                raise RuntimeError("the model has failed")
            items += stream.response.output
            rounds.append(stream.response)
            yield sum_usage(rounds)
            own = [call for call in calls if call.name in TOOLS]
            for call in own:
                output = await TOOLS[call.name](**json.loads(call.arguments))
                items.append(FunctionCallOutput(call_id=call.call_id, output=output))
                yield items[-1]
            if not own or len(own) < len(calls):
                return


def sum_usage(rounds: list[Response]) -> Usage:
    """Return the tokens of all calls of the model."""
    counts = [response.usage for response in rounds if response.usage]
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in counts),
        output_tokens=sum(usage.output_tokens for usage in counts),
        cached_tokens=sum(usage.input_tokens_details.cached_tokens for usage in counts),
        reasoning_tokens=sum(usage.output_tokens_details.reasoning_tokens for usage in counts),
    )
