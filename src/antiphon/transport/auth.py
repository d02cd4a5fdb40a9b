"""Authentication: credentials as request headers.

The cloud providers' credential libraries are optional extras, imported when first needed. They read
files and wait for the network, so they run in a thread. No message here contains a secret: the
library's own message is only the cause of our error, for the log.
"""

import asyncio
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from threading import Lock
from typing import Any, Protocol

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.client import HttpRequest
from antiphon.transport.request import AwsSignature, Credential, EntraToken, GoogleToken, Key

# As in Google's library: its metadata server repeats a token that is valid for five more minutes.
REFRESH_MARGIN_SECONDS = 225
"""How long before its expiry a token is renewed."""


class Signer(Protocol):
    """Returns the headers to add to a request. It caches credentials: create one per provider and keep it."""

    async def headers(self, request: HttpRequest) -> dict[str, str]: ...


def make_signer(credential: Credential | None, key: str | None) -> Signer:
    """Return the signer for a credential; `key` is the value from the environment, if any."""
    match credential:
        case None:
            return KeySigner(Key(), None)
        case Key():
            return KeySigner(credential, key)
        case AwsSignature():
            return AwsSigner(credential) if key is None else KeySigner(Key(), key)
        case GoogleToken():
            return GoogleSigner(credential.scope)
        case EntraToken():
            return EntraSigner(credential.scope)


def credentials_error(message: str, *, retryable: bool = False) -> UpstreamError:
    """Return the error for credentials that are missing or invalid."""
    return UpstreamError(
        message, status=401, type="authentication_error", code="missing_credentials", retryable=retryable
    )


class KeySigner:
    """Sends an API key in a header, if there is one."""

    def __init__(self, credential: Key, key: str | None) -> None:
        self._credential = credential
        self._key = key.strip() if key else ""

    async def headers(self, request: HttpRequest) -> dict[str, str]:
        del request
        if not self._key:
            return {}
        if not (self._key.isascii() and self._key.isprintable()):
            raise credentials_error("The API key contains a character that no header may contain. Copy it again.")
        return {self._credential.header: f"{self._credential.prefix}{self._key}"}


class AwsSigner:
    """Signs requests (SigV4) with AWS's default credentials, which botocore caches and renews."""

    def __init__(self, credential: AwsSignature) -> None:
        self._credential = credential
        self._lock = Lock()
        self._credentials: Any = None

    async def headers(self, request: HttpRequest) -> dict[str, str]:
        return await asyncio.to_thread(self._sign, request)

    def _sign(self, request: HttpRequest) -> dict[str, str]:
        auth = import_extra("botocore.auth")
        # Only headers that no proxy on the way changes are signed.
        given = {name.lower(): value for name, value in request.headers.items() if SIGNED_HEADER.match(name)}
        headers = {name: value for name, value in given.items() if name not in SIGNATURE_HEADERS}
        signed = import_extra("botocore.awsrequest").AWSRequest(
            method=request.method, url=request.url, data=request.body, headers=headers
        )
        # SigV4Auth encodes the encoded path once more, as every AWS service but S3 expects.
        auth.SigV4Auth(self._load_credentials(), self._credential.service, self._credential.region).add_auth(signed)
        return {name.lower(): value for name, value in signed.headers.items() if name.lower() in SIGNATURE_HEADERS}

    def _load_credentials(self) -> Any:
        errors = import_extra("botocore.exceptions")
        profile = self._credential.profile or os.environ.get("AWS_PROFILE")  # as in AWS's libraries
        try:
            # botocore's search is not thread-safe, and slow where it asks the instance metadata.
            with self._lock:
                if self._credentials is None:
                    session = import_extra("botocore.session").Session(profile=self._credential.profile)
                    self._credentials = session.get_credentials()
            if self._credentials is not None:
                return self._credentials.get_frozen_credentials()
        except errors.ProfileNotFound as error:
            message = f"There is no AWS profile '{profile}'. Name another one, or create it."
            raise credentials_error(message) from error
        except (errors.BotoCoreError, errors.ClientError, *LIBRARY_ERRORS) as error:
            # botocore raises a RuntimeError for credentials that have expired when it loads them.
            expired = (errors.SSOError, errors.TokenRetrievalError, RuntimeError)
            default = "the profile 'default', or the variables that begin with AWS_"
            where = f"the profile '{profile}'" if profile else default
            advice = "Log in again" if isinstance(error, expired) else f"Check {where}"
            message = f"The AWS credentials could not be loaded ({type(error).__name__}). {advice}."
            raise credentials_error(message) from error
        raise credentials_error(
            "There are no AWS credentials. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or name a profile."
        )


