"""Other event models and agent frameworks, translated into parts.

frameworks      recognises the agents of all supported frameworks
xaibo           the agents of a Xaibo instance
xaibo_messages  a turn as Xaibo's messages
"""
