"""Other servers' streams, read as typed events whatever they make of the protocol.

- `openai_types`: the types and event names that only OpenAI has
"""
