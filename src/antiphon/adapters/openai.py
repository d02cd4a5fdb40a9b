"""OpenAI's Chat Completions API, and every server that is compatible with it.

The dialect is in `openai_chat`; what is known of single servers is in `openai_chat/servers.py`.
OpenAI's models without reasoning reject an effort, so it is not sent to them.
"""

from typing import ClassVar

from antiphon.adapters.base import Provider
from antiphon.adapters.openai_chat.adapter import ChatCompletions
from antiphon.adapters.openai_chat.servers import OPENAI, find_server

MODELS_WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4o")
"""Prefixes of the names of OpenAI's models that take no `reasoning_effort`."""


class OpenAI(ChatCompletions):
    """OpenAI, or a compatible server such as vLLM, llama.cpp, Groq, DeepSeek or Mistral."""

    name = "openai"
    default_url = "https://api.openai.com/v1"
    key_env = ("OPENAI_API_KEY",)
    field_variables: ClassVar = {"base_url": ("OPENAI_BASE_URL",)}

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.server = find_server(self.base_url)
        self.features = self.server.features
        self.hosted_tools = self.server.hosted_tools

    def missing_features(self, model: str) -> frozenset[str]:
        """Return `reasoning` for OpenAI's models that are known not to have it."""
        base_model = model.removeprefix("ft:")  # a fine-tuned model has the features of its base
        if self.server is OPENAI and base_model.startswith(MODELS_WITHOUT_REASONING):
            return frozenset({"reasoning"})
        return frozenset()

    def responses_url(self) -> str | None:
        """Return the base address: servers have `/responses` beside `/chat/completions`."""
        return self.base_url
