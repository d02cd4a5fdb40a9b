"""Antiphon as a part of another application, with real servers and Starlette's test client."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Header, HTTPException, Response
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from websockets.exceptions import InvalidStatus

from antiphon import Agent, Antiphon, Settings, Turn, agent
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.service import find_service
from tests.http_client import DOORS, event_types, http_client, parse_stream, post_response, stream_events, wait_until
from tests.run_server import run_server
from tests.server.gated_model import GatedModel
from tests.ws_client import response_text, ws_client


@agent("parrot")
async def parrot(turn: Turn) -> AsyncIterator[str]:
    """Repeat the input."""
    yield turn.text


def build_ours() -> Antiphon:
    """Return an application that stores responses in memory."""
    return Antiphon(agents=[parrot], responses_dir=None)


OWN_PATHS = ["/own", "/v1/customers", "/v1/responses/by-customer/7", "/healthz", "/openai", "/ai/v1/customers"]


def in_fastapi(prefix: str) -> FastAPI:
    """Return an application with middleware and own routes, some of them added before and some after."""
    app = FastAPI()

    @app.middleware("http")
    async def sign(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers["x-outer"] = "yes"
        return response

    def own(request: Request) -> str:
        return request.url.path

    for path in OWN_PATHS[::2]:
        app.get(path)(own)
    build_ours().adapt(app, prefix)
    for path in OWN_PATHS[1::2]:
        app.get(path)(own)
    return app


def in_starlette(prefix: str) -> Starlette:
    """Return an application with middleware and own routes, some of them added before and some after."""

    async def sign(request: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        response = await call_next(request)
        response.headers["x-outer"] = "yes"
        return response

    def own(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f'"{request.url.path}"')

    app = Starlette(
        routes=[Route(path, own) for path in OWN_PATHS[::2]], middleware=[Middleware(BaseHTTPMiddleware, dispatch=sign)]
    )
    build_ours().adapt(app, prefix)
    app.router.routes += [Route(path, own) for path in OWN_PATHS[1::2]]
    return app


@pytest.fixture(scope="module", params=[(in_fastapi, ""), (in_fastapi, "/ai/models/"), (in_starlette, "/ai")])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Give the address of an application, and our prefix in it."""
    build, prefix = request.param
    with run_server(build(prefix)) as address:
        yield address, prefix.rstrip("/")


@pytest.mark.parametrize("door", DOORS)
def test_every_endpoint_works_in_the_application(place: tuple[str, str], door: str) -> None:
    base = "".join(place)
    created = post_response(base, door, model="parrot")
    assert (created.json()["output"][0]["content"][0]["text"], created.headers["x-outer"]) == ("Hi!", "yes")
    assert event_types(stream_events(base, door, model="parrot"))[-1] == "response.completed"
    url = f"{base}{door}/responses/{created.json()['id']}"
    assert httpx.get(url, trust_env=False).json() == created.json()
    assert httpx.get(f"{url}/input_items", trust_env=False).json()["data"][0]["content"][0]["text"] == "Hi!"
    assert httpx.delete(url, trust_env=False).json()["deleted"] is True
    with http_client(base) as http:
        assert [model["id"] for model in http.get(f"{door}/models").json()["data"]] == ["demo", "echo", "parrot"]
        assert http.get(f"{door}/models/parrot").json()["id"] == "parrot"
        chat = {"model": "parrot", "messages": [{"role": "user", "content": "Ah."}]}
        answer = http.post(f"{door}/chat/completions", json=chat).json()
    assert answer["choices"][0]["message"]["content"] == "Ah."
    with ws_client(base, door) as ws:
        assert response_text(ws.completed_response(model="parrot")) == "Hi!"


def test_an_error_names_paths_as_the_client_writes_them(place: tuple[str, str]) -> None:
    refused = post_response("".join(place), model="nothing")
    models = f"{place[1]}/v1/models"
    assert (
        refused.json()["error"]["message"] == f"The model 'nothing' does not exist. GET {models} lists those that do."
    )


@pytest.mark.parametrize("path", OWN_PATHS)
def test_the_applications_own_routes_keep_working(place: tuple[str, str], path: str) -> None:
    with http_client(place[0]) as http:
        assert http.get(path).json() == path


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1", "/ai/v1/nothing", "/readyz", "/ai/readyz"])
def test_other_paths_are_left_to_the_application(place: tuple[str, str], path: str) -> None:
    with http_client(place[0]) as http:
        answer = http.get(path)
    assert (answer.status_code, answer.text) in [(404, '{"detail":"Not Found"}'), (404, "Not Found")]


def test_the_dependencies_of_a_fastapi_application_apply() -> None:
    done: list[str] = []

    def check_token(tasks: BackgroundTasks, x_token: str = Header("")) -> None:
        if x_token != "open":
            raise HTTPException(401, "no token")
        tasks.add_task(done.append, "task")

    def check_websocket(x_token: str = Header("")) -> None:
        if x_token != "open":
            raise HTTPException(401, "no token")

    app = FastAPI(dependencies=[Depends(check_token)])
    build_ours().adapt(app)
    guarded = FastAPI(dependencies=[Depends(check_websocket)])
    build_ours().adapt(guarded)
    with run_server(app) as address, http_client(address) as http:
        body = {"model": "parrot", "input": "Hi!", "stream": True}
        refused = http.post("/v1/responses", json=body)
        assert (refused.status_code, refused.json(), done) == (401, {"detail": "no token"}, [])
        allowed = http.post("/v1/responses", json=body, headers={"x-token": "open"})
        assert event_types(parse_stream(allowed.text))[-1] == "response.completed"
        wait_until(lambda: done == ["task"])
    with run_server(guarded) as address:
        with pytest.raises(InvalidStatus), ws_client(address):
            pass
        with ws_client(address, additional_headers={"x-token": "open"}) as ws:
            assert response_text(ws.completed_response(model="parrot")) == "Hi!"


