"""What servers of this dialect say when they refuse what can be had in another way.

Only words that real servers are known to say stand here, from their first letter on: further in, an
error may quote the caller, from whom nothing is to be learnt. Words about a value, such as an
effort that a model does not know or a schema that is not valid, are the caller's to hear.
"""

import re

NAMED_CHOICE = "named_choice"
"""That a tool which must be called can be called by its name."""

LEARNABLE_FEATURES = frozenset(
    {"reasoning", "json_object", "json_schema", "tools_with_format", "tool_choice", NAMED_CHOICE}
)
"""What a server may be found to lack."""

REJECTED_STATUSES = frozenset({400, 422})
MISSING_MODEL_STATUSES = frozenset({400, 404})

RESPONSES_ONLY = re.compile(
    # OpenAI, of models that think
    r"Function tools with reasoning_effort are not supported for \S+ in /v1/chat/completions\. "
    r".*\buse /v1/responses\b"
    # OpenAI, of its `pro` and `codex` models
    r"|This model is only supported in v1/responses\b"
    # Azure, of the same
    r"|The chatCompletion operation does not work with the specified model\b"
)
"""How a model that is asked in chat says that it is to be asked in Responses."""

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
        # DeepSeek, which has the other format
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
"""What servers say of what they lack, and the feature that it is."""


def requires_responses(status: int, message: str) -> bool:
    """Tell whether a model has to be asked in Responses."""
    return status in MISSING_MODEL_STATUSES and RESPONSES_ONLY.match(message) is not None


def unsupported_feature(status: int, message: str) -> str | None:
    """Return the feature that a server says it lacks, if that is why it refuses."""
    if status not in REJECTED_STATUSES:
        return None
    matches = ((words.match(message), feature) for words, feature in UNSUPPORTED_PATTERNS)
    return next((match.expand(feature) for match, feature in matches if match), None)
