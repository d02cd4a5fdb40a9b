"""OpenAI's models on Azure: the same dialect, another address and another key.

Dialect notes: with an `api_version` the deployment, which is what a model is called here, stands in
the path; without one the newer `v1` address is used. The key goes in `api-key`; a provider whose
`profile` is `entra` shows a token of Microsoft Entra ID in its place. A stream's first chunk may
hold nothing but what the content filter thinks of the prompt, without choices, id or model; a
prompt that is blocked is a 400 with the code `content_filter`, an answer that is blocked finishes
with that word.
"""

from urllib.parse import quote

from antiphon.adapters.base import Prompt, Provider
from antiphon.adapters.chat import Chat
from antiphon.adapters.chat.answer import REASONS
from antiphon.adapters.chat.conversation import Habits
from antiphon.core.tools import CUSTOM
from antiphon.wire.upstream import Credential, Entra, Key, Upstream

__all__ = ["REASONS", "Azure"]

V1 = "/openai/v1"


class Azure(Chat):
    """A resource of Azure's, and the deployments in it."""

    name = "azure"
    key_env = ("AZURE_OPENAI_API_KEY",)
    hosted = frozenset({CUSTOM})
    habits = Habits(limit="max_completion_tokens", native=True)

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        endpoint = (provider.endpoint or self.base_url).rstrip("/")
        self.endpoint = endpoint.removesuffix(V1).removesuffix("/openai")

    def url(self, prompt: Prompt) -> str:
        """Return the address of a deployment, or the one of all."""
        if self.provider.api_version is None:
            return f"{self._v1}{self.path}"
        deployment = quote(prompt.model, safe="")
        return self._versioned(f"/deployments/{deployment}{self.path}")

    def credential(self) -> Credential:
        """Show a key, or a token if the provider's profile is `entra`."""
        return Entra() if self.provider.profile == "entra" else Key("api-key", "")

    def listing(self) -> Upstream:
        """Describe the request that lists the models."""
        versioned = self.provider.api_version is not None
        url = self._versioned("/models") if versioned else f"{self._v1}/models"
        return Upstream(method="GET", url=url)

    def responses_url(self) -> str | None:
        """Return the base of Responses: the `v1` address, which every resource has."""
        return self._v1

    @property
    def _v1(self) -> str:
        return f"{self.endpoint}{V1}"

    def _versioned(self, path: str) -> str:
        return f"{self.endpoint}/openai{path}?api-version={self.provider.api_version}"
