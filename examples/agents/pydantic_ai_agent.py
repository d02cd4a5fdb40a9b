"""An agent of pydantic-ai; in this folder: MODEL=openai:gpt-5.2 antiphon serve --app pydantic_ai_agent"""

import os

from pydantic_ai import Agent

assistant = Agent(os.environ["MODEL"], name="assistant", instructions="Be brief.")


@assistant.tool_plain
def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return f"It snows in {city}."
