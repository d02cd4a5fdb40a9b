"""An agent with two entries: the models `my-agent` and `my-agent/echo`.

Serve it, from this folder, with `antiphon serve --app my_agent`.
"""

import asyncio
from collections.abc import AsyncIterator

from antiphon import Turn, agent


@agent("my-agent")
async def my_agent(turn: Turn) -> AsyncIterator[str]:
    """Repeat the input and count its words."""
    yield f"You said “{turn.text}”, "
    yield f"and that is {len(turn.text.split())} words."


@my_agent.entry("echo")
async def echo(turn: Turn) -> AsyncIterator[str]:
    """Repeat the input several times, each time slower and with fewer words."""
    words = turn.text.split()
    for start in range(len(words)):
        await asyncio.sleep(0.1 * start)
        yield " ".join(words[start:]) + " … "
