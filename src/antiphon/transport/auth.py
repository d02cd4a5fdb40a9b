"""How a provider is shown who asks: credentials become headers.

The libraries that know a cloud's credentials are extras, and imported when they are first needed.
They read files and wait for networks, so they are asked in a thread. Nothing here shows a secret:
what a library itself says is the cause of our error, for the log alone.
"""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from typing import Any, Protocol

from antiphon.core.errors import UpstreamError
from antiphon.wire.upstream import Aws, Credential, Entra, Google, Key, Upstream

EARLY_SECONDS = 300
"""How long before its end a token is no longer shown."""


class Signer(Protocol):
    """Says who asks. It may keep what it found: make one for each provider, and keep it."""

    async def headers(self, request: Upstream, body: bytes) -> dict[str, str]:
        """Return what is to be added to a request's own headers; raises UpstreamError."""
        ...


def signer(credential: Credential | None, key: str | None) -> Signer:
    """Return what signs for a credential; `key` is the value from the environment, if any."""
    match credential:
        case None:
            return KeySigner(Key(), None)
        case Key():
            return KeySigner(credential, key)
        case Aws():
            return AwsSigner(credential) if key is None else KeySigner(Key(), key)
        case Google():
            return GoogleSigner(credential)
        case Entra():
            return EntraSigner(credential)


def missing(message: str, *, retryable: bool = False) -> UpstreamError:
    """Make the error for credentials that are not there."""
    return UpstreamError(
        message,
        status=401,
        type="authentication_error",
        code="missing_credentials",
        retryable=retryable,
    )


class KeySigner:
    """Shows a key in a header, if there is one."""

    def __init__(self, credential: Key, key: str | None) -> None:
        self._credential = credential
        self._key = key.strip() if key else ""

    async def headers(self, request: Upstream, body: bytes) -> dict[str, str]:
        """Return the key's header."""
        del request, body
        if not self._key:
            return {}
        if not (self._key.isascii() and self._key.isprintable()):
            raise missing("The key holds what no header can. Copy it again.")
        return {self._credential.header: f"{self._credential.prefix}{self._key}"}


# --- AWS ------------------------------------------------------------------------------------------


class AwsSigner:
    """Signs with whatever credentials AWS's own chain finds; botocore keeps and renews them."""

    def __init__(self, credential: Aws) -> None:
        self._credential = credential
        self._lock = Lock()
        self._found: Any = None

    async def headers(self, request: Upstream, body: bytes) -> dict[str, str]:
        """Return the signature of a request (SigV4) and what it depends on."""
        return await asyncio.to_thread(self._signed, request, body)

    def _signed(self, request: Upstream, body: bytes) -> dict[str, str]:
        auth = extra("botocore.auth", "bedrock")
        signed = extra("botocore.awsrequest", "bedrock").AWSRequest(
            method=request.method, url=request.url, data=body, headers=_shown(request.headers)
        )
        who = self._credential
        # The path is encoded already and is encoded once more here, as every service but S3 wants.
        auth.SigV4Auth(self._frozen(), who.service, who.region).add_auth(signed)
        return {name.lower(): value for name, value in signed.headers.items() if name in ADDED}

    def _frozen(self) -> Any:
        """Return the credentials as they are now."""
        errors = extra("botocore.exceptions", "bedrock")
        try:
            with self._lock:
                if self._found is None:
                    self._found = self._find()
            if self._found is not None:
                return self._found.get_frozen_credentials()
        except errors.ProfileNotFound as error:
            message = f"AWS has no profile '{self._profile}'. Name another, or make it."
            raise missing(message) from error
        except (errors.BotoCoreError, errors.ClientError, *BROKEN) as error:
            # botocore itself raises a RuntimeError for credentials that were over when they came.
            over = (errors.SSOError, errors.TokenRetrievalError, RuntimeError)
            where = f"the profile '{self._profile or 'default'}'"
            where = where if self._profile else f"{where}, or the variables that begin with AWS_"
            advice = "Log in again" if isinstance(error, over) else f"Check {where}"
            message = f"The AWS credentials could not be had ({type(error).__name__}). {advice}."
            raise missing(message) from error
        raise missing(
            "There are no AWS credentials. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or name a profile."
        )

    @property
    def _profile(self) -> str | None:
        """The profile that is asked for, as AWS's libraries understand it."""
        return self._credential.profile or os.environ.get("AWS_PROFILE")

    def _find(self) -> Any:
        session = extra("botocore.session", "bedrock").Session(profile=self._credential.profile)
        return session.get_credentials()


