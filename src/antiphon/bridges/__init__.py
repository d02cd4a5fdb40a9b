"""Other event models and agent frameworks, translated into parts.

conversation    what every bridge to a framework needs: names, the conversation, the client's functions
frameworks      recognises the agents of all supported frameworks
openai_agents   agents of the OpenAI Agents SDK
xaibo           the agents of a Xaibo instance
xaibo_messages  a turn as Xaibo's messages
"""
