"""Error messages of chat servers that name a feature which they do not have.

The gateway repeats such a request without the feature, or through the Responses API. Only messages
of real servers are listed, and they are matched from their first character: further on, a message
may quote the request, and nothing must be learned from that. Messages about a value, such as an
unknown effort or an invalid schema, are not listed: they are for the client.
"""

import re

NAMED_CHOICE = "named_choice"
"""The feature that `tool_choice` can name a function."""

LEARNABLE_FEATURES = frozenset(
    {"reasoning", "json_object", "json_schema", "tools_with_format", "tool_choice", NAMED_CHOICE}
)
"""The features that a server may turn out to lack."""

REJECTED_STATUSES = frozenset({400, 422})
MISSING_MODEL_STATUSES = frozenset({400, 404})

RESPONSES_ONLY = re.compile(
    # OpenAI, about models with reasoning
    r"Function tools with reasoning_effort are not supported for \S+ in /v1/chat/completions\. "
    r".*\buse /v1/responses\b"
    # OpenAI, about its `pro` and `codex` models
    r"|This model is only supported in v1/responses\b"
    # Azure, about the same models
    r"|The chatCompletion operation does not work with the specified model\b"
)
"""Messages for models that are available only through the Responses API."""

FORMAT = "(json_object|json_schema)"
DESERIALIZE_ERROR = "Failed to deserialize the JSON body into the target type"
UNSUPPORTED_PATTERNS = [
    (re.compile(words), feature)
    for words, feature in [
        # OpenAI and Azure
        ("Unsupported parameter: 'reasoning_effort' is not supported with this model", "reasoning"),
        ("Unknown parameter: 'reasoning_effort'", "reasoning"),
        (r"Unrecognized request arguments? supplied: .*\breasoning_effort\b", "reasoning"),
        (f"Invalid parameter: 'response_format' of type '{FORMAT}' is not supported with", r"\1"),
        (f"response_format value as {FORMAT} is enabled only for api versions", r"\1"),
        # xAI
        (r"Model \S+ does not support parameter reasoningEffort\b", "reasoning"),
        # Mistral
        ("reasoning_effort: Extra inputs are not permitted", "reasoning"),
        # Groq
        ("`reasoning_effort` is not supported with this model", "reasoning"),
        (f"This model does not support response format `{FORMAT}`", r"\1"),
        ("json mode cannot be combined with tool/function calling", "tools_with_format"),
        # DeepSeek, which has only `json_object`
        ("This response_format type is unavailable now", "json_schema"),
        (
            f"{DESERIALIZE_ERROR}: response_format: response_format.type `{FORMAT}` is unavailable now",  # noqa: E501
            r"\1",
        ),
        ("Thinking mode does not support this tool_choice", "tool_choice"),
        # LM Studio
        (r"'response_format\.type' must be 'json_schema'", "json_object"),
        ("Invalid tool_choice type: 'object'", NAMED_CHOICE),
    ]
]
"""Messages about missing features, and the feature of each."""


def requires_responses(status: int, message: str) -> bool:
    """Return whether an error says that the model needs the Responses API."""
    return status in MISSING_MODEL_STATUSES and RESPONSES_ONLY.match(message) is not None


def unsupported_feature(status: int, message: str) -> str | None:
    """Return the feature that the server lacks according to its error; None for other errors."""
    if status not in REJECTED_STATUSES:
        return None
    matches = ((words.match(message), feature) for words, feature in UNSUPPORTED_PATTERNS)
    return next((match.expand(feature) for match, feature in matches if match), None)
