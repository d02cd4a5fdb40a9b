"""The application's routes, served alone or mounted in another application."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi import Request as FastAPIRequest
from fastapi import Response as FastAPIResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from antiphon.agents.agent import agent
from antiphon.agents.demo import demo, echo
from antiphon.agents.turn import Turn
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from tests.http_client import DOORS, event_types, http_client, post_response, stream_events
from tests.run_server import run_server


@agent("my-agent")
async def my_agent(turn: Turn) -> AsyncIterator[str]:
    """Repeat the input."""
    yield turn.text


@my_agent.entry("loud")
async def loud(turn: Turn) -> AsyncIterator[str]:
    """Says it louder."""
    yield turn.text.upper()


@my_agent.entry("deep/er")
async def deeper(turn: Turn) -> AsyncIterator[str]:
    """Has a slash in its name."""
    yield f"deeper {turn.text}"


MODELS = ["demo", "echo", "my-agent", "my-agent/loud", "my-agent/deep/er"]
SETTINGS = Settings(agents=[my_agent])


def in_fastapi() -> Any:
    """Mount the application in a FastAPI application that has middleware of its own."""
    outer = FastAPI()

    @outer.middleware("http")
    async def sign(
        request: FastAPIRequest, call_next: Callable[[FastAPIRequest], Awaitable[FastAPIResponse]]
    ) -> FastAPIResponse:
        answer = await call_next(request)
        answer.headers["x-outer"] = "yes"
        return answer

    @outer.get("/own")
    async def own() -> dict[str, bool]:
        return {"own": True}

    outer.mount("/ai/models", create_app(SETTINGS))
    return outer


def in_starlette() -> Any:
    """Mount the application in a Starlette application."""
    return Starlette(routes=[Mount("/ai/models", create_app(SETTINGS))])


PLACES = {
    "alone": (lambda: create_app(SETTINGS), ""),
    "in FastAPI": (in_fastapi, "/ai/models"),
    "in Starlette": (in_starlette, "/ai/models"),
}


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of the application in each kind of outer application."""
    make, prefix = PLACES[request.param]
    with run_server(make()) as address:
        yield address + prefix


def describe(name: str, created: int) -> dict[str, Any]:
    """Return the entry of an agent's model in the list."""
    agent = {"demo": demo, "echo": echo}.get(name, my_agent)
    known = {
        "name": agent.name,
        "description": agent.describe(name.partition("/")[2] or "__entry__"),
        "entry_points": agent.models,
        "context_window": None,
        "framework": None,
        "metadata": {},
    }
    return {"id": name, "object": "model", "created": created, "owned_by": "antiphon", "antiphon:agent": known}


@pytest.mark.parametrize("door", DOORS)
def test_every_model_is_listed(place: str, door: str) -> None:
    with http_client(place) as http:
        answer = http.get(f"{door}/models")
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    created = body["data"][0]["created"]
    assert created > 1_700_000_000
    assert body == {"object": "list", "data": [describe(name, created) for name in MODELS]}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", MODELS)
def test_each_model_can_be_retrieved_and_used(place: str, door: str, name: str) -> None:
    with http_client(place) as http:
        body = http.get(f"{door}/models/{name}").json()
        quoted = http.get(f"{door}/models/{name.replace('/', '%2F')}").json()
    assert body == quoted
    assert body == describe(name, body["created"])
    assert post_response(place, door, model=name).status_code == 200


def test_an_entry_is_called_by_its_name(place: str) -> None:
    output = {name: _text(post_response(place, model=name).json()) for name in MODELS if "agent" in name}
    assert output == {"my-agent": "Hi!", "my-agent/loud": "HI!", "my-agent/deep/er": "deeper Hi!"}


def _text(response: dict[str, Any]) -> str:
    return response["output"][0]["content"][0]["text"]


