"""Request ids, authentication, host checks, access log and error responses."""

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from httpx import Headers, RemoteProtocolError

from antiphon.agents.agent import agent
from antiphon.server.asgi import Receive, Scope, Send
from antiphon.server.middleware import GatewayMiddleware
from antiphon.server.settings import Settings
from tests.http_client import DOORS, http_client, post_response, wait_until
from tests.run_server import run_server
from tests.server.streaming.test_event_stream import visiting

KEY = "sk-correct-horse"
BODY = {"model": "demo", "input": "Hi!"}
ID = re.compile(r"req_[0-9a-f]{40,}")


def test_every_response_has_a_unique_request_id(server: str) -> None:
    with http_client(server) as http:
        answers = [
            http.get("/healthz"),
            http.get("/v1/models"),
            http.get("/nothing"),
            http.get("/v1/responses"),
            http.post("/v1/responses", json=BODY),
            http.post("/v1/responses", json=BODY | {"stream": True}),
            http.post("/v1/responses", json={}),
            http.post("/v1/responses", json=BODY | {"model": "gpt-9"}),
            http.post("/v1/responses", json=BODY | {"input": "FAIL"}),
            http.post("/openai/responses", content="{"),
        ]
    ids = [answer.headers.get_list("x-request-id") for answer in answers]
    assert all(len(one) == 1 and ID.fullmatch(one[0]) for one in ids)
    assert len({one for [one] in ids}) == len(answers)


@pytest.mark.parametrize("given", ["abc", "7", "a.b:c_d-e", "x" * 128])
def test_a_clients_request_id_is_used(server: str, given: str) -> None:
    with http_client(server) as http:
        answer = http.get("/healthz", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "two words", "semi;colon", "<b>", "a\tb", "ü"])
def test_an_invalid_request_id_is_replaced(server: str, given: str) -> None:
    with http_client(server) as http:
        answer = http.get("/healthz", headers=Headers({"x-request-id": given}, "utf-8"))
    assert ID.fullmatch(answer.headers["x-request-id"])


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """Return the address of a server with an API key."""
    with run_server(Settings(api_key=KEY)) as address:
        yield address


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        KEY,
        f"Basic {KEY}",
        "Bearer",
        "Bearer wrong",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY.upper()}",
        "Bearer \xfc\xff",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models"), ("POST", "/v1/responses"), ("GET", "/nothing"), ("GET", "/healthz/")]
)
def test_requests_without_the_key_are_rejected(locked: str, method: str, path: str, authorization: str | None) -> None:
    given = {} if authorization is None else {"authorization": authorization}
    with http_client(locked) as http:
        answer = http.request(method, path, headers=Headers(given, "latin-1"))
    message = "This server requires an API key. Send 'Authorization: Bearer <key>'."
    if (authorization or "").startswith("Bearer "):
        message = "This API key is not valid. Send the key of this server: 'Authorization: Bearer <key>'."
    error = {"message": message, "type": "authentication_error", "param": None, "code": "invalid_api_key"}
    assert (answer.status_code, answer.json()) == (401, {"error": error})
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ID.fullmatch(answer.headers["x-request-id"])


@pytest.mark.parametrize("door", DOORS[1:])
def test_an_error_at_openais_door_has_a_detail(locked: str, door: str) -> None:
    answer = post_response(locked, door)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (401, "authentication_error")
    assert answer.json() == {"error": error, "detail": error["message"]}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
