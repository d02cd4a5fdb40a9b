"""Request bodies over HTTP, and clients that disconnect."""

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint

from antiphon.agents.agent import Turn, agent
from antiphon.server.app import create_app
from antiphon.server.asgi import header, read_json
from antiphon.server.settings import Settings
from tests.http_client import DOORS, http_client, post_response, wait_until
from tests.run_server import run_server
from tests.server.streaming.test_event_stream import received, visiting

JSON = {"content-type": "application/json"}
BODY = json.dumps({"model": "demo", "input": "Hi!"}).encode()


def test_of_several_headers_with_one_name_the_first_is_read() -> None:
    scope = {"headers": ((b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2"))}
    assert [header(scope, name) for name in (b"a", b"b", b"c")] == ["1", "é", None]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("body", [b"", b"{", b"{}{}", b"{'model': 'demo'}", b"\xff\xfe", b'{"a": NaN}', b"[" * 1000])
def test_a_body_that_is_not_json_is_a_bad_request(server: str, door: str, body: bytes) -> None:
    with http_client(server) as http:
        answer = http.post(f"{door}/responses", content=body, headers=JSON)
    error = answer.json()["error"]
    type = "invalid_request" if door == "/v1" else "invalid_request_error"
    assert answer.status_code == 400
    assert error == {"message": error["message"], "type": type, "param": None, "code": "invalid_json"}
    assert error["message"].startswith("The body is not valid JSON: ")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
@pytest.mark.parametrize("door", DOORS)
def test_a_body_of_another_type_is_not_read(server: str, door: str, kind: str) -> None:
    with http_client(server) as http:
        answer = http.post(f"{door}/responses", content=BODY, headers={"content-type": kind})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (415, "unsupported_media_type", None)
    assert "Content-Type: application/json" in error["message"]


def test_a_body_without_a_type_is_not_read(server: str) -> None:
    with http_client(server) as http:
        assert http.post("/v1/responses", content=BODY).status_code == 415


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_variants_of_the_json_media_type_are_accepted(server: str, kind: str) -> None:
    with http_client(server) as http:
        answer = http.post("/v1/responses", content=BODY, headers={"content-type": kind})
    assert answer.status_code == 200


def test_a_body_in_pieces_is_put_together(server: str) -> None:
    with http_client(server) as http:
        pieces = (BODY[index : index + 5] for index in range(0, len(BODY), 5))
        assert http.post("/v1/responses", content=pieces, headers=JSON).status_code == 200


def test_a_compressed_body_is_rejected_clearly(server: str) -> None:
    with http_client(server) as http:
        headers = JSON | {"content-encoding": "gzip"}
        answer = http.post("/v1/responses", content=gzip.compress(BODY), headers=headers)
    assert answer.status_code in (400, 415)
    assert answer.json()["error"]["type"] == "invalid_request"


@pytest.fixture(scope="module")
def narrow() -> Iterator[str]:
    """Return the address of a server with a body limit of a hundred bytes."""
    with run_server(Settings(body_limit=100)) as address:
        yield address


def pieces(size: int) -> Iterator[bytes]:
    """Yield a body in chunks, so that it has no Content-Length."""
    for start in range(0, size, 10):
        yield b" " * min(10, size - start)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("body", [b" " * 101, b" " * 100_000])
def test_a_body_over_the_limit_is_rejected_by_its_length(narrow: str, door: str, body: bytes) -> None:
    with http_client(narrow) as http:
        answer = http.post(f"{door}/responses", content=body, headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "request_too_large")
    assert error["message"] == "The body is larger than 100 bytes. Send less, or files by URL."


@pytest.mark.parametrize("size", [101, 1000])
def test_a_body_over_the_limit_is_rejected_without_its_length(narrow: str, size: int) -> None:
    with http_client(narrow) as http:
        answer = http.post("/v1/responses", content=pieces(size), headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("known", [True, False])
def test_a_body_at_the_limit_is_read(narrow: str, known: bool) -> None:
    padded = BODY.ljust(100)
    with http_client(narrow) as http:
        body = padded if known else (bytes([byte]) for byte in padded)
        assert http.post("/v1/responses", content=body, headers=JSON).status_code == 200


class WatchedModel:
    """An agent that never ends by itself, and remembers what became of it."""

    def __init__(self, *, says: bool) -> None:
        self.started = threading.Event()
        self.stopped = threading.Event()
        self.says = says

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        """Say something or nothing, and wait."""
        if self.says:
            yield "Hello"
        self.started.set()
        try:
            await asyncio.sleep(120)
        finally:
            self.stopped.set()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("commit", [0.01, 60])
def test_a_disconnect_stops_the_agent(stream: bool, says: bool, commit: float) -> None:
    watched = WatchedModel(says=says)
    settings = Settings(agents=[agent("watched")(watched)], commit_seconds=commit)
    requested = {"model": "watched", "input": "Hi!", "stream": stream}
    with run_server(settings) as address:
        with visiting(address, requested) as connection:
            assert watched.started.wait(20)
            if stream and says:
                received(connection, b'"delta":"Hello"')
        assert watched.stopped.wait(1)
        assert post_response(address).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_the_agent_is_stopped_behind_the_middleware_of_others_too(stream: bool) -> None:
    watched = WatchedModel(says=True)
    outer = FastAPI()

    @outer.middleware("http")
    async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    outer.mount("/", create_app(Settings(agents=[agent("watched")(watched)])))
    requested = {"model": "watched", "input": "Hi!", "stream": stream}
    with run_server(outer) as address:
        with visiting(address, requested):
            assert watched.started.wait(20)
        assert watched.stopped.wait(1)


def test_a_threaded_agent_is_notified_of_a_disconnect() -> None:
    started, result = threading.Event(), threading.Event()

    @agent("blocking")
    def blocking(turn: Turn) -> str:
        started.set()
        wait_until(turn.cancelled.is_set)
        result.set()
        return "never heard"

    requested = {"model": "blocking", "input": "Hi!"}
    with run_server(Settings(agents=[blocking])) as address:
        with visiting(address, requested):
            assert started.wait(20)
        assert result.wait(1)


def test_a_disconnect_within_the_body_starts_no_model() -> None:
    started = threading.Event()

    @agent("eager")
    async def eager() -> str:
        started.set()
        return "Hello"

    with run_server(Settings(agents=[eager])) as address:
        body = {"model": "eager", "input": "Hi!"}
        with http_client(address) as http, pytest.raises(ZeroDivisionError):
            http.post("/v1/responses", content=_broken(json.dumps(body).encode()), headers=JSON)
        assert post_response(address).status_code == 200
        assert not started.is_set()


def _broken(body: bytes) -> Iterator[bytes]:
    yield body
    raise ZeroDivisionError


@pytest.mark.anyio
@pytest.mark.parametrize(("size", "in_loop"), [(1000, True), (300_000, False)])
async def test_a_large_body_is_parsed_and_converted_in_a_thread(size: int, in_loop: bool) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b'"%b"' % (b"x" * size), "more_body": False}

    def convert(value: object) -> tuple[object, bool]:
        return value, threading.current_thread() is threading.main_thread()

    scope = {"headers": [(b"content-type", b"application/json")]}
    assert await read_json(scope, receive, 2**20, convert) == ("x" * size, in_loop)