@pytest.mark.parametrize("name", ["gpt-9", "demo/none", "my-agent/", ""])
def test_a_model_that_does_not_exist_is_not_found(place: str, name: str) -> None:
    error = {"param": None, "code": "model_not_found"}
    with http_client(place) as http:
        spec, openai = (http.get(f"{door}/models/{name}") for door in ("/v1", "/openai/v1"))
    meant = {"demo/none": " Did you mean 'demo'?", "my-agent/": " Did you mean 'my-agent'?"}.get(name, "")
    for answer, kind, detail in (
        (spec, "not_found", {}),
        (openai, "invalid_request_error", {"detail": "model not found"}),
    ):
        # A path of the door that the client used, also in a mounted application.
        models = answer.url.path.removesuffix(f"/{name}")
        message = f"The model '{name}' does not exist.{meant} GET {models} lists those that do."
        assert (answer.status_code, answer.json()) == (
            404,
            {"error": error | {"message": message, "type": kind}} | detail,
        )


def test_the_health_check_responds(place: str) -> None:
    with http_client(place) as http:
        answers = [http.get(path) for path in ("/healthz", "/readyz")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json() for answer in answers] == [{"status": "ok"}, {"status": "ready"}]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/models", "/openai/models/demo"])
def test_a_head_is_an_answer_without_its_body(place: str, path: str) -> None:
    with http_client(place) as http:
        head, whole = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))


CREATE = " Create responses with POST {}/v1/responses."


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/", CREATE),
        ("/v1", CREATE),
        ("/v1/", CREATE),
        ("/v1/nothing", CREATE),
        ("/v1/responses/", " Did you mean '{}/v1/responses'?"),
        ("/v1/respones", " Did you mean '{}/v1/responses'?"),
        ("/healthz/", " Did you mean '{}/healthz'?"),
        ("/v1/v1/responses", " Your base URL already ends in /v1: use {}/v1/responses."),
        ("/v1/v1/v1/models/demo", " Your base URL already ends in /v1: use {}/v1/models/demo."),
        ("/responses", " Your base URL has to end in /v1: use {}/v1/responses."),
        ("/responses/resp_1", " Your base URL has to end in /v1: use {}/v1/responses/resp_1."),
        (
            "/v1/completions",
            " Text completions are not supported: use POST {}/v1/chat/completions or POST {}/v1/responses.",
        ),
        ("/v1/messages", " The Messages API is not supported: use POST {}/v1/responses."),
        ("/v1/threads/t_1/runs", " The Assistants API is not supported: use POST {}/v1/responses."),
        ("/v1/embeddings", " This server has no embeddings: call the provider's own API."),
        ("/v1/vector_stores/vs_1/files", " This server has no vector stores: call the provider's own API."),
        ("/v1/images/generations", " This server has no images: call the provider's own API."),
    ],
)
def test_an_unknown_path_is_not_found(place: str, path: str, advice: str) -> None:
    with http_client(place) as http:
        answer = http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
    error = answer.json()["error"]
    assert error == {"message": error["message"], "type": "not_found", "param": None, "code": "not_found"}
    root = answer.url.path.removesuffix(path)
    assert error["message"] == f"There is nothing at {root}{path}.{advice.replace('{}', root)}"


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/openai/v1/v1/responses", "Your base URL already ends in /openai/v1: use {}/openai/v1/responses."),
        ("/openai/openai/models", "Your base URL already ends in /openai: use {}/openai/models."),
        ("/openai/chat/completion", "Did you mean '{}/openai/chat/completions'?"),
        ("/openai/v1/xyz", "Create responses with POST {}/openai/v1/responses."),
    ],
)
def test_advice_uses_the_door_of_the_client(place: str, path: str, advice: str) -> None:
    with http_client(place) as http:
        answer = http.get(path)
    root = answer.url.path.removesuffix(path)
    assert answer.json()["error"]["message"].endswith(f" {advice.format(root)}")


@pytest.mark.parametrize("path", ["/openai/nothing", "/openai/v1/nothing"])
def test_an_unknown_path_at_openais_door_has_openais_error_format(place: str, path: str) -> None:
    with http_client(place) as http:
        answer = http.get(path)
    error = answer.json()["error"]
    assert answer.status_code == 404
    assert answer.json() == {"error": error, "detail": error["message"]}
    assert (error["type"], error["code"]) == ("invalid_request_error", "not_found")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/chat/completions", {"POST"}),
        ("HEAD", "/chat/completions", {"POST"}),
        ("OPTIONS", "/responses", {"GET", "HEAD", "POST"}),
        ("PUT", "/responses", {"GET", "HEAD", "POST"}),
        ("POST", "/models", {"GET", "HEAD"}),
        ("DELETE", "/models/demo", {"GET", "HEAD"}),
    ],
)
def test_a_405_lists_the_allowed_methods(place: str, door: str, method: str, path: str, allowed: set[str]) -> None:
    with http_client(place) as http:
        answer = http.request(method, f"{door}{path}")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    if method != "HEAD":
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("method_not_allowed", None)
        assert error["message"].startswith(f"{method} is not supported here. Use ")


