"""OpenAI's models on Azure: the dialect of `openai_chat` at another address, with another key.

Dialect notes: with an `api_version`, the path names the deployment, which is the model's name here;
without one, the newer `v1` address is used. The key goes into the header `api-key`; a provider with
`profile = "entra"` sends a token of Microsoft Entra ID instead. The first chunk of a stream may
hold only the content filter's result for the prompt, without choices, id or model. A blocked prompt
is a 400 with the code `content_filter`; a blocked answer finishes with that reason.
"""

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from antiphon.adapters.base import Prompt, Provider
from antiphon.adapters.openai_chat.adapter import ChatCompletions
from antiphon.adapters.openai_chat.servers import OPENAI_FEATURES, ChatServer
from antiphon.protocol.struct import InvalidValueError
from antiphon.protocol.tools import CUSTOM_TOOL
from antiphon.transport.request import Credential, EntraToken, Key, Upstream

V1_PATH = "/openai/v1"


class Azure(ChatCompletions):
    """One Azure resource and its deployments."""

    name = "azure"
    key_env = ("AZURE_OPENAI_API_KEY",)
    field_variables: ClassVar = {"endpoint": ("AZURE_OPENAI_ENDPOINT",), "api_version": ("OPENAI_API_VERSION",)}
    table_keys: ClassVar = {
        "endpoint": '"https://NAME.openai.azure.com"',
        "api_version": '"2025-04-01-preview"',
        "profile": '"entra"',
    }
    required_field = "endpoint"
    features = OPENAI_FEATURES
    hosted_tools = frozenset({CUSTOM_TOOL})
    server = ChatServer(max_tokens_field="max_completion_tokens", has_openai_extensions=True)

    @classmethod
    def check_table(cls, table: Mapping[str, object]) -> None:
        """Reject profiles other than Entra's, and two addresses at once."""
        if table.get("profile", "entra") != "entra":
            raise InvalidValueError("profile", f'for {cls.name} there is only profile = "entra".')
        if {"base_url", "endpoint"} <= table.keys():
            raise InvalidValueError("endpoint", "base_url says already where to ask. Give only one of them.")

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        endpoint = (provider.endpoint or self.base_url).rstrip("/")
        # Azure's portal and its SDKs show the address with and without these paths.
        self.endpoint = endpoint.removesuffix(V1_PATH).removesuffix("/openai")

    def url(self, prompt: Prompt) -> str:
        """Return the address of the prompt's deployment, or the common `v1` address."""
        return self._url(self.path, f"/deployments/{quote(prompt.model, safe='')}{self.path}")

    def credential(self) -> Credential:
        """Return an API key, or a token of Entra ID if the provider's profile is `entra`."""
        return EntraToken() if self.provider.profile == "entra" else Key("api-key", "")

    def models_request(self) -> Upstream:
        return Upstream(method="GET", url=self._url("/models", "/models"))

    def responses_url(self) -> str:
        """Return the `v1` address, which every resource has, whatever its `api_version`."""
        return f"{self.endpoint}{V1_PATH}"

    def _url(self, path: str, versioned_path: str) -> str:
        if (version := self.provider.api_version) is None:
            return f"{self.endpoint}{V1_PATH}{path}"
        return f"{self.endpoint}/openai{versioned_path}?api-version={version}"
