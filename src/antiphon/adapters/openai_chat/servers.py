"""The servers that speak Chat Completions, and how they differ from one another.

OpenAI's own API has features and field names that other servers reject. Mistral and DeepSeek have rules of their own.
Every other address is treated as a compatible server, which gets the older field names that all servers know. Error
messages that say which feature a server lacks are matched here too.
"""

import re
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.protocol.tools import CUSTOM_TOOL

NAMED_CHOICE = "named_choice"
"""The feature that `tool_choice` can name a function."""

LEARNABLE_FEATURES = frozenset(
    {"reasoning", "json_object", "json_schema", "tools_with_format", "tool_choice", NAMED_CHOICE}
)
"""The features that a server may turn out to lack."""

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
        (f"{DESERIALIZE_ERROR}: response_format: response_format.type `{FORMAT}` is unavailable now", r"\1"),
        ("Thinking mode does not support this tool_choice", "tool_choice"),
        # LM Studio
        (r"'response_format\.type' must be 'json_schema'", "json_object"),
        ("Invalid tool_choice type: 'object'", NAMED_CHOICE),
    ]
]
"""Messages about missing features, and the feature of each."""


def requires_responses(status: int, message: str) -> bool:
    """Return whether an error says that the model needs the Responses API."""
    return status in (400, 404) and RESPONSES_ONLY.match(message) is not None


def unsupported_feature(status: int, message: str) -> str | None:
    """Return the feature that the server lacks according to its error; None for other errors."""
    if status not in (400, 422):
        return None
    matches = ((words.match(message), feature) for words, feature in UNSUPPORTED_PATTERNS)
    return next((match.expand(feature) for match, feature in matches if match), None)


class ChatServer(Struct, frozen=True, kw_only=True):
    """One server, or one family of servers: its field names and rules, and what it supports."""

    features: frozenset[str] = frozenset()
    hosted_tools: frozenset[str] = frozenset()
    learnable_features: frozenset[str] = LEARNABLE_FEATURES
    """The features that are given up when an error of the server says that it lacks them."""
    system_role: str = "system"
    """The role of the message with the instructions."""
    max_tokens_field: str = "max_tokens"
    """The field for `max_output_tokens`."""
    has_openai_extensions: bool = False
    """Whether the server has custom tools and refusals, and accepts arguments that are not JSON."""
    seed_field: str = "seed"
    requests_stream_usage: bool = True
    """Whether a stream reports its usage only if `stream_options` asks for it."""
    has_short_call_ids: bool = False
    """Whether the id of a call must be exactly nine letters and digits."""
    reasoning_field: str = ""
    """The field for reasoning that came without our seal; empty if such reasoning is not sent."""


COMPATIBLE_FEATURES = frozenset(
    """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens user
    logprobs reasoning tools strict_tools tool_choice parallel_tool_calls json_object json_schema
    tools_with_format images image_urls image_detail files videos audio""".split()
)
"""What compatible servers may support. What one of them lacks is learned from its errors."""

OPENAI_FEATURES = COMPATIBLE_FEATURES - {"videos"} | set(
    "prompt_cache_key safety_identifier service_tier verbosity allowed_tools file_ids".split()
)
"""What OpenAI's own implementation supports, at OpenAI and on Azure."""

COMPATIBLE = ChatServer(features=COMPATIBLE_FEATURES)
OPENAI = ChatServer(
    system_role="developer",
    max_tokens_field="max_completion_tokens",
    has_openai_extensions=True,
    features=OPENAI_FEATURES,
    hosted_tools=frozenset({CUSTOM_TOOL}),
    # What OpenAI's models lack is known by name; any other error is for the caller to see.
    learnable_features=frozenset({"reasoning"}),
)
MISTRAL = ChatServer(
    # Mistral rejects every field that it does not know, `stream_options` included.
    seed_field="random_seed",
    requests_stream_usage=False,
    has_short_call_ids=True,
    features=COMPATIBLE_FEATURES - {"logprobs", "user"},
)
DEEPSEEK = ChatServer(
    # DeepSeek rejects tool calls without the reasoning that led to them.
    reasoning_field="reasoning_content",
    features=COMPATIBLE_FEATURES,
)
BY_HOST = {"api.mistral.ai": MISTRAL, "api.deepseek.com": DEEPSEEK}


def find_server(url: str) -> ChatServer:
    """Return what is known of the server at an address."""
    return OPENAI if is_openai(url) else BY_HOST.get(url_host(url), COMPATIBLE)


def is_openai(url: str) -> bool:
    """Return whether an address is OpenAI's own, including its regional ones."""
    return f".{url_host(url)}".endswith(".api.openai.com")


def url_host(url: str) -> str:
    """Return the host of an address; an empty string if the address is invalid."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
