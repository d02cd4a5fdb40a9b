"""Other event models and agent frameworks, translated into parts.

blocks/               llm_client's block events: to Open Responses and back
conversation          what every bridge to a framework needs: names, the conversation, the client's functions
frameworks            recognises the agents of all supported frameworks
langchain_chain       a chat model of LangChain, or a chain
langchain_messages    items as LangChain's messages, and its messages as parts
langchain_run         what runs of graphs and of chains share
langchain_tools       the client's tools for the agents of `create_agent`
langgraph             LangGraph's graphs and LangChain's runnables
openai_agents         agents of the OpenAI Agents SDK
pydantic_ai           agents of pydantic-ai
pydantic_ai_messages  a conversation as pydantic-ai's messages
stream                a response made outside of the engine, from a bridge's parts
threads/              the thread events of VT Code and Codex: to Open Responses
xaibo                 the agents of a Xaibo instance
xaibo_messages        a turn as Xaibo's messages
"""
