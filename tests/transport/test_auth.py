"""Credentials as headers: API keys, AWS signatures (checked against botocore), cloud tokens."""

import asyncio
import datetime
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from antiphon.protocol.errors import UpstreamError
from antiphon.transport.auth import Signer, make_signer
from antiphon.transport.client import HttpClient, HttpRequest
from antiphon.transport.request import AwsSignature, Credential, EntraToken, GoogleToken, Key
from tests.scripted_upstream import ScriptedUpstream, json_answer, scripted_upstream
from tests.transport.buffered_response import fetch_response

pytestmark = pytest.mark.anyio

AWS = AwsSignature("bedrock", "eu-west-1")
JSON = {"content-type": "application/json"}
ANY = HttpRequest(url="https://a.example/v1")
MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.fixture(autouse=True)
def no_ambient_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the credentials of this machine."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "MSI_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def failure(signs: Signer) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await signs.headers(ANY)
    error = caught.value
    assert (error.status, error.payload.type, error.payload.code) == (
        401,
        "authentication_error",
        "missing_credentials",
    )
    return error


@pytest.mark.parametrize(
    ("credential", "key", "headers"),
    [
        (None, "secret", {}),
        (Key(), None, {}),
        (Key(), "", {}),
        (Key(), "secret", {"authorization": "Bearer secret"}),
        (Key(), " secret\n", {"authorization": "Bearer secret"}),
        (Key("x-api-key", ""), "secret", {"x-api-key": "secret"}),
        (AWS, "secret", {"authorization": "Bearer secret"}),
    ],
)
async def test_a_key_is_sent_in_its_header(
    credential: Credential | None, key: str | None, headers: dict[str, str]
) -> None:
    assert await make_signer(credential, key).headers(ANY) == headers


@pytest.mark.parametrize("key", ["secr\net", "sëcret", "se\0cret"])
async def test_a_key_with_illegal_characters_is_rejected_and_not_repeated(key: str) -> None:
    error = await failure(make_signer(Key(), key))
    assert str(error) == "The API key contains a character that no header may contain. Copy it again."


@pytest.mark.parametrize("credential", [Key(), AWS, GoogleToken(), EntraToken()])
def test_no_signer_repr_contains_a_secret(credential: Credential) -> None:
    assert "secret" not in repr(make_signer(credential, "secret"))


@pytest.fixture
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> str:
    """Fix the time that botocore signs with."""
    stopped = datetime.datetime(2026, 11, 15, 12, 0, tzinfo=datetime.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: stopped)
    return "20261115T120000Z"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    given = {"access": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI", "token": "a session"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["access"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["secret"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", given["token"])
    return given