BROKEN = (OSError, ValueError, RuntimeError)
"""What libraries let through of files, and of programs they run, that are not as they should be."""

ADDED = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are signed; what others add on the way must not break the seal."""
    named = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in named
        if name == "content-type" or (name.startswith("x-amz-") and name.title() not in ADDED)
    }


# --- tokens ---------------------------------------------------------------------------------------


class TokenSigner(ABC):
    """Shows a token, and gets a new one when its end is near; one request does it for all."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def headers(self, request: Upstream, body: bytes) -> dict[str, str]:
        """Return the token's header."""
        del request, body
        if not self.fresh():
            async with self._lock:
                if not self.fresh():
                    await asyncio.to_thread(self.renew)
        return self.shown()

    @abstractmethod
    def fresh(self) -> bool:
        """Tell whether there is a token that will hold for a while."""

    @abstractmethod
    def renew(self) -> None:
        """Get a token, however long it takes; raises UpstreamError."""

    @abstractmethod
    def shown(self) -> dict[str, str]:
        """Return the headers that show the token."""


GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class GoogleSigner(TokenSigner):
    """Google's application default credentials."""

    def __init__(self, credential: Google) -> None:
        super().__init__()
        self._credential = credential
        self._found: Any = None

    def fresh(self) -> bool:
        """Tell whether Google's library finds its token fresh."""
        return self._found is not None and self._found.token_state.name == "FRESH"

    def renew(self) -> None:
        """Find the credentials, and a token for them."""
        errors = extra("google.auth.exceptions", "vertex")
        requests = extra("google.auth.transport.requests", "vertex")
        try:
            if self._found is None:
                scopes = [self._credential.scope]
                self._found, _ = extra("google.auth", "vertex").default(scopes=scopes)
            self._found.refresh(requests.Request())
        except errors.GoogleAuthError as error:
            raise missing(_google_advice(error, errors), retryable=error.retryable) from error
        except BROKEN as error:
            raise missing(_google_advice(error, errors)) from error

    def shown(self) -> dict[str, str]:
        """Return the token, and the project that pays if it is another."""
        headers: dict[str, str] = {}
        self._found.apply(headers)
        return headers


def _google_advice(error: Exception, errors: Any) -> str:
    """Say what to do when Google's library has no token for us."""
    kind = type(error).__name__
    if isinstance(error, errors.TransportError):
        return f"Google could not be asked for a token ({kind}). Check the network."
    if os.environ.get(GOOGLE_FILE):
        return f"The Google credentials cannot be used ({kind}). Check the file in {GOOGLE_FILE}."
    if isinstance(error, errors.DefaultCredentialsError):
        login = "gcloud auth application-default login"
        return f"There are no Google credentials. Run '{login}', or set {GOOGLE_FILE}."
    return f"Google gave no token ({kind}). Log in again."


class EntraSigner(TokenSigner):
    """Microsoft Entra ID, by whatever credentials its own chain finds."""

    def __init__(self, credential: Entra) -> None:
        super().__init__()
        self._credential = credential
        self._found: Any = None
        self._token = ""
        self._ends = 0.0

    def fresh(self) -> bool:
        """Tell whether the token will hold for a while."""
        return self._ends - time.time() > EARLY_SECONDS

    def renew(self) -> None:
        """Find the credentials, and a token for them."""
        errors = extra("azure.core.exceptions", "entra")
        try:
            if self._found is None:
                self._found = extra("azure.identity", "entra").DefaultAzureCredential()
            token = self._found.get_token(self._credential.scope)
        except (errors.AzureError, ValueError) as error:
            raise missing(
                f"Microsoft Entra gave no token ({type(error).__name__}). Run 'az login', or set "
                "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET."
            ) from error
        self._token, self._ends = token.token, float(token.expires_on)

    def shown(self) -> dict[str, str]:
        """Return the token."""
        return {"authorization": f"Bearer {self._token}"}


def extra(module: str, name: str) -> Any:
    """Import a module that an extra brings."""
    try:
        return import_module(module)
    except ImportError:
        raise missing(f"Install antiphon[{name}] to use this provider without a key.") from None
