"""Cross-origin requests: which pages may use the server, on every door, in every kind of response."""

import logging
from collections.abc import Callable, Iterator

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.applications import Starlette

from antiphon import Antiphon
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.settings import Settings
from tests.http_client import http_client
from tests.run_server import run_server

PAGE = "https://app.example"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
POST_PATHS = ["/v1/responses", "/openai/v1/responses", "/openai/responses", "/v1/chat/completions", "/hashbrown/chat"]
PATHS = [*POST_PATHS, "/v1/models", "/v1/conversations", "/v1/responses/x", "/hashbrown/threads", "/healthz"]
KEY = {"authorization": "Bearer sk-secret"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """Serve with a key, and one page allowed."""
    settings = Settings(api_key="sk-secret", allowed_origins=[PAGE, "http://localhost:5173"], responses_dir=None)
    with run_server(settings) as address:
        yield address


def request(address: str, method: str, path: str, headers: dict[str, str], **options: object) -> httpx.Response:
    """Send a request."""
    with http_client(address) as http:
        return http.request(method, path, headers=headers, **options)  # pyright: ignore[reportArgumentType]


def cors_headers(response: httpx.Response) -> dict[str, str]:
    """Return the headers about origins."""
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize("path", PATHS)
def test_a_preflight_of_an_allowed_page_is_granted_without_a_key(guarded: str, path: str) -> None:
    response = request(guarded, "OPTIONS", path, PREFLIGHT)
    assert (response.status_code, response.content) == (204, b"")
    assert cors_headers(response) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": "authorization,content-type,x-stainless-lang",
        "access-control-max-age": "7200",
        "access-control-expose-headers": "x-request-id, retry-after, retry-after-ms",
    }
    assert set(response.headers.get_list("vary")) == {"Origin", "Access-Control-Request-Headers"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        pytest.param("POST", "/hashbrown/chat", {}, {}, 401, id="no key"),
        pytest.param("GET", "/v1/nothing", KEY, None, 404, id="an unknown path"),
        pytest.param("GET", "/hashbrown/chat", KEY, None, 405, id="a wrong method"),
        pytest.param("POST", "/v1/responses", KEY, {}, 400, id="an invalid request"),
        pytest.param("POST", "/v1/responses", KEY, {"model": "demo", "input": "Hi"}, 200, id="a response"),
        pytest.param(
            "POST", "/v1/responses", KEY, {"model": "demo", "input": "Hi", "stream": True}, 200, id="a stream"
        ),
        pytest.param(
            "POST",
            "/hashbrown/chat",
            KEY,
            {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]},
            200,
            id="frames",
        ),
        pytest.param("GET", "/healthz", {}, None, 200, id="health"),
    ],
)
def test_every_kind_of_response_tells_that_the_page_may_read_it(
    guarded: str, method: str, path: str, headers: dict[str, str], body: object, status: int
) -> None:
    response = request(guarded, method, path, {"origin": PAGE, **headers}, json=body)
    assert response.status_code == status
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "x-request-id" in response.headers["access-control-expose-headers"]
    assert "Origin" in response.headers.get_list("vary")


def test_a_stopping_server_says_so_to_the_page() -> None:
    settings = Settings(allowed_origins=[PAGE], total_body_limit=10, responses_dir=None)
    with run_server(settings) as address:
        response = request(address, "POST", "/v1/responses", {"origin": PAGE}, json={"model": "demo", "input": "Hello"})
    assert response.status_code == 503
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "retry-after" in response.headers["access-control-expose-headers"]


def test_a_request_that_no_application_sees_has_the_headers_too() -> None:
    settings = Settings(allowed_origins=[PAGE], max_connections=1, responses_dir=None)
    with run_server(settings, connections=settings) as address, http_client(address) as first:
        assert first.get("/healthz").status_code == 200
        response = request(address, "GET", "/v1/models", {"origin": PAGE})
    assert response.status_code == 503
    assert response.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", ["https://app.example.evil", "http://app.example", "https://app.example:1", "null"])
def test_other_pages_get_no_permission(guarded: str, origin: str) -> None:
    preflight = request(guarded, "OPTIONS", "/v1/responses", PREFLIGHT | {"origin": origin})
    assert preflight.status_code in (401, 405)
    response = request(guarded, "GET", "/v1/models", KEY | {"origin": origin})
    assert response.status_code == 200
    for answer in (preflight, response):
        assert cors_headers(answer) == {}
        assert "Origin" in answer.headers.get_list("vary")


def test_without_configuration_there_is_no_header_at_all(server: str) -> None:
    for response in (
        request(server, "OPTIONS", "/v1/responses", PREFLIGHT),
        request(server, "GET", "/v1/models", {"origin": PAGE}),
    ):
        assert cors_headers(response) == {}
        assert "vary" not in response.headers


def test_a_refused_preflight_logs_the_line_to_add_once(guarded: str, caplog: pytest.LogCaptureFixture) -> None:
    origin = "http://localhost:3000"
    with caplog.at_level(logging.WARNING, "antiphon.server"):
        for _ in range(3):
            request(guarded, "OPTIONS", "/v1/responses", PREFLIGHT | {"origin": origin})
            request(guarded, "OPTIONS", "/v1/responses", PREFLIGHT | {"origin": 'https://a"\\x'})
    logged = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
    assert logged == [
        f"a web page of {origin} was refused. To allow it: "
        f'allowed_origins = ["{origin}"] below [server] in antiphon.toml, or --allow-origin {origin}'
    ]


def test_any_page_may_use_a_server_with_a_key_that_allows_all() -> None:
    with run_server(Settings(api_key="sk-secret", allowed_origins=["*"], responses_dir=None)) as address:
        response = request(address, "GET", "/v1/models", KEY | {"origin": "https://any.example"})
        assert response.headers["access-control-allow-origin"] == "https://any.example"
        assert request(address, "GET", "/v1/models", {"origin": "https://any.example"}).status_code == 401


@pytest.mark.parametrize(
    ("origin", "reason"),
    [
        ("*", "would let every page"),
        ("https://app.example/", "is not an origin"),
        ("app.example", "is not an origin"),
        ("null", "is not an origin"),
        ("", "is not an origin"),
    ],
)
def test_what_cannot_be_allowed_is_rejected(origin: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason) as caught:
        Settings(allowed_origins=["http://localhost:5173", origin])
    assert caught.value.path == "allowed_origins[1]"


def refuse() -> None:
    """Refuse every request."""
    raise HTTPException(401)


@pytest.mark.parametrize("outer", [Starlette, FastAPI, lambda: FastAPI(dependencies=[Depends(refuse)])])
def test_endpoints_in_another_application_answer_preflights(outer: Callable[[], Starlette]) -> None:
    app = outer()
    Antiphon(allowed_origins=[PAGE], responses_dir=None).adapt(app, "/ai")
    with run_server(app) as address:
        granted = request(address, "OPTIONS", "/ai/hashbrown/chat", PREFLIGHT)
        other = request(address, "OPTIONS", "/ai/hashbrown/chat", PREFLIGHT | {"origin": "https://other.example"})
    assert (granted.status_code, granted.headers["access-control-allow-origin"]) == (204, PAGE)
    assert "access-control-allow-origin" not in other.headers