@pytest.mark.parametrize("door", DOORS)
def test_with_the_key_everything_is_open(locked: str, door: str, scheme: str) -> None:
    with http_client(locked) as http:
        headers = {"authorization": f"{scheme} {KEY}"}
        assert http.post(f"{door}/responses", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_checks_need_no_key(locked: str, path: str) -> None:
    with http_client(locked) as http:
        assert http.get(path).status_code == 200


def test_settings_do_not_show_their_key() -> None:
    assert KEY not in repr(Settings(api_key=KEY))


LINE = re.compile(r"(\w+) (\S+) (\d+) \d+\.\dms (\d+)B (\S+)")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Give what reads the access log."""
    with caplog.at_level(logging.INFO):
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "antiphon.access"]


def test_every_request_has_a_line_without_any_content(
    locked: str, log: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    with http_client(locked) as http:
        headers = {"authorization": f"Bearer {KEY}", "x-request-id": "mine"}
        requested = {"model": "demo", "input": "the secret prompt", "metadata": {"a": "private"}}
        answers = [
            http.post("/v1/responses", json=requested, headers=headers),
            http.post("/openai/responses", json=requested | {"stream": True}, headers=headers),
            http.post("/v1/responses?q=hidden", json=requested | {"model": "gpt-9"}, headers=headers),
            http.get("/healthz", headers=headers),
            http.get("/v1/models", headers={"x-request-id": "mine"}),
        ]
        requested["input"] = "the secret prompt to FAIL"
        answers.append(http.post("/v1/responses", json=requested, headers=headers))
    wait_until(lambda: len(log()) == len(answers))
    found = [LINE.fullmatch(line) for line in log()]
    assert [match.groups() if match else None for match in found] == [
        (a.request.method, a.request.url.path, str(a.status_code), str(len(a.content)), "mine") for a in answers
    ]
    ours = [record for record in caplog.records if record.name.startswith("antiphon")]
    output = "\n".join(caplog.handler.format(record) for record in ours)
    for secret in ("secret prompt", "private", "hidden", KEY, "Hello from"):
        assert secret not in output


def test_a_path_cannot_forge_log_lines(server: str, log: Callable[[], list[str]]) -> None:
    with http_client(server) as http:
        http.get("/v1/x%0aGET%20/forged%20200")
    wait_until(lambda: len(log()) == 1)
    [line] = log()
    match = LINE.fullmatch(line)
    assert match
    assert match[2] == "/v1/x%0AGET%20/forged%20200"


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_is_logged_as_499(stream: bool, log: Callable[[], list[str]]) -> None:
    started = threading.Event()

    @agent("waiting")
    async def waiting() -> AsyncIterator[str]:
        started.set()
        await asyncio.sleep(120)
        yield "never heard"

    with run_server(Settings(agents=[waiting])) as address:
        with visiting(address, {"model": "waiting", "input": "Hi!", "stream": stream}):
            assert started.wait(20)
        wait_until(lambda: len(log()) == 1)
    [line] = log()
    match = LINE.fullmatch(line)
    assert match
    assert match.groups()[:4] == ("POST", "/v1/responses", "499", "0")


def broken(after: int) -> GatewayMiddleware:
    """Make an application that breaks after some messages."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if after:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError("the secret of the server")

    return GatewayMiddleware(app, Settings())


@pytest.mark.parametrize("door", ["/v1", "/openai"])
def test_an_unexpected_error_is_a_500_with_the_request_id(door: str, caplog: pytest.LogCaptureFixture) -> None:
    with run_server(broken(0)) as address, http_client(address) as http:
        answer = http.get(f"{door}/anything", headers={"x-request-id": "mine"})
    message = "Internal error. The server's log has it under the id mine."
    error = {"message": message, "type": "server_error", "param": None, "code": "internal_error"}
    detail = {"detail": message} if door == "/openai" else {}
    assert (answer.status_code, answer.json()) == (500, {"error": error} | detail)
    assert answer.headers["x-request-id"] == "mine"
    [record] = [one for one in caplog.records if one.name == "antiphon.server"]
    assert record.getMessage() == "mine failed"
    assert record.exc_info


def test_an_error_after_the_start_aborts_the_response() -> None:
    with run_server(broken(1)) as address, http_client(address) as http, http.stream("GET", "/v1/anything") as answer:
        assert answer.status_code == 200
        with pytest.raises(RemoteProtocolError):
            answer.read()


def status_for(address: str, host: str, **headers: str) -> int:
    """Ask for a response by some name."""
    body = {"model": "echo", "input": "Hi!"}
    named = {"host": host, **headers}
    return httpx.post(f"{address}/v1/responses", json=body, headers=named).status_code


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000"])
def test_a_foreign_host_name_is_rejected(server: str, host: str) -> None:
    assert status_for(server, host) == 403
    answer = httpx.get(f"{server}/v1/models", headers={"host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    assert answer.json()["error"]["message"] == (
        "The host 'evil.example' is not allowed. Use localhost, start the server with an API key, or name the host in "
        "Settings(allowed_hosts=[…])."
    )


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:80", "[::1]:8000", "box"])
def test_local_host_names_are_accepted(server: str, host: str) -> None:
    assert status_for(server, host) == 200


def test_allowed_hosts_and_requests_with_a_key_are_accepted() -> None:
    with run_server(Settings(allowed_hosts=["gateway.example"])) as address:
        assert status_for(address, "gateway.example") == 200
        assert status_for(address, "other.example") == 403
    with run_server(Settings(api_key="k")) as address:
        assert status_for(address, "any.example", authorization="Bearer k") == 200
