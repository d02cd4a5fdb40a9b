"""`assistant` with the OpenAI Agents SDK; the model's address is in the environment."""

from agents import Agent, function_tool
from tests.bridges.agents.tools import PROMPT, choose_clothes, get_weather, work

assistant = Agent(
    name="assistant",
    instructions=PROMPT,
    model="scripted",
    tools=[function_tool(function) for function in (get_weather, choose_clothes, work)],
)