LIBRARY_ERRORS = (OSError, ValueError, RuntimeError)
"""What the libraries raise for invalid files, and for the programs they run."""

SIGNED_HEADER = re.compile(r"content-type$|x-amz-", re.IGNORECASE)
SIGNATURE_HEADERS = ("authorization", "x-amz-date", "x-amz-security-token")


class TokenSigner(ABC):
    """Sends a bearer token, and renews it before it expires, once for concurrent requests."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._credentials: Any = None
        self._headers: dict[str, str] = {}
        self._renew_at = 0.0
        self._lock = asyncio.Lock()

    async def headers(self, request: HttpRequest) -> dict[str, str]:
        del request
        if time.time() > self._renew_at:
            # Checked again inside: the request that held the lock has renewed the token.
            async with self._lock:
                if time.time() > self._renew_at:
                    self._headers, expires_at = await asyncio.to_thread(self.fetch)
                    self._renew_at = expires_at - REFRESH_MARGIN_SECONDS
        return self._headers

    @abstractmethod
    def fetch(self) -> tuple[dict[str, str], float]:
        """Return the headers with a new token, and when it expires; blocks; raises UpstreamError."""


GOOGLE_CREDENTIALS_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


class GoogleSigner(TokenSigner):
    """Google's application default credentials."""

    def fetch(self) -> tuple[dict[str, str], float]:
        errors = import_extra("google.auth.exceptions")
        requests = import_extra("google.auth.transport.requests")
        try:
            if self._credentials is None:
                self._credentials, _ = import_extra("google.auth").default(scopes=[self._scope])
            self._credentials.refresh(requests.Request())
        except (errors.GoogleAuthError, *LIBRARY_ERRORS) as error:
            retryable = getattr(error, "retryable", False)
            raise credentials_error(_google_error_message(error, errors), retryable=retryable) from error
        # `apply` also adds the project to bill, if it is not the credentials' own.
        headers: dict[str, str] = {}
        self._credentials.apply(headers)
        expiry: datetime | None = self._credentials.expiry
        return headers, expiry.replace(tzinfo=UTC).timestamp() if expiry else math.inf


def _google_error_message(error: Exception, errors: Any) -> str:
    kind = type(error).__name__
    if isinstance(error, errors.TransportError):
        return f"Google's token server cannot be reached ({kind}). Check the network."
    if os.environ.get(GOOGLE_CREDENTIALS_VARIABLE):
        return f"The Google credentials cannot be used ({kind}). Check the file in {GOOGLE_CREDENTIALS_VARIABLE}."
    if isinstance(error, errors.DefaultCredentialsError):
        login = "gcloud auth application-default login"
        return f"There are no Google credentials. Run '{login}', or set {GOOGLE_CREDENTIALS_VARIABLE}."
    return f"Google gave no token ({kind}). Log in again."


class EntraSigner(TokenSigner):
    """Microsoft Entra ID, with the credentials of its default chain."""

    def fetch(self) -> tuple[dict[str, str], float]:
        errors = import_extra("azure.core.exceptions")
        try:
            if self._credentials is None:
                self._credentials = import_extra("azure.identity").DefaultAzureCredential()
            token = self._credentials.get_token(self._scope)
        except (errors.AzureError, ValueError) as error:
            raise credentials_error(
                f"Microsoft Entra gave no token ({type(error).__name__}). Run 'az login', or set "
                "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET."
            ) from error
        return {"authorization": f"Bearer {token.token}"}, float(token.expires_on)


EXTRAS = {"botocore": "bedrock", "google": "vertex", "azure": "entra"}
"""The extra that installs each library."""


def import_extra(module: str) -> Any:
    """Import a module of an optional extra; raises UpstreamError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        extra = EXTRAS[module.partition(".")[0]]
        raise credentials_error(f"Install antiphon[{extra}] to use this provider without a key.") from None


AWS_FILE_VARIABLES = {"config_file": "AWS_CONFIG_FILE", "credentials_file": "AWS_SHARED_CREDENTIALS_FILE"}
"""botocore's names for the files of AWS, and the variables that say where they are."""


def profile_region(profile: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the region of an AWS profile, or of the default one; None if it has none.

    An invalid profile is reported when its credentials are needed, not here.
    """
    try:
        errors = import_extra("botocore.exceptions")
        session = import_extra("botocore.session").Session(profile=profile)
    except UpstreamError:
        return None  # the extra is not installed
    for name, variable in AWS_FILE_VARIABLES.items():
        if path := environ.get(variable):
            session.set_config_variable(name, path)
    try:
        return session.get_scoped_config().get("region")
    except (errors.BotoCoreError, *LIBRARY_ERRORS):
        return None
