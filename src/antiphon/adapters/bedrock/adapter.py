"""The adapter for the Converse API of AWS Bedrock.

Dialect notes: the URL contains the model, percent-encoded, and differs for streams; requests are
signed by SigV4 or have a bearer key.
"""

import re
from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from antiphon.adapters.anthropic.models import CLAUDE_NAME
from antiphon.adapters.base import Adapter, ConfigSource, Decoder, Prompt, Provider
from antiphon.adapters.bedrock.decode import BedrockDecoder
from antiphon.adapters.bedrock.encode import SLUG, encode_body, find_claude
from antiphon.adapters.errors import ErrorInfo, parse_error
from antiphon.protocol.struct import as_object
from antiphon.transport.request import AwsSignature, Credential, Upstream

DEFAULT_REGION = "us-east-1"
PROFILE_VARIABLE = "AWS_PROFILE"
AWS_CREDENTIAL_VARIABLES = """AWS_ACCESS_KEY_ID AWS_PROFILE AWS_WEB_IDENTITY_TOKEN_FILE
    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_SHARED_CREDENTIALS_FILE
    AWS_CONFIG_FILE""".split()
"""The variables that show that there are AWS credentials to sign requests with."""

REGION_IN_URL = re.compile(r"//bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
VENDORS = "ai21 amazon anthropic cohere deepseek meta mistral moonshot openai".split()
# Only these versions of Claude accept `strict` through Converse; older and newer ones reject it.
STRICT_CLAUDE_VERSIONS = frozenset({("4", "5"), ("4", "6")})
AUTHENTICATION_ERRORS = frozenset(
    """UnrecognizedClientException InvalidSignatureException IncompleteSignatureException
    ExpiredTokenException MissingAuthenticationTokenException InvalidClientTokenId""".split()
)


class Bedrock(Adapter):
    """Bedrock in one region."""

    name = "bedrock"
    raw_tool_slug = SLUG
    key_env = ("AWS_BEARER_TOKEN_BEDROCK",)
    field_variables: ClassVar = {"region": ("AWS_REGION", "AWS_DEFAULT_REGION")}
    models_list = ("modelSummaries", "modelId")
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
        # Without any sign of credentials the profile is not read: it needs botocore, which is slow to import.
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
    def missing_field(cls, fields: Mapping[str, object], source: ConfigSource) -> tuple[str, str] | None:
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
        # The region is part of the signature, so it is needed even with a custom address.
        self.region = provider.region or (found[1] if found else DEFAULT_REGION)
        suffix = ".cn" if self.region.startswith("cn-") else ""
        self.base_url = self.base_url or f"https://bedrock-runtime.{self.region}.amazonaws.com{suffix}"

    def missing_features(self, model: str) -> frozenset[str]:
        """Return the features whose fields a model rejects."""
        if (claude := find_claude(model)) is None:
            return frozenset()
        found = CLAUDE_NAME.search(model)
        is_strict = found is not None and (found["major"], found["minor"]) in STRICT_CLAUDE_VERSIONS
        supported = {"strict_tools": is_strict, "json_schema": claude.supports_schemas}
        return frozenset(name for name in supported if not supported[name])

    def encode(self, prompt: Prompt) -> Upstream:
        path = "converse-stream" if prompt.stream else "converse"
        url = f"{self.base_url}/model/{quote(prompt.model, safe='')}/{path}"
        return Upstream(url=url, body=encode_body(prompt))

    def vendor(self, model: str) -> str:
        """Return a model's vendor: Anthropic for `us.anthropic.claude-…`."""
        return next((vendor for vendor in VENDORS if f"{vendor}." in model), model)

    def decoder(self, prompt: Prompt) -> Decoder:
        return BedrockDecoder(self, prompt)

    def credential(self) -> Credential | None:
        return AwsSignature("bedrock", self.region, self.provider.profile)

    def models_request(self) -> Upstream | None:
        """Return the request that lists the models; a custom address has none."""
        # The list has a host of its own: bedrock.*, not bedrock-runtime.*.
        url = self.base_url.replace("//bedrock-runtime", "//bedrock", 1)
        if url == self.base_url:
            return None
        return Upstream(method="GET", url=f"{url}/foundation-models?byOutputModality=TEXT")

    def parse_error(self, status: int, headers: Mapping[str, str], body: object) -> ErrorInfo:
        """Return the error in a body; its code is the exception's name."""
        error, fields = parse_error(body), as_object(body)
        name = headers.get("x-amzn-errortype") or fields.get("__type") or error.code or error.type
        # AWS writes "com.amazonaws.x#NameException:http://…", or any part of it.
        code = str(name or "").partition(":")[0].rpartition("#")[2] or None
        message = error.message or str(fields.get("originalMessage") or "")
        type = "authentication_error" if code in AUTHENTICATION_ERRORS else None
        return ErrorInfo(message, type, code)
