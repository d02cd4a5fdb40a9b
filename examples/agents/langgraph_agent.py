"""An agent of LangChain and LangGraph: MODEL=openai:gpt-5.2 antiphon serve --app langgraph_agent"""

import os

from langchain.agents import create_agent


def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return f"It snows in {city}."


assistant = create_agent(os.environ["MODEL"], [get_weather], system_prompt="Be brief.")