@pytest.fixture
def provider() -> Iterator[ScriptedUpstream]:
    body = {"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "end_turn"}
    with scripted_upstream(json_answer(body | {"usage": {}, "metrics": {}, "modelSummaries": []})) as scripted:
        yield scripted


def botocore_headers(service: str, provider: ScriptedUpstream, keys: dict[str, str]):
    session = boto3.Session(*keys.values(), region_name="eu-west-1")
    return session.client(service, endpoint_url=provider.url)


SIGNED = ("authorization", "x-amz-date", "x-amz-security-token")


async def test_a_signature_equals_botocores(provider: ScriptedUpstream, keys: dict[str, str], fixed_time: str) -> None:
    client = botocore_headers("bedrock-runtime", provider, keys)
    client.converse(modelId=MODEL, messages=[{"role": "user", "content": [{"text": "Hé"}]}])
    client.close()
    received = provider.requests[0]
    assert "%3A" in received.path
    others = {"user-agent": "antiphon", "x-team": "a"}
    request = HttpRequest(
        url=provider.url + received.path, headers={"Content-Type": JSON["content-type"]} | others, body=received.body
    )
    headers = await make_signer(AWS, None).headers(request)
    assert headers == {name: received.headers[name] for name in SIGNED}
    assert headers["x-amz-date"] == fixed_time
    assert "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token" in headers["authorization"]


async def test_a_request_without_a_body_is_signed_with_its_query(
    provider: ScriptedUpstream, keys: dict[str, str], fixed_time: str
) -> None:
    client = botocore_headers("bedrock", provider, keys)
    client.list_foundation_models(byOutputModality="TEXT", byProvider="a b/c")
    client.close()
    received = provider.requests[0]
    request = HttpRequest(method="GET", url=provider.url + received.path)
    headers = await make_signer(AWS, None).headers(request)
    assert headers == {name: received.headers[name] for name in SIGNED}
    assert headers["x-amz-date"] == fixed_time


async def test_the_client_sends_what_was_signed(
    provider: ScriptedUpstream, keys: dict[str, str], fixed_time: str
) -> None:
    url = f"{provider.url}/model/{MODEL.replace(':', '%3A')}/converse"
    request = HttpRequest(url=url, headers=JSON, body=b"{}")
    headers = JSON | await make_signer(AWS, None).headers(request)
    client = HttpClient()
    await fetch_response(client, replace(request, headers=headers))
    client.close()
    received = provider.requests[0]
    again = AWSRequest(
        "POST",
        f"http://{received.headers['host']}{received.path}",
        {"content-type": received.headers["content-type"]},
        received.body,
    )
    known = Credentials(keys["access"], keys["secret"], keys["token"])
    SigV4Auth(known, "bedrock", "eu-west-1").add_auth(again)
    assert received.headers["authorization"] == again.headers["Authorization"]
    assert received.headers["x-amz-date"] == fixed_time


async def test_a_profile_has_its_own_keys(tmp_path: Path, keys: dict[str, str]) -> None:
    (tmp_path / "aws-credentials").write_text("[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = x\n")
    headers = await make_signer(AwsSignature("bedrock", "eu-west-1", "work"), None).headers(ANY)
    assert "Credential=AKIDWORK/" in headers["authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in headers["authorization"]
    assert "x-amz-security-token" not in headers
    error = await failure(make_signer(AwsSignature("bedrock", "eu-west-1", "play"), None))
    assert str(error) == "There is no AWS profile 'play'. Name another one, or create it."


async def test_expiring_credentials_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    def temporary_credentials(id: str, minutes: int):
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
        return json_answer(
            {
                "AccessKeyId": id,
                "SecretAccessKey": "x",
                "Token": f"session of {id}",
                "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )

    with scripted_upstream(
        temporary_credentials("AKID1", 5), temporary_credentials("AKID2", 600), temporary_credentials("AKID3", 600)
    ) as lender:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", lender.url)
        signs = make_signer(AWS, None)
        tokens = [(await signs.headers(ANY))["x-amz-security-token"] for _ in range(4)]
    # The first were about to end when they came, so they are renewed before they are used.
    assert tokens == ["session of AKID2"] * 4
    assert len(lender.requests) == 2


async def test_concurrent_requests_search_for_credentials_once(monkeypatch: pytest.MonkeyPatch) -> None:
    temporary_credentials = {
        "AccessKeyId": "AKID",
        "SecretAccessKey": "x",
        "Token": "t",
        "Expiration": "2999-01-01T00:00:00Z",
    }
    with scripted_upstream(json_answer(temporary_credentials)) as lender:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", lender.url)
        signs = make_signer(AWS, None)
        await asyncio.gather(*(signs.headers(ANY) for _ in range(8)))
    assert len(lender.requests) == 1


async def test_missing_aws_credentials_are_an_error_that_says_what_to_set(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    signs = make_signer(AWS, None)
    error = await failure(signs)
    assert str(error) == (
        "There are no AWS credentials. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or name a profile."
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["access"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["secret"])
    assert "authorization" in await signs.headers(ANY)


async def test_a_partial_credential_is_an_error_without_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    error = await failure(make_signer(AWS, None))
    assert str(error) == (
        "The AWS credentials could not be loaded (PartialCredentialsError). "
        "Check the profile 'default', or the variables that begin with AWS_."
    )


SSO = "sso_start_url = http://127.0.0.1:1\nsso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = x"
ROLE = "role_arn = arn:aws:iam::1:role/x\nsource_profile = nowhere"


@pytest.mark.parametrize(
    ("profile", "kind", "advice"),
    [
        (SSO, "SSOTokenLoadError", "Log in again."),
        (ROLE, "InvalidConfigError", "Check the profile 'work'."),
        ("aws_access_key_id = AK", "PartialCredentialsError", "Check the profile 'work'."),
        ("credential_process = /bin/false", "CredentialRetrievalError", "Check the profile 'work'."),
        ("credential_process = /no/where", "FileNotFoundError", "Check the profile 'work'."),
        ("credential_process = /bin/echo no", "JSONDecodeError", "Check the profile 'work'."),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_an_unusable_profile_is_named_and_the_cause_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, kind: str, advice: str, named: bool
) -> None:
    (tmp_path / "aws-config").write_text(f"[profile work]\n{profile}\n")
    if not named:
        monkeypatch.setenv("AWS_PROFILE", "work")
    error = await failure(make_signer(AwsSignature("bedrock", "eu-west-1", "work" if named else None), None))
    assert str(error) == f"The AWS credentials could not be loaded ({kind}). {advice}"
    assert type(error.__cause__).__name__ == kind


async def test_a_profile_from_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "play")
    error = await failure(make_signer(AWS, None))
    assert str(error) == "There is no AWS profile 'play'. Name another one, or create it."


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def service_account(path: Path, private_key: str, token_url: str) -> str:
    """Write a service account whose tokens come from a scripted server."""
    file = path / "service_account.json"
    fields = {
        "type": "service_account",
        "client_email": "a@b.example",
        "private_key_id": "1",
        "private_key": private_key,
        "token_uri": token_url,
    }
    file.write_text(json.dumps(fields))
    return str(file)


def google_token(name: str, seconds: int):
    return json_answer({"access_token": name, "expires_in": seconds, "token_type": "Bearer"})


async def test_a_google_token_is_requested_once_and_renewed_before_it_expires(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private_key: str
) -> None:
    with scripted_upstream(google_token("first", 100), google_token("second", 3600)) as google:
        path = service_account(tmp_path, private_key, google.url)
        monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "payer")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
        signs = make_signer(GoogleToken(), None)
        first = await signs.headers(ANY)
        then = await asyncio.gather(*(signs.headers(ANY) for _ in range(8)))
    assert first == {"authorization": "Bearer first", "x-goog-user-project": "payer"}
    assert then == [{"authorization": "Bearer second", "x-goog-user-project": "payer"}] * 8
    assert len(google.requests) == 2
    assert b"grant_type=urn" in google.requests[0].body


async def test_missing_google_credentials_are_an_error_that_says_what_to_do() -> None:
    error = await failure(make_signer(GoogleToken(), None))
    assert str(error) == (
        "There are no Google credentials. Run 'gcloud auth application-default login', or set "
        "GOOGLE_APPLICATION_CREDENTIALS."
    )


@pytest.mark.parametrize("text", [None, "no JSON", '{"type": "x"}', "\xff"])
async def test_an_unusable_google_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "credentials.json"
    if text is not None:
        file.write_text(text, encoding="latin-1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    error = await failure(make_signer(GoogleToken(), None))
    assert str(error) == (
        f"The Google credentials cannot be used ({type(error.__cause__).__name__}). "
        "Check the file in GOOGLE_APPLICATION_CREDENTIALS."
    )


async def test_a_rejected_google_token_is_an_error_without_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private_key: str
) -> None:
    refused = json_answer({"error": "invalid_grant", "error_description": "secret"}, 400)
    with scripted_upstream(refused, google_token("later", 3600)) as google:
        path = service_account(tmp_path, private_key, google.url)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
        signs = make_signer(GoogleToken(), None)
        error = await failure(signs)
        assert await signs.headers(ANY) == {"authorization": "Bearer later"}
    assert str(error) == (
        "The Google credentials cannot be used (RefreshError). Check the file in GOOGLE_APPLICATION_CREDENTIALS."
    )
    assert not error.retryable


def entra_token(name: str, seconds: int):
    ends = int(time.time()) + seconds
    return json_answer({"access_token": name, "expires_on": str(ends), "token_type": "Bearer"})


async def test_a_valid_entra_token_is_requested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_upstream(entra_token("first", 3600)) as entra:
        monkeypatch.setenv("IDENTITY_ENDPOINT", entra.url)
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        signs = make_signer(EntraToken(), None)
        headers = await asyncio.gather(*(signs.headers(ANY) for _ in range(8)))
    assert headers == [{"authorization": "Bearer first"}] * 8
    assert len(entra.requests) == 1
    assert entra.requests[0].path.endswith("resource=https://cognitiveservices.azure.com")


async def test_an_entra_token_is_renewed_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_upstream(entra_token("first", 200), entra_token("second", 3600)) as entra:
        monkeypatch.setenv("IDENTITY_ENDPOINT", entra.url)
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        signs = make_signer(EntraToken(), None)
        told = [await signs.headers(ANY) for _ in range(3)]
    assert [headers["authorization"] for headers in told] == ["Bearer first", "Bearer second", "Bearer second"]


async def test_missing_entra_credentials_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_upstream(json_answer({"error": "secret"}, 400)) as entra:
        monkeypatch.setenv("IDENTITY_ENDPOINT", entra.url)
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        error = await failure(make_signer(EntraToken(), None))
    assert str(error) == (
        "Microsoft Entra gave no token (ClientAuthenticationError). Run 'az login', or set "
        "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET."
    )


@pytest.mark.parametrize(
    ("credential", "module", "name"),
    [
        (AWS, "botocore.auth", "bedrock"),
        (GoogleToken(), "google.auth.exceptions", "vertex"),
        (EntraToken(), "azure.core.exceptions", "entra"),
        (EntraToken(), "azure.identity", "entra"),
    ],
)
async def test_an_extra_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, credential: Credential, module: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    error = await failure(make_signer(credential, None))
    assert str(error) == f"Install antiphon[{name}] to use this provider without a key."
