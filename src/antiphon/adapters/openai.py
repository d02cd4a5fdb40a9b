"""OpenAI's Chat Completions, and every server that speaks them at an address of its own.

Dialect notes: at OpenAI's own address instructions have the role `developer` and the limit is
`max_completion_tokens`; elsewhere the older words `system` and `max_tokens` are the ones that all
know, and what only OpenAI has is not sent. Models of OpenAI that do not think refuse an effort.
Mistral refuses every field that it does not know, `stream_options` among them, and ids of calls
that are not nine letters and digits. DeepSeek refuses calls without the thinking that led to them.
"""

from typing import ClassVar

from antiphon.adapters.base import Provider, is_openai, url_host
from antiphon.adapters.openai_chat.adapter import OPENAI_FEATURES, ChatCompletions
from antiphon.adapters.openai_chat.decode import REASONS
from antiphon.adapters.openai_chat.encode import ChatQuirks
from antiphon.protocol.tools import CUSTOM_TOOL

__all__ = ["REASONS", "OpenAI"]

OPENAI_QUIRKS = ChatQuirks(
    system_role="developer", max_tokens_field="max_completion_tokens", has_openai_extensions=True
)
MISTRAL_QUIRKS = ChatQuirks(
    seed_field="random_seed", requests_stream_usage=False, has_short_call_ids=True
)
DEEPSEEK_QUIRKS = ChatQuirks(reasoning_field="reasoning_content")
COMPATIBLE_FEATURES = (
    OPENAI_FEATURES
    - {"allowed_tools", "file_ids", "prompt_cache_key", "safety_identifier", "service_tier"}
    - {"verbosity"}
) | {"videos"}
"""What servers other than OpenAI's carry, as far as one can know."""

MODELS_WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4o")
"""How the names of OpenAI's models begin that have no effort to set."""


class OpenAI(ChatCompletions):
    """OpenAI, or a server that is compatible with it: vLLM, llama.cpp, Groq, DeepSeek and more."""

    name = "openai"
    default_url = "https://api.openai.com/v1"
    key_env = ("OPENAI_API_KEY",)
    field_variables: ClassVar = {"base_url": ("OPENAI_BASE_URL",)}

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.is_openai = is_openai(self.base_url)
        self.quirks, self.features = ChatQuirks(), COMPATIBLE_FEATURES
        if self.is_openai:
            self.quirks, self.features, self.hosted_tools = (
                OPENAI_QUIRKS,
                OPENAI_FEATURES,
                frozenset({CUSTOM_TOOL}),
            )
            self.learnable_features = frozenset({"reasoning"})
        elif url_host(self.base_url) == "api.mistral.ai":
            self.quirks, self.features = MISTRAL_QUIRKS, COMPATIBLE_FEATURES - {"logprobs", "user"}
        elif url_host(self.base_url) == "api.deepseek.com":
            self.quirks = DEEPSEEK_QUIRKS

    def missing_features(self, model: str) -> frozenset[str]:
        """Some models of OpenAI's own are known not to think."""
        thinks = not (
            self.is_openai and model.removeprefix("ft:").startswith(MODELS_WITHOUT_REASONING)
        )
        return frozenset() if thinks else frozenset({"reasoning"})

    def responses_url(self) -> str | None:
        """Return the base of Responses, which is that of chat."""
        return self.base_url
