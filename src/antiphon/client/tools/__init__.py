"""Functions that a model may call.

tool            the `@tool` decorator and the `Tool` class
signature       a function's parameters as JSON Schema; docstrings; `ToolContext`
type_schemas    Python types to JSON Schema, with msgspec or pydantic
strict_schema   JSON Schemas in strict mode, and the way back from its nulls
arguments       parses, repairs and validates the arguments that a model sends
resolve         the `tools` argument as a list of tools
execute         runs the calls of a round in parallel; results as output
"""
