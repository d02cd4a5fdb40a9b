"""AWS Bedrock's Converse, spoken both ways; the conversation is written in `conversation.py`, and
what is answered is heard in `answer.py`.

Dialect notes: the model stands in the address, percent-encoded; a stream has an address of its own;
requests are signed, or carry a bearer key. What families of models want beside is in
`models.py`.
"""

import re
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from antiphon.adapters.anthropic.encode import forced_call_instruction
from antiphon.adapters.anthropic.models import encode_sampling
from antiphon.adapters.base import (
    Adapter,
    Decoder,
    Prompt,
    Provider,
    collect_names,
)
from antiphon.adapters.bedrock.decode import REASONS as REASONS
from antiphon.adapters.bedrock.decode import BedrockDecoder
from antiphon.adapters.bedrock.encode import (
    ConversationEncoder,
    encode_text_format,
    encode_tool_config,
)
from antiphon.adapters.bedrock.models import (
    VENDORS,
    ThinkingOptions,
    encode_thinking,
    find_claude,
    supports_strict_tools,
)
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.adapters.features import service_tier_name
from antiphon.adapters.json_access import JsonObject, as_object, drop_empty
from antiphon.adapters.provider_config import ConfigSource
from antiphon.transport.request import AwsSignature, Credential, Upstream

DEFAULT_REGION = "us-east-1"
PROFILE_VARIABLE = "AWS_PROFILE"
AWS_CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    PROFILE_VARIABLE,
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
)
"""The variables that show that there are AWS credentials to sign requests with."""

