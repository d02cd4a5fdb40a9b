"""OpenAI's Chat Completions, and every server that speaks them at an address of its own.

Dialect notes: at OpenAI's own address instructions have the role `developer` and the limit is
`max_completion_tokens`; elsewhere the older words `system` and `max_tokens` are the ones that all
know, and what only OpenAI has is not sent. Models of OpenAI that do not think refuse an effort.
Mistral refuses every field that it does not know, `stream_options` among them, and ids of calls
that are not nine letters and digits. DeepSeek refuses calls without the thinking that led to them.
"""

from antiphon.adapters.address import host, is_openai
from antiphon.adapters.base import Provider
from antiphon.adapters.chat import NATIVE, Chat
from antiphon.adapters.chat.answer import REASONS
from antiphon.adapters.chat.conversation import Habits
from antiphon.core.tools import CUSTOM

__all__ = ["REASONS", "OpenAI"]

OPENAI = Habits(system="developer", limit="max_completion_tokens", native=True)
MISTRAL = Habits(seed="random_seed", counts=False, short_ids=True)
DEEPSEEK = Habits(thinking="reasoning_content")
COMPATIBLE = (
    NATIVE
    - {"allowed_tools", "file_ids", "prompt_cache_key", "safety_identifier", "service_tier"}
    - {"verbosity"}
) | {"videos"}
"""What servers other than OpenAI's carry, as far as one can know."""

THOUGHTLESS = ("gpt-3.5", "gpt-4", "chatgpt-4o")
"""How the names of OpenAI's models begin that have no effort to set."""


class OpenAI(Chat):
    """OpenAI, or a server that is compatible with it: vLLM, llama.cpp, Groq, DeepSeek and more."""

    name = "openai"
    default_url = "https://api.openai.com/v1"
    key_env = ("OPENAI_API_KEY",)

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.own = is_openai(self.base_url)
        self.habits, self.carries = Habits(), COMPATIBLE
        if self.own:
            self.habits, self.carries, self.hosted = OPENAI, NATIVE, frozenset({CUSTOM})
            self.learns = frozenset({"reasoning"})
        elif host(self.base_url) == "api.mistral.ai":
            self.habits, self.carries = MISTRAL, COMPATIBLE - {"logprobs", "user"}
        elif host(self.base_url) == "api.deepseek.com":
            self.habits = DEEPSEEK

    def lacks(self, model: str) -> frozenset[str]:
        """Some models of OpenAI's own are known not to think."""
        thinks = not (self.own and model.removeprefix("ft:").startswith(THOUGHTLESS))
        return frozenset() if thinks else frozenset({"reasoning"})

    def responses_url(self) -> str | None:
        """Return the base of Responses, which is that of chat."""
        return self.base_url