@pytest.mark.parametrize("door", DOORS)
def test_a_mounted_application_creates_streams_and_rejects(place: str, door: str) -> None:
    assert _text(post_response(place, door, model="my-agent").json()) == "Hi!"
    assert event_types(stream_events(place, door))[-1] == "response.completed"
    refused = post_response(place, door, model="gpt-9", stream=True)
    assert refused.status_code == (404 if door == "/v1" else 400)
    assert ("detail" in refused.json()) == (door != "/v1")
    assert post_response(place, door, temperature="hot").json()["error"]["param"] == "temperature"
    failed = event_types(stream_events(place, door, input="FAIL"))
    assert failed[-1] == "response.failed"
    assert ("error" in failed) == (door == "/v1")


def test_an_outer_application_keeps_its_paths() -> None:
    with run_server(in_fastapi()) as address, http_client(address) as http:
        assert http.get("/own").json() == {"own": True}
        assert http.get("/ai/models/v1/models").headers["x-outer"] == "yes"
        assert http.get("/v1/models").json() == {"detail": "Not Found"}


def test_a_users_route_takes_precedence() -> None:
    def mine(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["rest"])

    app = create_app()
    app.router.routes.insert(0, Route("/v1/{rest:path}", mine, methods=["POST"]))
    with run_server(app) as address, http_client(address) as http:
        for _ in range(2):
            assert http.post("/v1/responses", json={}).text == "responses"
            assert post_response(address, "/openai").status_code == 200


@pytest.mark.parametrize("path", ["/v1/responses/{id}/cancel", "/v1/responses/resp_1/cancel"])
def test_a_path_that_looks_like_a_pattern_is_a_path_like_any_other(place: str, path: str) -> None:
    with http_client(place) as http:
        for _ in range(2):
            answer = http.post(path)
            assert (answer.status_code, answer.json()["error"]["param"]) == (404, "response_id")


def test_demo_models_can_be_turned_off() -> None:
    with run_server(Settings(agents=[my_agent], demo=False)) as address, http_client(address) as http:
        names = [model["id"] for model in http.get("/v1/models").json()["data"]]
        assert names == MODELS[2:]
        assert post_response(address, model="demo").status_code == 404


def test_a_users_agent_overrides_a_built_in_one() -> None:
    @agent("demo")
    async def other() -> str:
        return "mine"

    with run_server(Settings(agents=[other])) as address:
        assert _text(post_response(address, model="demo").json()) == "mine"


@pytest.mark.anyio
async def test_the_application_needs_no_lifespan() -> None:
    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": "/healthz", "query_string": b"", "headers": []}

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await create_app()(scope, receive, send)
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"status":"ok"}')


@pytest.mark.parametrize("path", ["/v1/responses", "/openai/chat/completions", "/v1/conversations", "/hashbrown/chat"])
def test_a_repeated_key_is_rejected_by_name_at_every_door(place: str, path: str) -> None:
    with http_client(place) as http:
        body = '{"model": "demo", "metadata": {"a": "1", "a": "2"}, "input": "Hi!"}'
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"]) == (
        400,
        "invalid_json",
        "a",
    )
    assert "An object has the key 'a' twice." in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": [{"role": "user", "content": ["?"]}]}, "input[0].content[0].image_url"),
        ("/v1/conversations", {"items": [{"role": "user", "content": ["?"]}]}, "items[0].content[0].image_url"),
    ],
)
def test_an_image_without_a_usable_source_is_rejected(place: str, path: str, body: Any, param: str) -> None:
    next(iter(body.values()))[0]["content"] = [{"type": "input_image", "image_url": "file:///etc/passwd"}]
    with http_client(place) as http:
        error = http.post(path, json={"model": "demo", **body}).json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
