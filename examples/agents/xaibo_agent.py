"""An agent of Xaibo: MODEL=gpt-5.2 MODEL_URL=https://api.openai.com/v1 antiphon serve --app xaibo_agent"""

from os import environ

from xaibo import AgentConfig, ModuleConfig, Xaibo
from xaibo.primitives.modules import llm, orchestrator, tools


def get_weather(city: str) -> str:
    """Look out of a window in a city."""
    return f"It snows in {city}."


modules = [
    ModuleConfig(id="llm", module=llm.OpenAILLM, config={"model": environ["MODEL"], "base_url": environ["MODEL_URL"]}),
    ModuleConfig(id="tools", module=tools.PythonToolProvider, config={"tool_functions": [get_weather]}),
    ModuleConfig(id="answer", module=orchestrator.SimpleToolOrchestrator, config={"system_prompt": "Be brief."}),
]
xaibo = Xaibo()
xaibo.register_agent(AgentConfig(id="assistant", modules=modules))