@pytest.mark.filterwarnings("ignore:The `root_path` parameter is deprecated")
@pytest.mark.parametrize("requested", ["", "/proxy"])
def test_an_application_behind_the_prefix_of_a_proxy_has_its_endpoints(requested: str) -> None:
    app = FastAPI(root_path="/proxy")
    build_ours().adapt(app, "/ai")
    with run_server(app) as address:
        assert post_response(address, f"{requested}/ai/v1", model="parrot").status_code == 200
        refused = post_response(address, f"{requested}/ai/v1", model="nothing")
    assert " GET /proxy/ai/v1/models lists " in refused.json()["error"]["message"]


def test_a_key_protects_the_endpoints_and_not_the_application() -> None:
    app = FastAPI()
    Antiphon(agents=[parrot], responses_dir=None, api_key="secret").adapt(app)
    app.get("/own")(lambda: "own")
    with run_server(app) as address, http_client(address) as http:
        assert http.get("/own").json() == "own"
        assert http.get("/v1/models").status_code == 401
        assert http.get("/v1/models", headers={"authorization": "Bearer secret"}).status_code == 200


class Resource:
    """What the lifespan of an application opens for its agents."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[dict[str, str]]:
        """Be open while the application runs."""
        self.events.append("opened")
        yield {"name": "resource"}
        self.events.append("closed")

    @property
    def agent(self) -> Agent:
        """An agent that uses the resource for a while."""

        @agent("user")
        async def user(turn: Turn) -> AsyncIterator[str]:
            yield self.events[-1]
            await asyncio.sleep(0.2)
            self.events.append("used")
            yield self.events[-1]

        return user


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
def test_responses_are_drained_before_the_applications_own_lifespan_ends(
    kind: Callable[..., Starlette], tmp_path: Path
) -> None:
    resource, id = Resource(), ""
    app = kind(lifespan=resource.lifespan)
    app.router.add_route("/own", lambda request: PlainTextResponse(request.state.name))
    ours = Antiphon(agents=[resource.agent], responses_dir=tmp_path)
    ours.adapt(app)
    body = {"model": "user", "input": "Hi!"}
    # An application may be started more than once.
    for _ in range(2):
        resource.events.clear()
        with TestClient(app) as http:
            assert http.get("/own").text == "resource"
            id = http.post("/v1/responses", json=body | {"background": True}).json()["id"]
        assert resource.events == ["opened", "used", "closed"]
    with TestClient(app) as http:
        answer = http.get(f"/v1/responses/{id}").json()
    assert (answer["status"], answer["output"][0]["content"][0]["text"]) == ("completed", "openedused")


@pytest.mark.parametrize("mounted", [False, True])
def test_responses_are_drained_when_the_server_stops(mounted: bool, tmp_path: Path, gate: GatedModel) -> None:
    ours = Antiphon(agents=[gate.agent], responses_dir=tmp_path)
    app = FastAPI(lifespan=ours.lifespan if mounted else None)
    app.mount("/ai", ours) if mounted else ours.adapt(app, "/ai")
    service = find_service(app)
    assert service

    def release_when_draining() -> None:
        wait_until(lambda: service.draining)
        gate.release.set()

    releasing = threading.Thread(target=release_when_draining)
    with run_server(app) as address:
        id = post_response(address, "/ai/v1", model="gate", background=True).json()["id"]
        wait_until(lambda: gate.running == 1)
        releasing.start()
    releasing.join()
    with run_server(Settings(agents=[gate.agent], responses_dir=tmp_path)) as address, http_client(address) as http:
        assert http.get(f"/v1/responses/{id}").json()["status"] == "completed"


def test_it_is_an_application_of_its_own() -> None:
    with run_server(build_ours()) as address, http_client(address) as http:
        assert post_response(address, model="parrot").status_code == 200
        assert http.get("/readyz").json() == {"status": "ready"}
        assert http.get("/v1/nothing").json()["error"]["code"] == "not_found"


def test_the_settings_of_a_configuration_make_one(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[models]\nfast = "demo"\n')
    ours = Antiphon.from_config(tmp_path / "antiphon.toml", agents=[parrot])
    assert isinstance(ours, Antiphon)
    assert (ours.aliases, ours.agent_models) == ({"fast": ["demo"]}, ["demo", "echo", "parrot"])


def test_a_prefix_begins_with_a_slash() -> None:
    with pytest.raises(InvalidValueError, match=r"prefix: 'ai' does not begin with a slash. Write '/ai'."):
        build_ours().adapt(FastAPI(), "ai")


def test_an_applications_own_service_is_not_taken_for_ours() -> None:
    app, ours = FastAPI(), build_ours()
    app.state.service = "own"
    assert find_service(app) is None
    ours.adapt(app)
    assert find_service(app) is ours.state.service
    assert app.state.service == "own"
