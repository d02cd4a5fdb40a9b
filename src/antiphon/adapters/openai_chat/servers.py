"""The servers that speak Chat Completions, and how they differ from one another.

OpenAI's own API has features and field names that other servers reject. Mistral and DeepSeek have
rules of their own. Every other address is treated as a compatible server, which gets the older
field names that all servers know.
"""

from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.adapters.openai_chat.unsupported_errors import LEARNABLE_FEATURES
from antiphon.protocol.tools import CUSTOM_TOOL


class ChatQuirks(Struct, frozen=True, kw_only=True):
    """Field names and rules in which servers of this dialect differ."""

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


class ChatServer(Struct, frozen=True, kw_only=True):
    """One server, or one family of servers: its quirks and what it supports."""

    quirks: ChatQuirks = ChatQuirks()
    features: frozenset[str]
    hosted_tools: frozenset[str] = frozenset()
    learnable_features: frozenset[str] = LEARNABLE_FEATURES
    """The features that are given up when an error of the server says that it lacks them."""


COMPATIBLE_FEATURES = frozenset(
    """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens user
    logprobs reasoning tools strict_tools tool_choice parallel_tool_calls json_object json_schema
    tools_with_format images image_urls image_detail files videos audio""".split()
)
"""What compatible servers may support. What one of them lacks is learned from its errors."""

OPENAI_FEATURES = COMPATIBLE_FEATURES - {"videos"} | frozenset(
    """prompt_cache_key safety_identifier service_tier verbosity allowed_tools file_ids""".split()
)
"""What OpenAI's own implementation supports, at OpenAI and on Azure."""

COMPATIBLE = ChatServer(features=COMPATIBLE_FEATURES)
OPENAI = ChatServer(
    quirks=ChatQuirks(
        system_role="developer",
        max_tokens_field="max_completion_tokens",
        has_openai_extensions=True,
    ),
    features=OPENAI_FEATURES,
    hosted_tools=frozenset({CUSTOM_TOOL}),
    # What OpenAI's models lack is known by name; any other error is for the caller to see.
    learnable_features=frozenset({"reasoning"}),
)
MISTRAL = ChatServer(
    # Mistral rejects every field that it does not know, `stream_options` included.
    quirks=ChatQuirks(
        seed_field="random_seed", requests_stream_usage=False, has_short_call_ids=True
    ),
    features=COMPATIBLE_FEATURES - {"logprobs", "user"},
)
DEEPSEEK = ChatServer(
    # DeepSeek rejects tool calls without the reasoning that led to them.
    quirks=ChatQuirks(reasoning_field="reasoning_content"),
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