REGION_IN_URL = re.compile(r"//bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
SERVICE_TIERS = {"priority": "priority", "flex": "flex"}
AUTHENTICATION_ERRORS = frozenset(
    """UnrecognizedClientException InvalidSignatureException IncompleteSignatureException
    ExpiredTokenException MissingAuthenticationTokenException InvalidClientTokenId""".split()
)


class Bedrock(Adapter):
    """Bedrock in one region."""

    name = "bedrock"
    raw_tool_slug = "bedrock:"
    key_env = ("AWS_BEARER_TOKEN_BEDROCK",)
    field_variables: ClassVar = {"region": ("AWS_REGION", "AWS_DEFAULT_REGION")}
    machine_fields = frozenset({"region"})
    table_keys: ClassVar = {"region": '"eu-central-1"', "profile": '"work"'}
    required_field = "region"
    features = frozenset(
        """temperature top_p stop max_output_tokens prompt_cache_key service_tier reasoning tools
        strict_tools tool_choice json_schema tools_with_format images files""".split()
    )

    @classmethod
    def environment_fields(cls, source: ConfigSource) -> dict[str, str]:
        """Return the region, from a variable or from the AWS profile."""
        found = super().environment_fields(source)
        if {"base_url", "region"} & {*found, *source.table}:
            return found
        # Without any sign of credentials the profile is not read: it needs botocore, which is
        # slow to import.
        if source.in_file or cls.has_aws_credentials(source):
            profile = str(source.table.get("profile") or source.variable(PROFILE_VARIABLE)) or None
            if region := source.profile_region(profile, source.environ):
                found["region"] = region
        return found

    @classmethod
    def has_aws_credentials(cls, source: ConfigSource) -> bool:
        """Return whether the environment mentions AWS credentials, which make a key needless."""
        return any(map(source.variable, AWS_CREDENTIAL_VARIABLES))

    @classmethod
    def api_key_variable(cls, fields: Mapping[str, object], source: ConfigSource) -> str | None:
        """Return the variable of the bearer key; None if requests are signed instead."""
        if found := cls.find_api_key(source):
            return found
        if source.in_file or cls.has_aws_credentials(source):
            return None
        return super().api_key_variable(fields, source)

    @classmethod
    def missing_field(
        cls, fields: Mapping[str, object], source: ConfigSource
    ) -> tuple[str, str] | None:
        """Return the region as missing only if AWS credentials are the sole sign of Bedrock.

        AWS credentials alone may be meant for something else. A table in the file or a key for
        Bedrock shows that Bedrock is wanted; then the default region will do.
        """
        if source.in_file or fields.get("api_key_env"):
            return None
        return super().missing_field(fields, source)

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        found = REGION_IN_URL.search(self.base_url)
        self.region = provider.region or (found[1] if found else DEFAULT_REGION)
        suffix = ".cn" if self.region.startswith("cn-") else ""
        default = f"https://bedrock-runtime.{self.region}.amazonaws.com{suffix}"
        self.base_url = self.base_url or default

    def missing_features(self, model: str) -> frozenset[str]:
        """Strict tools and schemas for answers are refused by models that do not know them."""
        found = find_claude(model)
        has = {
            "strict_tools": supports_strict_tools(model),
            "json_schema": not found or found.supports_schemas,
        }
        return frozenset(name for name, known in has.items() if not known)

    def encode(self, prompt: Prompt) -> Upstream:
        """Write a prompt as Bedrock's request."""
        script = ConversationEncoder(prompt)
        cached = self._uses_prompt_cache(prompt)
        found = find_claude(prompt.model)
        words = forced_call_instruction(prompt, found) if found else None
        if words:
            script.system.append({"text": words})
        if cached:
            script.add_cache_points()
        thought = encode_thinking(prompt)
        body: JsonObject = {
            "messages": script.messages,
            "system": script.system,
            "inferenceConfig": encode_inference_config(prompt, thought),
            "toolConfig": encode_tool_config(prompt, cached=cached, enforce_choice=words is None),
            "outputConfig": drop_empty(
                {"textFormat": encode_text_format(prompt), "effort": thought.effort}
            ),
            "additionalModelRequestFields": thought.fields,
            "serviceTier": drop_empty({"type": service_tier_name(prompt, SERVICE_TIERS)}),
        }
        path = "converse-stream" if prompt.stream else "converse"
        model = quote(prompt.model, safe="")
        return Upstream(url=f"{self.base_url}/model/{model}/{path}", body=drop_empty(body))

    def vendor(self, model: str) -> str:
        """Return a model's maker: `us.anthropic.claude-…` is Anthropic's."""
        return next((maker for maker in VENDORS if f"{maker}." in model), model)

    def decoder(self, prompt: Prompt) -> Decoder:
        """Return what hears the answer."""
        return BedrockDecoder(self, prompt)

    def credential(self) -> Credential | None:
        """Sign as AWS wants it."""
        return AwsSignature("bedrock", self.region, self.provider.profile)

    def models_request(self) -> Upstream | None:
        """Describe the request that lists the models; their list has an address of its own."""
        url = self.base_url.replace("//bedrock-runtime", "//bedrock", 1)
        if url == self.base_url:
            return None
        return Upstream(method="GET", url=f"{url}/foundation-models?byOutputModality=TEXT")

    def decode_models(self, body: object) -> list[str]:
        """Read the names out of that list."""
        return collect_names(body, "modelSummaries", "modelId")

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Find the error in a body, and its name in a header or beside it."""
        del status
        said = parse_error(body)
        fields = as_object(body)
        name = headers.get("x-amzn-errortype") or fields.get("__type") or said.code or said.type
        code = str(name or "").partition(":")[0].rpartition("#")[2] or None
        words = said.message or str(fields.get("originalMessage") or "")
        return ErrorInfo(
            words, "authentication_error" if code in AUTHENTICATION_ERRORS else None, code
        )

    def _uses_prompt_cache(self, prompt: Prompt) -> bool:
        if prompt.request.prompt_cache_key is None:
            return False
        if find_claude(prompt.model) is None:
            message = "Bedrock decides itself what it remembers for this model; no key was sent."
            prompt.warn("unsupported_parameter", message, "prompt_cache_key")
            return False
        return True


def encode_inference_config(prompt: Prompt, thought: ThinkingOptions) -> JsonObject:
    """Write how the model samples, and when it stops."""
    found = find_claude(prompt.model)
    if found:
        sampled = encode_sampling(prompt, found, thinks=not thought.allows_sampling)
    else:
        sampled = _encode_sampling(prompt, thought)
    said: JsonObject = {
        "maxTokens": thought.max_tokens or prompt.request.max_output_tokens,
        "temperature": sampled.get("temperature"),
        "topP": sampled.get("top_p"),
        "stopSequences": prompt.request.stop,
    }
    return drop_empty(said)


def _encode_sampling(prompt: Prompt, thought: ThinkingOptions) -> dict[str, float]:
    """Return the temperature and `top_p` of a model that is no Claude."""
    request = prompt.request
    asked = {"temperature": request.temperature, "top_p": request.top_p}
    sampled = {name: value for name, value in asked.items() if value is not None}
    if not thought.allows_sampling:
        for name in sampled:
            message = f"'{name}' was not sent: this model does not take it when it thinks."
            prompt.warn("unsupported_parameter", message, name)
        return {}
    if sampled.get("temperature", 0) > 1:
        sampled["temperature"] = 1.0
        message = "Bedrock knows no temperature above 1; 1 applies."
        prompt.warn("approximated_parameter", message, "temperature")
    return sampled
