"""Error messages of chat servers."""

import json

from antiphon.adapters.base import Adapter
from antiphon.protocol.errors import UpstreamError
from tests.scripted_upstream import ScriptedAnswer, json_answer

TOOLS_ONLY_IN_RESPONSES = (
    "Function tools with reasoning_effort are not supported for gpt-5.6-sol in "
    "/v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to "
    "'none'."
)
OLD_API_VERSION = (
    "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. "
    "Please use /v1/responses instead."
)
ONLY_RESPONSES = "This model is only supported in v1/responses and not in v1/chat/completions."
NO_CHAT = (
    "The chatCompletion operation does not work with the specified model, gpt-5-codex. Please "
    "choose different model and try again."
)
NO_EFFORT = "`reasoning_effort` is not supported with this model"
NO_SCHEMA = "This response_format type is unavailable now"
NO_TOOL_CHOICE = "Thinking mode does not support this tool_choice"
NO_NAMED_CHOICE = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
NO_OBJECT = "'response_format.type' must be 'json_schema' or 'text'"
NO_JSON_WITH_TOOLS = "json mode cannot be combined with tool/function calling"

UNSUPPORTED_MESSAGES = [
    (NO_EFFORT, "reasoning"),
    ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", "reasoning"),
    ("Unknown parameter: 'reasoning_effort'.", "reasoning"),
    ("Unrecognized request argument supplied: reasoning_effort", "reasoning"),
    ("Unrecognized request arguments supplied: user, reasoning_effort", "reasoning"),
    ("Model grok-4-1-fast does not support parameter reasoningEffort.", "reasoning"),
    ("reasoning_effort: Extra inputs are not permitted", "reasoning"),
    (NO_SCHEMA, "json_schema"),
    (
        "Failed to deserialize the JSON body into the target type: response_format: "
        "response_format.type `json_schema` is unavailable now at line 1 column 124",
        "json_schema",
    ),
    (
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this "
        "model. Learn more about supported models at the Structured Outputs guide",
        "json_schema",
    ),
    ("Invalid parameter: 'response_format' of type 'json_object' is not supported with this model.", "json_object"),
    (
        "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later",
        "json_schema",
    ),
    ("This model does not support response format `json_schema`. See supported models", "json_schema"),
    (NO_OBJECT, "json_object"),
    ("'response_format.type' must be 'json_schema'", "json_object"),
    (NO_JSON_WITH_TOOLS, "tools_with_format"),
    (NO_TOOL_CHOICE, "tool_choice"),
    (NO_NAMED_CHOICE, "named_choice"),
]
REQUEST_MISTAKES = [
    "Invalid schema for response_format 'report': In context=(), 'required' is required.",
    "invalid schema for response format: response_format/json_schema: minItems is not supported",
    "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported "
    "values are: 'low', 'medium', and 'high'.",
    "Invalid value: 'none'. Supported values are: 'low', 'medium', and 'high'.",
    "`reasoning_effort` must be one of `none` or `default`",
    "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
    "Unrecognized request argument supplied: foo",
    "messages.2.assistant.reasoning_effort: Extra inputs are not permitted",
    "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you "
    "mean to use v1/completions?",
    "The model `gpt-9` does not exist or you do not have access to it.",
]
"""Errors that are the caller's mistake and are passed on."""


def error_answer(words: str, status: int = 400) -> ScriptedAnswer:
    """Return an error response with a message."""
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": None}
    return json_answer({"error": error}, status)


def decode_error(adapter: Adapter, words: str, status: int = 400) -> UpstreamError:
    """Return the error for a response with a message."""
    return adapter.decode_error(status, {}, json.dumps({"error": {"message": words}}).encode())
