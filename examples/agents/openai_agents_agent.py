"""An agent of the OpenAI Agents SDK; in this folder: antiphon serve --app openai_agents_agent"""

from agents import Agent, function_tool


@function_tool
def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return f"It snows in {city}."


assistant = Agent(name="assistant", instructions="Be brief.", tools=[get_weather])
