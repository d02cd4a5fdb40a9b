"""AWS Bedrock's Converse, spoken both ways; the conversation is written in `conversation.py`, and
what is answered is heard in `answer.py`.

Dialect notes: the model stands in the address, percent-encoded; a stream has an address of its own;
requests are signed, or carry a bearer key. What families of models want beside is in
`models.py`.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote

from antiphon.adapters.anthropic import sampling
from antiphon.adapters.anthropic.tools import demand
from antiphon.adapters.base import Adapter, Decoder, Prompt, Provider, names_in
from antiphon.adapters.bedrock.answer import REASONS as REASONS
from antiphon.adapters.bedrock.answer import BedrockDecoder
from antiphon.adapters.bedrock.conversation import Script, text_format, tool_config
from antiphon.adapters.bedrock.models import MAKERS, Thinking, claude, takes_strict, thinking
from antiphon.adapters.faults import Fault, fault_in
from antiphon.adapters.fields import Fields, fields_of, filled
from antiphon.adapters.options import tier
from antiphon.wire.upstream import Aws, Credential, Upstream

DEFAULT_REGION = "us-east-1"
HOST = re.compile(r"//bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
TIERS = {"priority": "priority", "flex": "flex"}
UNKNOWN_CALLERS = frozenset(
    """UnrecognizedClientException InvalidSignatureException IncompleteSignatureException
    ExpiredTokenException MissingAuthenticationTokenException InvalidClientTokenId""".split()
)


class Bedrock(Adapter):
    """Bedrock in one region."""

    name = "bedrock"
    raw_tools = "bedrock:"
    key_env = ("AWS_BEARER_TOKEN_BEDROCK",)
    carries = frozenset(
        """temperature top_p stop max_output_tokens prompt_cache_key service_tier reasoning tools
        strict_tools tool_choice json_schema tools_with_format images files""".split()
    )

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        found = HOST.search(self.base_url)
        self.region = provider.region or (found[1] if found else DEFAULT_REGION)
        suffix = ".cn" if self.region.startswith("cn-") else ""
        default = f"https://bedrock-runtime.{self.region}.amazonaws.com{suffix}"
        self.base_url = self.base_url or default

    def lacks(self, model: str) -> frozenset[str]:
        """Strict tools and schemas for answers are refused by models that do not know them."""
        found = claude(model)
        has = {"strict_tools": takes_strict(model), "json_schema": not found or found.structured}
        return frozenset(name for name, known in has.items() if not known)

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Bedrock's request."""
        script = Script(prompt)
        cached = self._caches(prompt)
        found = claude(prompt.model)
        words = demand(prompt, found) if found else None
        if words:
            script.system.append({"text": words})
        if cached:
            script.cache()
        thought = thinking(prompt)
        body: Fields = {
            "messages": script.messages,
            "system": script.system,
            "inferenceConfig": inference(prompt, thought),
            "toolConfig": tool_config(prompt, cached=cached, must=words is None),
            "outputConfig": filled({"textFormat": text_format(prompt), "effort": thought.effort}),
            "additionalModelRequestFields": thought.fields,
            "serviceTier": filled({"type": tier(prompt, TIERS)}),
        }
        path = "converse-stream" if prompt.stream else "converse"
        model = quote(prompt.model, safe="")
        return Upstream(url=f"{self.base_url}/model/{model}/{path}", body=filled(body))

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
        fields = fields_of(value)
        name = headers.get("x-amzn-errortype") or fields.get("__type") or said.code or said.type
        code = str(name or "").partition(":")[0].rpartition("#")[2] or None
        words = said.message or str(fields.get("originalMessage") or "")
        return Fault(words, "authentication_error" if code in UNKNOWN_CALLERS else None, code)

    def _caches(self, prompt: Prompt) -> bool:
        if prompt.request.prompt_cache_key is None:
            return False
        if claude(prompt.model) is None:
            message = "Bedrock decides itself what it remembers for this model; no key was sent."
            prompt.warn("unsupported_parameter", message, "prompt_cache_key")
            return False
        return True


def inference(prompt: Prompt, thought: Thinking) -> Fields:
    """Write how the model samples, and when it stops."""
    found = claude(prompt.model)
    if found:
        sampled = sampling(prompt, found, thinks=not thought.sampled)
    else:
        sampled = _sampling(prompt, thought)
    said: Fields = {
        "maxTokens": thought.room or prompt.request.max_output_tokens,
        "temperature": sampled.get("temperature"),
        "topP": sampled.get("top_p"),
        "stopSequences": prompt.request.stop,
    }
    return filled(said)


def _sampling(prompt: Prompt, thought: Thinking) -> dict[str, float]:
    """Return the temperature and `top_p` of a model that is no Claude."""
    request = prompt.request
    asked = {"temperature": request.temperature, "top_p": request.top_p}
    sampled = {name: value for name, value in asked.items() if value is not None}
    if not thought.sampled:
        for name in sampled:
            message = f"'{name}' was not sent: this model does not take it when it thinks."
            prompt.warn("unsupported_parameter", message, name)
        return {}
    if sampled.get("temperature", 0) > 1:
        sampled["temperature"] = 1.0
        message = "Bedrock knows no temperature above 1; 1 applies."
        prompt.warn("approximated_parameter", message, "temperature")
    return sampled
