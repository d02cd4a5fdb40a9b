"""Functions that a model may call.

tool            the `@tool` decorator, the `Tool` class, and the arguments that a model sends; lists of tools
signature       a function's parameters as JSON Schema, with msgspec or pydantic; docstrings; `ToolContext`
strict_schema   JSON Schemas in strict mode, and the way back from its nulls
execute         runs the calls of a round in parallel; results as output
"""
