"""Conversations and their items at every door, in memory and in SQLite."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from antiphon.server.settings import Settings
from tests.http_client import DOORS, http_client
from tests.run_server import run_server

ID = "conv_" + "0" * 48
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"Oslo"}',
    "status": "completed",
}
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "developer", "content": "Be kind."},
    {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, IMAGE]},
    CALL,
    {"type": "function_call_output", "call_id": "call_1", "output": "Rain."},
    {"type": "function_call_output", "call_id": "call_1", "output": [IMAGE]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "?"}},
    {"type": "acme:note", "id": "note 1", "mood": ["good"]},
    {"role": "assistant", "content": "A picture.", "id": "msg_mine", "phase": "final_answer"},
]


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve with each store in turn."""
    folder: Path | None = None
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("responses")
    with run_server(Settings(responses_dir=folder)) as address:
        yield address


@pytest.fixture(params=DOORS)
def http(request: pytest.FixtureRequest, address: str) -> Iterator[httpx.Client]:
    """Give a client at each door in turn."""
    with http_client(address + request.param) as http:
        yield http


def make(http: httpx.Client, *texts: str, **body: object) -> str:
    """Create a conversation with some user messages; return its id."""
    items = [{"role": "user", "content": text, "id": text} for text in texts]
    answer = http.post("/conversations", json={"items": items, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    """Return an error's status, code and param."""
    error = answer.json()["error"]
    assert error["message"].endswith(".")
    return answer.status_code, error["code"], error["param"]


def test_a_conversation_is_created_read_updated_and_deleted(http: httpx.Client) -> None:
    made = http.post("/conversations", json={"metadata": {"topic": "weather"}}).json()
    id = made["id"]
    assert re.fullmatch("conv_[0-9a-f]{48}", id)
    assert made == {
        "id": id,
        "object": "conversation",
        "created_at": made["created_at"],
        "metadata": {"topic": "weather"},
    }
    assert http.get(f"/conversations/{id}").json() == made
    for metadata in ({"topic": "love", "mood": "🎵"}, None):
        changed = http.post(f"/conversations/{id}", json={"metadata": metadata})
        assert changed.json() == {**made, "metadata": metadata or {}}
        assert http.get(f"/conversations/{id}").json() == changed.json()
    gone = http.delete(f"/conversations/{id}")
    assert gone.json() == {"id": id, "object": "conversation.deleted", "deleted": True}
    for answer in (
        http.get(f"/conversations/{id}"),
        http.delete(f"/conversations/{id}"),
        http.get(f"/conversations/{id}/items"),
    ):
        assert error_of(answer) == (404, "conversation_not_found", "conversation_id")


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"items":null,"metadata":null}', b'{"items":[]}'])
def test_a_conversation_may_start_empty(http: httpx.Client, body: bytes | None) -> None:
    headers = {} if body is None else {"content-type": "application/json"}
    made = http.post("/conversations", content=body, headers=headers)
    assert (made.status_code, made.json()["metadata"]) == (200, {})
    items = http.get(f"/conversations/{made.json()['id']}/items").json()
    assert items == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


BAD_METADATA = {
    "a list": ([], "metadata"),
    "a number": ({"n": 1}, "metadata.n"),
    "a long key": ({"k" * 65: "v"}, f"metadata.{'k' * 65}"),
    "a long value": ({"k": "v" * 513}, "metadata.k"),
    "too many": ({f"k{n}": "v" for n in range(17)}, "metadata"),
}


@pytest.mark.parametrize("name", BAD_METADATA)
def test_metadata_has_its_limits(http: httpx.Client, name: str) -> None:
    metadata, param = BAD_METADATA[name]
    body = {"metadata": metadata}
    assert error_of(http.post("/conversations", json=body)) == (400, "invalid_value", param)
    id = make(http, metadata={"kept": "yes"})
    assert error_of(http.post(f"/conversations/{id}", json=body)) == (400, "invalid_value", param)
    assert http.get(f"/conversations/{id}").json()["metadata"] == {"kept": "yes"}


def test_an_update_without_metadata_is_rejected(http: httpx.Client) -> None:
    missing = http.post(f"/conversations/{make(http)}", json={})
    assert error_of(missing) == (400, "missing_required_parameter", "metadata")


@pytest.mark.parametrize("path", ["/conversations", "/conversations/{}", "/conversations/{}/items"])
def test_a_body_must_be_a_json_object(http: httpx.Client, path: str) -> None:
    path = path.format(make(http))
    for body in (b"[]", b"null", b'"hi"'):
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
        assert error_of(answer) == (400, "invalid_value", None)
    broken = http.post(path, content=b"{", headers={"content-type": "application/json"})
    assert error_of(broken) == (400, "invalid_json", None)
    form = http.post(path, data={"metadata": "x"})
    assert error_of(form) == (415, "unsupported_media_type", None)


def test_all_missing_resources_have_the_same_error(http: httpx.Client) -> None:
    there = make(http, "a")
    bodies: set[str] = set()
    for id in (ID, "conv_short", "resp_" + "0" * 48, "..", "x" * 300, "%00"):
        for method, path, body in (
            ("GET", f"/conversations/{id}", None),
            ("POST", f"/conversations/{id}", {"metadata": {}}),
            ("DELETE", f"/conversations/{id}", None),
            ("GET", f"/conversations/{id}/items", None),
            ("POST", f"/conversations/{id}/items", {"items": [{"role": "user", "content": ""}]}),
            ("GET", f"/conversations/{id}/items/a", None),
            ("DELETE", f"/conversations/{id}/items/a", None),
        ):
            if id == "..":
                path = path.replace("..", "%2E%2E")
            answer = http.request(method, path, json=body)
            assert error_of(answer) == (404, "conversation_not_found", "conversation_id")
            bodies.add(re.sub("'.*?'", "''", answer.text))
    assert len(bodies) == 1
    elsewhere = make(http, "b")
    for item in ("b", "msg_" + "0" * 48, "?", "\0"):
        for method in ("GET", "DELETE"):
            answer = http.request(method, f"/conversations/{there}/items/{quote(item)}")
            assert error_of(answer) == (404, "item_not_found", "item_id")
    assert http.get(f"/conversations/{elsewhere}/items/b").status_code == 200


def test_other_methods_are_rejected(http: httpx.Client) -> None:
    for method, path in (
        ("PUT", "/conversations"),
        ("PUT", f"/conversations/{ID}"),
        ("DELETE", f"/conversations/{ID}/items"),
        ("POST", f"/conversations/{ID}/items/a"),
    ):
        answer = http.request(method, path)
        assert error_of(answer) == (405, "method_not_allowed", None)


def named(item: dict[str, Any], id: str, *, specified: bool) -> dict[str, Any]:
    """Return an item as it is shown: whole, and with its type as the door writes it."""
    item = {"type": "message", "id": id, **item}
    if item["type"] in ("message", "function_call", "function_call_output"):
        item = {"status": "completed", **item}
    if isinstance(item.get("content"), str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        rest = {"annotations": []} if kind == "output_text" else {}
        item["content"] = [{"type": kind, "text": item["content"], **rest}]
    slug = "openai:" if specified and item["type"] == "web_search_call" else ""
    return item | {"type": slug + item["type"]}


@pytest.mark.parametrize("how", ["at once", "later", "one by one"])
def test_every_item_is_returned_with_an_id_and_all_fields(http: httpx.Client, how: str) -> None:
    id = make(http, items=ITEMS) if how == "at once" else make(http)
    if how == "later":
        added = http.post(f"/conversations/{id}/items", json={"items": ITEMS}).json()
        listed = http.get(f"/conversations/{id}/items", params={"order": "asc"}).json()
        assert added == listed
    if how == "one by one":
        for item in ITEMS:
            page = http.post(f"/conversations/{id}/items", json={"items": [item]}).json()
            assert (len(page["data"]), page["has_more"]) == (1, False)
    page = http.get(f"/conversations/{id}/items", params={"order": "asc"}).json()
    specified = http.base_url.path == "/v1/"
    assert page["data"] == [
        named(item, displayed["id"], specified=specified) for item, displayed in zip(ITEMS, page["data"], strict=True)
    ]
    ids = [item["id"] for item in page["data"]]
    assert re.fullmatch("(msg_[0-9a-f]{48} ){2}fc_1( fco_[0-9a-f]{48}){2} .*", " ".join(ids))
    assert ids[5:] == ["ws_1", "note 1", "msg_mine"]
    for item in page["data"]:
        assert http.get(f"/conversations/{id}/items/{item['id']}").json() == item


def test_pages_tile_the_list_in_both_orders(http: httpx.Client) -> None:
    names = [f"item_{n:02}" for n in range(7)]
    id = make(http, *names)
    for order, wanted in (("asc", names), ("desc", names[::-1])):
        for limit in (1, 3, 7, 100):
            seen: list[str] = []
            after: dict[str, str] = {}
            more = True
            while more:
                query = {"limit": str(limit), "order": order, **after}
                page = http.get(f"/conversations/{id}/items", params=query).json()
                ids = [item["id"] for item in page["data"]]
                assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
                seen += ids
                after, more = {"after": ids[-1]}, page["has_more"]
            assert seen == wanted
        query = {"order": order, "before": wanted[4], "limit": "2"}
        page = http.get(f"/conversations/{id}/items", params=query).json()
        assert [item["id"] for item in page["data"]] == wanted[2:4]
    default = http.get(f"/conversations/{id}/items", params={"include[]": "x"}).json()
    assert [item["id"] for item in default["data"]] == names[::-1]


@pytest.mark.parametrize(
    ("param", "value"), [("limit", "0"), ("limit", "101"), ("order", "up"), ("after", "gone"), ("before", "gone")]
)
def test_a_wrong_query_names_its_param(http: httpx.Client, param: str, value: str) -> None:
    answer = http.get(f"/conversations/{make(http, 'a')}/items", params={param: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


BAD_ITEMS = {
    "none": ([], "items"),
    "too many": ([{"role": "user", "content": "?"}] * 21, "items"),
    "a string": ("Hello!", "items"),
    "a string in it": (["Hello!"], "items[0]"),
    "no role": ([{"type": "message", "content": "?"}], "items[0].role"),
    "an unknown type": ([ITEMS[0], {"type": "mystery"}], "items[1].type"),
    "no type": ([{"content": "?"}], "items[0].type"),
    "a wrong part": ([{"role": "user", "content": [{"type": "output_text", "text": ""}]}], "items[0].content[0].type"),
    "an unknown reference": ([{"type": "item_reference", "id": "msg_gone"}], "items[0].id"),
}


@pytest.mark.parametrize("name", BAD_ITEMS)
def test_invalid_items_are_reported_and_none_is_stored(http: httpx.Client, name: str) -> None:
    items, param = BAD_ITEMS[name]
    id = make(http, "kept")
    answers = [http.post(f"/conversations/{id}/items", json={"items": items})]
    if items:
        answers.append(http.post("/conversations", json={"items": items}))
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    page = http.get(f"/conversations/{id}/items").json()
    assert [item["id"] for item in page["data"]] == ["kept"]
    missing = http.post(f"/conversations/{id}/items", json={})
    assert error_of(missing) == (400, "missing_required_parameter", "items")


PATCH = {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+1"}
DONE = {"type": "custom_tool_call_output", "call_id": "a", "output": "done"}
ODD = {
    "no call_id": ({"type": "custom_tool_call", "name": "f", "input": ""}, "[0].call_id"),
    "no name": (PATCH | {"name": ""}, "[0].name"),
    "a name of null": (PATCH | {"name": None}, "[0].name"),
    "no input": ({"type": "custom_tool_call", "call_id": "a", "name": "f"}, "[0].input"),
    "an object for an input": (PATCH | {"input": {"line": 1}}, "[0].input"),
    "a number for a call_id": (PATCH | {"call_id": 7}, "[0].call_id"),
    "the slug": (PATCH | {"type": "openai:custom_tool_call", "input": None}, "[0].input"),
    "no output": ({"type": "custom_tool_call_output", "call_id": "a"}, "[0].output"),
    "an output of null": (DONE | {"output": None}, "[0].output"),
    "a number in an output": (DONE | {"output": [7]}, "[0].output[0]"),
    "a part that nobody knows": (DONE | {"output": [{"type": "?"}]}, "[0].output[0].type"),
    "a detail that is none": (DONE | {"output": [IMAGE | {"detail": "?"}]}, "[0].output[0].detail"),
}


@pytest.mark.parametrize("name", ODD)
def test_custom_calls_are_rejected_in_a_conversation_as_in_the_input_of_a_response(
    http: httpx.Client, name: str
) -> None:
    item, place = ODD[name]
    requested = http.post("/responses", json={"model": "demo", "input": [item]})
    assert (requested.status_code, requested.json()["error"]["param"]) == (400, f"input{place}")
    result = requested.text.replace(f"input{place}", f"items{place}")
    id = make(http, items=[{"id": "kept", **PATCH}])
    for path in ("/conversations", f"/conversations/{id}/items"):
        answer = http.post(path, json={"items": [item]})
        assert (answer.status_code, answer.text) == (400, result)
    page = http.get(f"/conversations/{id}/items").json()
    assert [item["id"] for item in page["data"]] == ["kept"]


def test_an_item_reference_is_replaced_by_its_item(http: httpx.Client) -> None:
    first = make(http, items=ITEMS[:2])
    page = http.get(f"/conversations/{first}/items").json()
    named = [{"type": "item_reference", "id": item["id"]} for item in page["data"]]
    second = make(http, items=[*named[:1], {"id": named[1]["id"]}])
    assert http.delete(f"/conversations/{first}").status_code == 200
    copied = http.get(f"/conversations/{second}/items", params={"order": "asc"}).json()
    assert copied["data"] == page["data"]


def test_deleting_an_item_returns_the_conversation(http: httpx.Client) -> None:
    id = make(http, "a", "b", "c", metadata={"k": "v"})
    gone = http.delete(f"/conversations/{id}/items/b")
    assert gone.json() == http.get(f"/conversations/{id}").json()
    assert gone.json()["object"] == "conversation"
    page = http.get(f"/conversations/{id}/items", params={"order": "asc"}).json()
    assert [item["id"] for item in page["data"]] == ["a", "c"]
    again = http.delete(f"/conversations/{id}/items/b")
    assert error_of(again) == (404, "item_not_found", "item_id")
