"""An agent that asks its client to call a function, then answers with the result.

Serve it, from this folder, with `antiphon serve --app tools`.
"""

import json
from collections.abc import AsyncIterator

from antiphon import Call, Turn, agent

CITIES = ["Lisbon", "Oslo", "Quito"]


@agent("traveller")
async def traveller(turn: Turn) -> AsyncIterator[str | Call]:
    """Call `get_weather` for each city in the input, if the client offers that tool."""
    cities = [city for city in CITIES if city in turn.text]
    if turn.tool_outputs:
        yield "Pack for this: "
        yield "; ".join(output.text for output in turn.tool_outputs)
    elif cities and "get_weather" in [tool.name for tool in turn.functions]:
        for key, city in enumerate(cities):
            yield Call(key, name="get_weather", arguments=json.dumps({"city": city}))
    else:
        yield f"Offer me the tool get_weather, and name some of {', '.join(CITIES)}."
