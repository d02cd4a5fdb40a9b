"""`assistant` as an agent of LangChain's `create_agent`, and as a graph that is written by hand."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from antiphon.bridges.langchain_tools import ClientTools
from antiphon.bridges.langgraph import client_tools, wrap_agent
from tests.bridges.agents.tools import PROMPT, choose_clothes, get_weather, work

TOOLS = [get_weather, choose_clothes, work]

model = ChatOpenAI(model="scripted", use_responses_api=True)

assistant = wrap_agent(create_agent(model, TOOLS, system_prompt=PROMPT, middleware=[ClientTools()]), "assistant")


async def call_model(state: MessagesState) -> dict[str, Any]:
    """Call the model with the tools of both sides."""
    bound = model.bind_tools([*TOOLS, *client_tools()])
    return {"messages": [await bound.ainvoke([SystemMessage(PROMPT), *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node("call_model", call_model)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "call_model")
graph.add_conditional_edges("call_model", tools_condition)
graph.add_edge("tools", "call_model")

handwritten = wrap_agent(graph.compile(), "assistant")
