"""AWS Bedrock's Converse, spoken both ways; the conversation is written in `_bedrock_out.py`, and
what is answered is heard in `_bedrock_in.py`.

Dialect notes: the model stands in the address, percent-encoded; a stream has an address of its own;
requests are signed, or carry a bearer key. What families of models want beside is in
`_bedrock_models.py`.
"""

import re
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote

from antiphon.adapters._anthropic_tools import demand
from antiphon.adapters._bedrock_in import REASONS as REASONS
from antiphon.adapters._bedrock_in import BedrockDecoder
from antiphon.adapters._bedrock_models import MAKERS, Thinking, claude, thinking
from antiphon.adapters._bedrock_out import Block, Script, text_format, tool_config
from antiphon.adapters.base import Adapter, Decoder, Fault, Prompt, Provider, fault_in, names_in
from antiphon.core.tools import must_call
from antiphon.wire.upstream import Aws, Credential, Upstream

DEFAULT_REGION = "us-east-1"
HOST = re.compile(r"//bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
TIERS = frozenset({"priority", "flex"})
UNKNOWN_CALLERS = frozenset(
    """UnrecognizedClientException InvalidSignatureException IncompleteSignatureException
    ExpiredTokenException MissingAuthenticationTokenException InvalidClientTokenId""".split()
)
TOO_LONG = re.compile(r"(?i)(?:input|prompt) is too long|context (?:window|length)")


class Bedrock(Adapter):
    """Bedrock in one region."""

    name = "bedrock"
    raw_tools = "bedrock:"
    key_env = ("AWS_BEARER_TOKEN_BEDROCK",)
    carries = frozenset(
        """temperature top_p stop max_output_tokens prompt_cache_key service_tier reasoning tools
        tool_choice json_schema tools_with_format images files""".split()
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        found = HOST.search(self.base_url)
        self.region = provider.region or (found[1] if found else DEFAULT_REGION)
        suffix = ".cn" if self.region.startswith("cn-") else ""
        default = f"https://bedrock-runtime.{self.region}.amazonaws.com{suffix}"
        self.base_url = self.base_url or default

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Bedrock's request."""
        script = Script(prompt)
        cached = self._caches(prompt)
        config = tool_config(prompt, cached=cached)
        if words := self._demanded(prompt, config):
            script.system.append({"text": words})
        if cached:
            script.cache()
        thought = thinking(prompt)
        body: Block = {
            "messages": script.messages,
            "system": script.system,
            "inferenceConfig": inference(prompt, thought),
            "toolConfig": config,
            "outputConfig": _filled(textFormat=text_format(prompt), effort=thought.effort),
            "additionalModelRequestFields": thought.fields,
            "serviceTier": tier(prompt),
        }
        path = "converse-stream" if prompt.stream else "converse"
        model = quote(prompt.model, safe="")
        return Upstream(url=f"{self.base_url}/model/{model}/{path}", body=_filled(**body))

    def family(self, model: str) -> str:
        """Return a model's maker: `us.anthropic.claude-…` is Anthropic's."""
        return next((maker for maker in MAKERS if f"{maker}." in model), model)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        return BedrockDecoder(self, prompt)

    def credential(self) -> Credential | None:
        """Sign as AWS wants it."""
        return Aws("bedrock", self.region, self.provider.profile)

    def listing(self) -> Upstream | None:
        """Describe the request that lists the models; their list has an address of its own."""
        url = self.base_url.replace("//bedrock-runtime", "//bedrock", 1)
        if url == self.base_url:
            return None
        return Upstream(method="GET", url=f"{url}/foundation-models?byOutputModality=TEXT")

    def listed(self, body: object) -> list[str]:
        """Read the names out of that list."""
        return names_in(body, "modelSummaries", "modelId")

    def fault(self, status: int, headers: Mapping[str, str], value: object) -> Fault:
        """Find the error in a body, and its name in a header or beside it."""
        del status
        said = fault_in(value)
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        name = headers.get("x-amzn-errortype") or fields.get("__type") or said.code or said.type
        code = str(name or "").partition(":")[0].rpartition("#")[2] or None
        words = said.message or str(fields.get("originalMessage") or "")
        if code == "ValidationException" and TOO_LONG.search(words):
            code = "context_length_exceeded"
        return Fault(words, "authentication_error" if code in UNKNOWN_CALLERS else None, code)

    def _caches(self, prompt: Prompt) -> bool:
        if prompt.request.prompt_cache_key is None:
            return False
        if claude(prompt.model) is None:
            message = "Bedrock decides itself what it remembers for this model; no key was sent."
            prompt.warn("unsupported_parameter", message, "prompt_cache_key")
            return False
        return True

    def _demanded(self, prompt: Prompt, config: Block | None) -> str | None:
        """Return the words for a call that is demanded of a model that cannot be made to call."""
        found = claude(prompt.model)
        if found is None or found.obeys or not must_call(prompt.request.tool_choice):
            return None
        words = demand(prompt.request, found)
        if words is None or config is None:
            message = f"The model '{prompt.model}' cannot be made to call a tool. Use 'auto'."
            raise prompt.refuse(message, "tool_choice")
        del config["toolChoice"]
        return words


def inference(prompt: Prompt, thought: Thinking) -> Block:
    """Write how the model samples, and when it stops."""
    request = prompt.request
    sampled: dict[str, float | None] = {"temperature": request.temperature, "top_p": request.top_p}
    for name, value in sampled.items():
        if value is not None and not thought.sampled:
            sampled[name] = None
            message = f"'{name}' was not sent: this model does not take it, or not when it thinks."
            prompt.warn("unsupported_parameter", message, name)
    temperature = sampled["temperature"]
    if temperature is not None and temperature > 1:
        temperature = 1.0
        message = "Bedrock knows no temperature above 1; 1 applies."
        prompt.warn("approximated_parameter", message, "temperature")
    return _filled(
        maxTokens=request.max_output_tokens,
        temperature=temperature,
        topP=sampled["top_p"],
        stopSequences=request.stop,
    )


def tier(prompt: Prompt) -> Block | None:
    """Name the tier, if it is not the default."""
    wish = prompt.request.service_tier
    if wish in TIERS:
        return {"type": wish}
    if wish not in ("auto", "default"):
        message = f"Bedrock has no tier '{wish}'; it was not sent."
        prompt.warn("unsupported_parameter", message, "service_tier")
    return None


def _filled(**fields: object) -> Block:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}
