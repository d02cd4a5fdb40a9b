"""Requests to providers: timeouts, hooks, credentials, redirects."""

import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.adapters.base import Provider, Transform
from antiphon.protocol.errors import RequestError
from antiphon.server.config.load import parse_config
from antiphon.server.settings import Settings
from tests.adapters.provider_servers import (
    SCENE_MODULES,
    configure_provider,
    serve_providers,
    stream_answer,
    whole_answer,
)
from tests.http_client import parse_stream, post_response
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, scripted_upstream

TEXT = SCENE_MODULES["openai"].SCENES["text"]
SAID = TEXT.expected.text
BEST = {"best": ["anthropic/a", "openai/b"]}
PAIR = ["anthropic", "openai"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_that_exceeds_the_first_byte_timeout_is_not_retried(stream: bool) -> None:
    with serve_providers(["openai"], retry_seconds=0.01, first_byte_seconds=0.2) as served:
        served.upstreams["openai"].play(ScriptedAnswer(delay=5.0))
        answer = post_response(served.address, model="openai/m", stream=stream)
        requests = len(served.upstreams["openai"].requests)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    assert answer.headers["x-should-retry"] == "false"  # or else the clients would
    assert requests == 1


@pytest.mark.parametrize("stream", [False, True])
def test_the_next_model_answers_after_a_first_byte_timeout(stream: bool) -> None:
    with serve_providers(PAIR, aliases=BEST, retry_seconds=0.01, first_byte_seconds=0.2) as served:
        served.upstreams["anthropic"].play(ScriptedAnswer(delay=5.0))
        served.upstreams["openai"].play(stream_answer(TEXT) if stream else whole_answer(TEXT))
        answer = post_response(served.address, model="best", stream=stream)
        requests = len(served.upstreams["anthropic"].requests)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["output"][0]["content"][0]["text"] == SAID
    assert requests == 1


def changing(url: str, hook: Transform) -> Provider:
    """Configure an upstream whose requests a function changes."""
    return replace(configure_provider("openai", url), transform_request=hook)


def raises(body: dict[str, Any]) -> None:
    raise KeyError("a word of the prompt")


def leaves(body: dict[str, Any]) -> None:
    raise SystemExit


class Panic(BaseException):
    """What a Rust extension raises; it is no Exception."""


def panics(body: dict[str, Any]) -> None:
    raise Panic


async def raises_later(body: dict[str, Any]) -> None:
    raise KeyError("a word of the prompt")


BROKEN: list[tuple[Transform, str]] = [
    (raises, "failed (KeyError)"),
    (raises_later, "failed (KeyError)"),
    (leaves, "failed (SystemExit)"),
    (panics, "failed (Panic)"),
    (lambda body: "nonsense", "returned no object"),
    (lambda body: [body], "returned no object"),
    (lambda body: body | {"x": object()}, "returned what cannot be written as JSON"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("hook", "what"), BROKEN)
def test_a_broken_transform_hook_is_a_server_error_and_nothing_is_sent(
    hook: Transform, what: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        scripted_upstream(whole_answer(TEXT)) as theirs,
        caplog.at_level(logging.ERROR, "antiphon.engine"),
        run_server(Settings(providers=[changing(theirs.url, hook)])) as address,
    ):
        answer = post_response(address, model="openai/m", stream=stream)
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "message": f"openai: its transform_request {what}.",
        "type": "server_error",
        "code": "server_error",
        "param": None,
    }
    assert theirs.requests == []
    (record,) = [one for one in caplog.records if "transform_request" in one.getMessage()]
    assert bool(record.exc_info) == ("no object" not in what)


@pytest.mark.parametrize("stream", [False, True])
def test_the_next_model_answers_after_a_broken_transform_hook(stream: bool) -> None:
    with (
        scripted_upstream() as first,
        scripted_upstream(stream_answer(TEXT) if stream else whole_answer(TEXT)) as second,
        run_server(
            Settings(
                providers=[
                    replace(changing(first.url, raises), name="broken"),
                    configure_provider("openai", second.url),
                ],
                aliases={"best": ["broken/a", "openai/b"]},
            )
        ) as address,
    ):
        answer = post_response(address, model="best", stream=stream)
    response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
    assert response["output"][0]["content"][0]["text"] == SAID
    assert first.requests == []


def refuses(body: dict[str, Any]) -> None:
    raise RequestError("Not this model.", param="model")


def test_a_transform_hook_may_reject_a_request() -> None:
    with scripted_upstream() as theirs, run_server(Settings(providers=[changing(theirs.url, refuses)])) as address:
        answer = post_response(address, model="openai/m")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Not this model.")


def test_missing_credentials_name_the_provider_and_the_log_has_the_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = "printf 'No luck,\\n sk-abcdefghijkl' >&2; exit 1"
    (tmp_path / "config").write_text(f'[profile work]\ncredential_process = sh -c "{script}"\n')
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    aws = replace(configure_provider("bedrock", "http://127.0.0.1:9"), name="mine", profile="work")
    with caplog.at_level(logging.WARNING, "antiphon.engine"), run_server(Settings(providers=[aws])) as address:
        answer = post_response(address, model="mine/m")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing_credentials")
    assert answer.json()["error"]["message"] == (
        "mine: The AWS credentials could not be loaded (CredentialRetrievalError). Check the profile 'work'."
    )
    why, last = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert last.endswith("'mine/m' cannot answer (401 missing_credentials)")
    assert why == (
        "mine: CredentialRetrievalError: Error when retrieving credentials from custom-process: No luck, [redacted]"
    )


def test_the_log_names_the_variable_that_holds_no_valid_key(caplog: pytest.LogCaptureFixture) -> None:
    file = '[providers.mine]\nadapter = "openai"\napi_key_env = "UPKEY"\n'
    settings = Settings().with_config(parse_config(file, {"UPKEY": "sk a b"}))
    with caplog.at_level(logging.WARNING, "antiphon.engine"), run_server(settings) as address:
        answer = post_response(address, model="mine/m")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing_credentials")
    # A caller can neither set the server's variables nor needs to know them.
    assert answer.json()["error"]["message"] == (
        "mine: This server has no API key for the provider. Ask its operator: its log names what is missing."
    )
    assert "mine: UPKEY is not set, or holds no key. Set it to this provider's key, and start again." in caplog.messages


MOVED = [
    ("https://there.example/v2/chat/completions", "https://there.example/v2"),
    ("https://me:secret@there.example/v2/chat/completions?key=secret#x", "https://there.example/v2"),
    ("https://there.example/login?next=secret", "https://there.example/login"),
    ("//there.example/v1/chat/completions", "http://there.example/v1"),
    ("/v2/chat/completions", "URL/v2"),
    ("https://there.example/sk-abcdefghijkl", "https://there.example/[redacted]"),
    ("https://there.example/secret-openai", "https://there.example/[redacted]"),
]


@pytest.mark.parametrize(("status", "stream"), [(301, False), (308, True)])
@pytest.mark.parametrize(("location", "place"), MOVED)
def test_a_redirect_is_not_followed_and_its_target_is_named(
    status: int, location: str, place: str, stream: bool
) -> None:
    with serve_providers(["openai"]) as served:
        theirs = served.upstreams["openai"]
        theirs.play(ScriptedAnswer(b"<html>", status, {"location": location}))
        answer = post_response(served.address, model="openai/m", stream=stream)
        place = place.replace("URL", theirs.url)
        assert len(theirs.requests) == 1
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
    assert "location" not in answer.headers
    assert answer.json()["error"]["message"] == (
        f"openai: answered {status}: it has moved to {place}. Its base_url should lead there."
    )


@pytest.mark.parametrize("location", [None, "http://[", "mailto:a@b.example"])
def test_a_redirect_without_a_target_is_an_error_of_the_provider(location: str | None) -> None:
    with serve_providers(["openai"]) as served:
        headers = {"location": location} if location else {}
        served.upstreams["openai"].play(ScriptedAnswer(b"", 301, headers))
        answer = post_response(served.address, model="openai/m")
    assert answer.status_code == 502
    assert answer.json()["error"]["message"] == "openai: answered 301 and did not say why."
