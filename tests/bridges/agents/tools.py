"""The tools of `assistant`, as plain functions.

Standard library only: a framework may run in an environment of its own.
"""

import asyncio
import os
from pathlib import Path

PROMPT = "Be kind."
"""The agent's own instructions."""


async def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return "snow" if city == "Oslo" else "sun"


async def choose_clothes(weather: str) -> str:
    """Choose what to wear in some weather."""
    return "a warm coat" if weather == "snow" else "a hat"


async def work() -> str:
    """Write to the file `WORK_LOG` again and again, until cancelled."""
    log = Path(os.environ["WORK_LOG"])
    try:
        while True:
            with log.open("a") as file:
                file.write("working\n")
            await asyncio.sleep(0.005)
    finally:
        with log.open("a") as file:
            file.write("stopped\n")
