"""A request to a provider, described but not sent; and how the provider wants to be shown a key."""

from collections.abc import Mapping

from msgspec import Struct, field


class Upstream(Struct, frozen=True, kw_only=True):
    """One HTTP request to a provider, without credentials. `body` is a JSON value."""

    url: str
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    method: str = "POST"


class Key(Struct, frozen=True):
    """A key, in a header: `{header}: {prefix}{key}`."""

    header: str = "authorization"
    prefix: str = "Bearer "


class AwsSignature(Struct, frozen=True):
    """A signature (SigV4) over the whole request, by whatever AWS credentials there are."""

    service: str
    region: str
    profile: str | None = None


class GoogleToken(Struct, frozen=True):
    """A token of Google's application default credentials."""

    scope: str = "https://www.googleapis.com/auth/cloud-platform"


class EntraToken(Struct, frozen=True):
    """A token of Microsoft Entra ID."""

    scope: str = "https://cognitiveservices.azure.com/.default"


Credential = Key | AwsSignature | GoogleToken | EntraToken
