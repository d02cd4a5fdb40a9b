"""The OpenAPI document: valid, complete, and true of what the server sends."""

import re
from typing import Any, cast

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route, WebSocketRoute

from antiphon.server.app import DOORS, create_app
from tests.http_client import http_client, parse_stream
from tests.server.openapi.checks import DOCUMENT, check_answer, check_component, check_events, validator_of
from tests.server.stateful_server import call, create_response

PAGE = {"/openapi.json", "/docs", "/docs/docs.css", "/docs/docs.js"}
TOOL = {"type": "function", "name": "ping", "parameters": {"type": "object"}}
BODIES: list[dict[str, Any]] = [
    {"model": "demo", "input": "Hi!", "user": "me", "metadata": {"a": "b"}},
    {"model": "demo", "input": "Hi!", "reasoning": {"effort": "low", "summary": "auto"}},
    {"model": "demo", "input": [{"role": "user", "content": "ping"}], "tools": [TOOL, {"type": "web_search"}]},
    {"model": "demo", "input": "Hi!", "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high"}},
    {"model": "demo", "input": "Hi!", "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    {"model": "counter", "input": "3 cut", "stop": "x"},
    {"model": "counter", "input": "3", "background": True},
]


def test_the_document_is_valid() -> None:
    OpenAPIV31SpecValidator(cast("Any", DOCUMENT)).validate()
    ids = [one["operationId"] for path in DOCUMENT["paths"].values() for name, one in path.items() if name[:2] != "x-"]
    assert len(ids) == len(set(ids))


def test_every_route_is_in_the_document() -> None:
    described = {
        (name.upper(), path) for path, item in DOCUMENT["paths"].items() for name in item if not name.startswith("x-")
    }
    sockets = {path for path, item in DOCUMENT["paths"].items() if "x-websocket" in item}
    routes: set[tuple[str, str]] = set()
    socket_routes: set[str] = set()
    for route in create_app().routes:
        if isinstance(route, WebSocketRoute):
            socket_routes.add(route.path)
        elif isinstance(route, Route) and route.path not in PAGE:
            path = re.sub(r":\w+}", "}", route.path)
            routes |= {(method, path) for method in (route.methods or set()) - {"HEAD"}}
    assert routes == described, "describe a new endpoint in server/openapi/operations.py"
    assert socket_routes == sockets


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body["input"])[:20])
def test_responses_and_their_events_are_as_described(server_url: str, door: str, body: dict[str, Any]) -> None:
    path = f"{door}/responses"
    check_component("Request", body)
    answer = call(server_url, "POST", path, json=body)
    check_answer("POST", path, answer.status_code, answer.json())
    stored = call(server_url, "GET", f"{path}/{answer.json()['id']}")
    check_answer("GET", f"{path}/{{id}}", stored.status_code, stored.json())
    streamed = call(server_url, "POST", path, json=body | {"stream": True})
    check_events("POST", path, parse_stream(streamed.text))
    items = call(server_url, "GET", f"{path}/{answer.json()['id']}/input_items")
    check_answer("GET", f"{path}/{{id}}/input_items", items.status_code, items.json())


@pytest.mark.parametrize("door", DOORS)
def test_all_other_answers_are_as_described(server_url: str, door: str) -> None:
    id = create_response(server_url, "counter", "1", door)["id"]
    create_response(server_url, "endless", "x", door, background=True)
    new = {"items": [{"role": "user", "content": "Hi!", "id": "msg_1"}], "metadata": {"a": "b"}}
    conversation = call(server_url, "POST", f"{door}/conversations", json=new).json()["id"]
    more = {"items": [{"role": "assistant", "content": "Hello!"}]}
    simple = {"model": "demo", "input": "Hi!"}
    chat = {"model": "demo", "messages": [{"role": "user", "content": "Hi!"}]}
    calls: list[tuple[str, str, str, Any]] = [
        ("GET", "/responses", "/responses?limit=2", None),
        ("GET", "/responses", "/responses?limit=0", None),
        ("POST", "/responses", "/responses", {"model": "counter", "input": "2 broken"}),
        ("POST", "/responses", "/responses", {"model": "nothing", "input": "Hi!"}),
        ("POST", "/responses/{id}/cancel", f"/responses/{id}/cancel", None),
        ("POST", "/responses/input_tokens", "/responses/input_tokens", simple),
        ("POST", "/responses/compact", "/responses/compact", simple),
        ("DELETE", "/responses/{id}", f"/responses/{id}", None),
        ("GET", "/responses/{id}", f"/responses/{id}", None),
        ("POST", "/chat/completions", "/chat/completions", chat),
        ("GET", "/conversations", "/conversations", None),
        ("POST", "/conversations", "/conversations", new),
        ("GET", "/conversations/{id}", f"/conversations/{conversation}", None),
        ("POST", "/conversations/{id}", f"/conversations/{conversation}", {"metadata": {"c": "d"}}),
        ("GET", "/conversations/{id}/items", f"/conversations/{conversation}/items", None),
        ("POST", "/conversations/{id}/items", f"/conversations/{conversation}/items", more),
        ("GET", "/conversations/{id}/items/{item_id}", f"/conversations/{conversation}/items/msg_1", None),
        ("DELETE", "/conversations/{id}/items/{item_id}", f"/conversations/{conversation}/items/msg_1", None),
        ("DELETE", "/conversations/{id}", f"/conversations/{conversation}", None),
        ("GET", "/models", "/models", None),
        ("GET", "/models/{id}", "/models/demo", None),
        ("GET", "/models/{id}", "/models/counter", None),
    ]
    for method, template, path, body in calls:
        answer = call(server_url, method, door + path, **({} if body is None else {"json": body}))
        check_answer(method, door + template, answer.status_code, answer.json())
        if body is not None and answer.status_code == 200:
            schema = DOCUMENT["paths"][door + template][method.lower()]["requestBody"]["content"]["application/json"]
            validator_of(schema["schema"]).validate(body)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/hashbrown/threads"])
def test_answers_without_a_door_are_as_described(server_url: str, path: str) -> None:
    answer = call(server_url, "GET", path)
    check_answer("GET", path, answer.status_code, answer.json())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Response", {"id": "resp_1"}),
        ("Request", {"model": "m", "temperature": 3}),
        ("Message", {"type": "message", "role": "user"}),
        ("ExtensionItem", {"type": "unknown"}),
        ("OutputTextDelta", {"type": "response.output_text.done"}),
        ("ErrorBody", {"error": "text"}),
    ],
)
def test_a_value_that_is_wrong_is_not_as_described(name: str, value: object) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        check_component(name, value)


def test_the_document_is_served_without_a_key(server_url: str) -> None:
    with http_client(server_url) as http:
        answer = http.get("/openapi.json")
    assert answer.json()["paths"] == DOCUMENT["paths"]
    assert answer.json()["servers"] == [{"url": "/"}]
