"""`assistant` with pydantic-ai; the model's address is in the environment."""

from pydantic_ai import Agent

from tests.bridges.agents.tools import PROMPT, choose_clothes, get_weather, work

assistant = Agent(
    "openai-responses:scripted", name="assistant", instructions=PROMPT, tools=[get_weather, choose_clothes, work]
)
