"""A provider request as an adapter describes it, without credentials, and how to add them.

This module imports nothing that does I/O, because adapters import it.
"""

from collections.abc import Mapping

from msgspec import Struct, field


class Upstream(Struct, frozen=True, kw_only=True):
    """An HTTP request to a provider, without credentials. `body` is a JSON value."""

    url: str
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    method: str = "POST"


class Key(Struct, frozen=True):
    """An API key in a header: `{header}: {prefix}{key}`."""

    header: str = "authorization"
    prefix: str = "Bearer "


class AwsSignature(Struct, frozen=True):
    """A SigV4 signature with the credentials of AWS's default chain."""

    service: str
    region: str
    profile: str | None = None


class GoogleToken(Struct, frozen=True):
    """A bearer token of Google's application default credentials."""

    scope: str = "https://www.googleapis.com/auth/cloud-platform"


class EntraToken(Struct, frozen=True):
    """A bearer token of Microsoft Entra ID."""

    scope: str = "https://cognitiveservices.azure.com/.default"


Credential = Key | AwsSignature | GoogleToken | EntraToken
