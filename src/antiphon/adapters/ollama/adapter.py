"""The adapter for Ollama's own chat API: its addresses, errors and fallbacks."""

from collections.abc import Mapping
from typing import ClassVar

from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider, collect_names
from antiphon.adapters.errors import ErrorInfo
from antiphon.adapters.ollama.decode import REASONS as REASONS
from antiphon.adapters.ollama.decode import OllamaDecoder, parse_ollama_error
from antiphon.adapters.ollama.encode import encode_body
from antiphon.protocol.errors import UpstreamError
from antiphon.transport.request import Upstream

DEFAULT_PORT = "11434"
THINKING_UNSUPPORTED = "does not support thinking"
"""Part of the server's error for a model without reasoning."""


class Ollama(Adapter):
    """An Ollama server, or Ollama's cloud."""

    name = "ollama"
    default_url = f"http://127.0.0.1:{DEFAULT_PORT}"
    key_env = ("OLLAMA_API_KEY",)
    field_variables: ClassVar = {"base_url": ("OLLAMA_HOST",)}
    features = frozenset(
        """temperature top_p presence_penalty frequency_penalty seed stop max_output_tokens logprobs
        reasoning tools json_object json_schema images""".split()
    )

    def __init__(self, provider: Provider, *, reasoning: bool = True) -> None:
        super().__init__(provider)
        # Ollama's documentation shows the address with the path of its own API, or of OpenAI's.
        self.base_url = self.base_url.removesuffix("/api").removesuffix("/v1")
        if not reasoning:
            self.features -= {"reasoning"}

    @classmethod
    def parse_variable(cls, field: str, value: str) -> str:
        """Return the address that OLLAMA_HOST means, by the rules of Ollama's own client.

        >>> [Ollama.parse_variable("base_url", host) for host in ("0.0.0.0", "gpu:80", "https://a/")]
        ['http://127.0.0.1:11434', 'http://gpu:80', 'https://a']
        """
        scheme, separator, rest = value.strip().rpartition("://")
        authority, slash, path = rest.partition("/")
        if authority.count(":") > 1 and not authority.startswith("["):
            authority = f"[{authority}]"
        host, colon, port = authority.rpartition(":")
        if not colon or "]" in port:
            host, port = authority, ""
        # The variable also tells a server which addresses to listen on. "All addresses" cannot be
        # connected to everywhere, so the client uses the loopback address.
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104
        if not separator and not port:
            port = DEFAULT_PORT
        return f"{scheme or 'http'}://{host}{':' if port else ''}{port}{slash}{path}".rstrip("/")

    def encode(self, prompt: Prompt) -> Upstream:
        """Encode a prompt as a chat request."""
        return Upstream(url=f"{self.base_url}/api/chat", body=encode_body(prompt))

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return a decoder for the answer."""
        del prompt
        return OllamaDecoder(self)

    def fallback_adapter(self, error: UpstreamError) -> Adapter | None:
        """Return this adapter without reasoning, for a model that rejects `think`."""
        rejects_thinking = error.status == 400 and THINKING_UNSUPPORTED in error.payload.message
        if rejects_thinking and "reasoning" in self.features:
            return Ollama(self.provider, reasoning=False)
        return None

    def models_request(self) -> Upstream | None:
        """Return the request that lists the models on the server."""
        return Upstream(method="GET", url=f"{self.base_url}/api/tags")

    def decode_models(self, body: object) -> list[str]:
        """Return the names in the list of models."""
        return collect_names(body, "models", "name")

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Return the error in a parsed body."""
        del status, headers
        return parse_ollama_error(body)
