"""Stored responses: get, list, cancel and delete at every door, in SQLite and in memory."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http_client import DOORS, http_client, post_response, stream_events, wait_until
from tests.server.stateful_server import (
    DIALECT_DOORS,
    ENDLESS_COUNTER,
    UNKNOWN_ID,
    call,
    create_response,
    error_code,
    get_response,
    output_text,
    replay,
    serve_agents,
    wait_until_ended,
)

BODIES: dict[str, dict[str, Any]] = {
    "plain": {"model": "demo", "input": "Hi!", "user": "me", "metadata": {"a": "b"}},
    "reasoning": {"model": "demo", "input": "Hi!", "reasoning": {"effort": "low", "summary": "auto"}},
    "format": {
        "model": "demo",
        "input": "Hi!",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    },
    "call": {
        "model": "demo",
        "input": "ping",
        "tools": [{"type": "function", "name": "ping"}, {"type": "web_search"}],
        "temperature": 0.3,
    },
    "cut": {"model": "counter", "input": "3 cut"},
    "odd": {"model": "demo", "input": "\0 🎵 \u2028", "instructions": "\0", "seed": 7},
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_stored_response_equals_the_response(server_url: str, door: str, body: dict[str, Any]) -> None:
    answer = call(server_url, "POST", f"{door}/responses", json=body)
    again = call(server_url, "GET", f"{door}/responses/{answer.json()['id']}")
    assert (again.status_code, again.json()) == (200, answer.json())
    assert again.headers["content-type"] == "application/json"


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_a_stored_response_equals_the_end_of_its_stream(server_url: str, door: str) -> None:
    last = stream_events(server_url, door)[-1]
    assert get_response(server_url, last["response"]["id"], door) == last["response"]


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_a_failed_response_is_stored_with_its_partial_output(server_url: str, door: str) -> None:
    events = stream_events(server_url, door, model="counter", input="2 broken")
    response = get_response(server_url, events[0]["response"]["id"], door)
    assert response == events[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert output_text(response) == "0 1 "


def test_a_response_can_be_read_while_it_is_in_progress(server_url: str) -> None:
    with http_client(server_url) as http, http.stream("POST", "/v1/responses", json=endless(stream=True)) as answer:
        chunks = answer.iter_text()
        id = next(chunks).partition('"id":"')[2].partition('"')[0]
        assert get_response(server_url, id)["status"] == "in_progress"
    wait_until(lambda: get_response(server_url, id)["status"] == "cancelled")
    response = get_response(server_url, id)
    assert output_text(response).startswith("more ")
    assert response["incomplete_details"] == {"reason": "cancelled"}
    assert response["usage"]["output_tokens"] > 0


def endless(**body: Any) -> dict[str, Any]:
    """Ask for something that never ends by itself."""
    return {"model": "endless", "input": "go", **body}


@pytest.mark.parametrize(
    "query", ["include=reasoning.encrypted_content&include=b", "include[]=a&include[]=b", "include=", "x=1"]
)
def test_includes_are_accepted_however_they_are_written(server_url: str, query: str) -> None:
    id = create_response(server_url, "demo", "Hi!")["id"]
    assert call(server_url, "GET", f"/openai/responses/{id}?{query}").status_code == 200


def test_encrypted_reasoning_is_included_on_request(server_url: str) -> None:
    include = "reasoning.encrypted_content"
    body = {"reasoning": {"effort": "low"}, "include": [include]}
    response = create_response(server_url, "demo", "Hi!", **body)
    with http_client(server_url) as http:
        path = f"/v1/responses/{response['id']}"
        assert "encrypted_content" not in http.get(path).json()["output"][0]
        assert http.get(path, params={"include": include}).json() == response


def test_unstored_responses_cannot_be_read(server_url: str) -> None:
    id = create_response(server_url, "demo", "Hi!", store=False)["id"]
    for method, path in (*READS, ("POST", "/cancel"), ("DELETE", "")):
        assert call(server_url, method, f"/v1/responses/{id}{path}").status_code == 404


def test_deleting_an_unstored_response_is_a_404_and_forgets_nothing(server_url: str) -> None:
    id = create_response(server_url, "mirror", "One.", store=False)["id"]
    assert call(server_url, "DELETE", f"/v1/responses/{id}").status_code == 404
    said = output_text(create_response(server_url, "mirror", "Two.", store=False, previous_response_id=id))
    assert "One." in said


@pytest.mark.parametrize(("text", "status", "retry"), [("2 broken", 500, "false"), ("2 busy", 503, None)])
@pytest.mark.parametrize("store", [True, False])
def test_the_error_of_a_failed_agent_names_its_stored_response_and_asks_for_no_retry(
    server_url: str, store: bool, text: str, status: int, retry: str | None
) -> None:
    answer = call(server_url, "POST", "/v1/responses", json={"model": "counter", "input": text, "store": store})
    assert (answer.status_code, answer.headers.get("x-should-retry")) == (status, retry)
    id = answer.json()["error"].get("antiphon:response_id")
    assert (id is not None) == store
    if id:
        response = get_response(server_url, id)
        assert (response["status"], output_text(response)) == ("failed", "0 1 ")


READS = [("GET", ""), ("GET", "?stream=true"), ("GET", "/input_items")]
NOWHERE = [
    UNKNOWN_ID,
    UNKNOWN_ID.upper(),
    "RESP_" + "0" * 48,
    "msg_" + "0" * 48,
    "conv_" + "0" * 48,
    "%2e%2e",
    "..%00",
    "resp_68af4030baa48193b0b43b4c2a176a1a0e6967589f080e77",
    "chatcmpl-123",
    "resp_",
    "resp_" + "0" * 500,
    "resp_%27%20OR%201=1",
    "resp_💥" * 8,
]


@pytest.mark.parametrize("id", NOWHERE)
@pytest.mark.parametrize(("method", "path"), [*READS, ("POST", "/cancel"), ("DELETE", "")], ids=str)
def test_an_unknown_id_is_not_found_whatever_its_format(server_url: str, method: str, path: str, id: str) -> None:
    answer = call(server_url, method, f"/v1/responses/{id}{path}")
    assert error_code(answer) == (404, "response_not_found", "response_id")
    answer = call(server_url, method, f"/openai/responses/{id}{path}")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "Response not found"


@pytest.mark.parametrize("door", DIALECT_DOORS)
@pytest.mark.parametrize("background", [False, True])
def test_deleted_responses_are_gone_everywhere(server_url: str, door: str, background: bool) -> None:
    id = create_response(server_url, "counter", "3", background=background)["id"]
    wait_until_ended(server_url, id)
    child = create_response(server_url, "mirror", "and?", previous_response_id=id)["id"]
    answer = call(server_url, "DELETE", f"{door}/responses/{id}")
    deleted = {"id": id, "object": "response", "deleted": True}
    assert (answer.status_code, answer.json()) == (200, deleted)
    for method, path in (*READS, ("POST", "/cancel"), ("DELETE", "")):
        assert call(server_url, method, f"{door}/responses/{id}{path}").status_code == 404
    for parent in (id, child):  # both were hot in memory
        answer = post_response(server_url, door, model="mirror", previous_response_id=parent)
        missing = (400, "previous_response_not_found", "previous_response_id")
        assert error_code(answer) == missing
    assert get_response(server_url, child)["previous_response_id"] == id


def test_nothing_of_a_deleted_response_is_left_in_any_table(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as server_url:
        body = {"model": "counter", "input": "3", "background": True}
        headers = {"idempotency-key": "k"}
        answer = call(server_url, "POST", "/v1/responses", json=body, headers=headers)
        id = answer.json()["id"]
        wait_until_ended(server_url, id)
        assert rows_of(tmp_path, id) > 0
        call(server_url, "DELETE", f"/v1/responses/{id}")
        assert rows_of(tmp_path, id) == 0
        again = call(server_url, "POST", "/v1/responses", json=body, headers=headers)
        assert again.json()["id"] != id


def rows_of(folder: Path, id: str) -> int:
    """Count the rows that mention an id, in every table there is."""
    connection = sqlite3.connect(folder / "responses.db")
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    rows = [row for (name,) in tables for row in connection.execute(f"SELECT * FROM {name}")]
    connection.close()
    return sum(any(id in str(value) for value in row) for row in rows)


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_cancelling_stops_the_agent_and_keeps_its_output(server_url: str, door: str) -> None:
    stopped = ENDLESS_COUNTER.stopped
    id = create_response(server_url, "endless", "go", door, background=True)["id"]
    wait_until(lambda: get_response(server_url, id)["status"] == "in_progress")
    time.sleep(0.1)
    answer = call(server_url, "POST", f"{door}/responses/{id}/cancel")
    ticks = ENDLESS_COUNTER.ticks
    assert ENDLESS_COUNTER.stopped == stopped + 1
    response = answer.json()
    assert (answer.status_code, response["status"]) == (200, "cancelled")
    assert response["incomplete_details"] == {"reason": "cancelled"}
    assert output_text(response).startswith("more more ")
    assert response["output"][0]["status"] == "incomplete"
    assert response["usage"]["output_tokens"] > 0
    assert response["antiphon:warnings"][0]["code"] == "usage_estimated"
    assert get_response(server_url, id, door) == response
    assert call(server_url, "POST", f"{door}/responses/{id}/cancel").json() == response
    last = replay(server_url, id, door=door)[-1]
    assert (last["type"], last["response"]) == ("response.incomplete", response)
    assert ENDLESS_COUNTER.ticks == ticks


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_cancelling_does_not_change_a_finished_response(server_url: str, door: str) -> None:
    id = create_response(server_url, "counter", "1", background=True)["id"]
    response = wait_until_ended(server_url, id, door)
    answer = call(server_url, "POST", f"{door}/responses/{id}/cancel")
    assert (answer.status_code, answer.json()) == (200, response)
    assert get_response(server_url, id, door) == response


def test_only_background_responses_can_be_cancelled(server_url: str) -> None:
    id = create_response(server_url, "demo", "Hi!")["id"]
    answer = call(server_url, "POST", f"/v1/responses/{id}/cancel")
    assert error_code(answer) == (400, "not_a_background_response", "response_id")
    answer = call(server_url, "POST", f"/openai/responses/{id}/cancel")
    assert answer.status_code == 400
    assert answer.json()["detail"] == "Only background responses can be cancelled"
    assert get_response(server_url, id)["status"] == "completed"


def listed(server_url: str, id: str, door: str = "/v1", **query: Any) -> dict[str, Any]:
    """List a response's input."""
    answer = call(server_url, "GET", f"{door}/responses/{id}/input_items", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbered(count: int) -> list[dict[str, str]]:
    """Make some messages."""
    return [{"role": "user", "content": f"message {number}"} for number in range(count)]


def texts(page: dict[str, Any]) -> list[str]:
    """Return the texts of a page of messages."""
    return [item["content"][0]["text"] for item in page["data"]]


def test_the_input_of_a_response_is_listed_latest_first(server_url: str) -> None:
    id = create_response(server_url, "demo", numbered(3))["id"]
    page = listed(server_url, id)
    assert texts(page) == ["message 2", "message 1", "message 0"]
    assert page == {
        "object": "list",
        "data": page["data"],
        "first_id": page["data"][0]["id"],
        "last_id": page["data"][2]["id"],
        "has_more": False,
    }
    assert page["data"][0] == {
        "type": "message",
        "id": page["first_id"],
        "role": "user",
        "content": [{"type": "input_text", "text": "message 2"}],
    }
    assert texts(listed(server_url, id, order="asc")) == texts(page)[::-1]
    assert listed(server_url, id, include="a")["data"] == page["data"]


def test_a_string_is_one_user_message(server_url: str) -> None:
    page = listed(server_url, create_response(server_url, "demo", "Hi!")["id"])
    assert texts(page) == ["Hi!"]


def test_a_page_has_twenty_items_by_default(server_url: str) -> None:
    id = create_response(server_url, "demo", numbered(101))["id"]
    sizes = {limit: len(listed(server_url, id, limit=limit)["data"]) for limit in (1, 20, 100)}
    assert sizes == {1: 1, 20: 20, 100: 100}
    assert len(listed(server_url, id)["data"]) == 20


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_tile_the_list_forwards_and_backwards(server_url: str, order: str, limit: int) -> None:
    id = create_response(server_url, "demo", numbered(7))["id"]
    whole = listed(server_url, id, order=order)["data"]
    forwards: list[Any] = []
    query: dict[str, Any] = {"order": order, "limit": limit}
    more = True
    while more:
        page = listed(server_url, id, **query)
        forwards += page["data"]
        more = page["has_more"]
        assert more == (len(forwards) < 7)
        query["after"] = page["last_id"]
    assert forwards == whole
    last = listed(server_url, id, order=order, before=whole[-1]["id"])
    assert last["data"] == whole[:-1]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("limit=1e1", "limit"),
        ("order=up", "order"),
    ],
)
def test_invalid_list_parameters_are_rejected(server_url: str, query: str, param: str) -> None:
    id = create_response(server_url, "demo", "Hi!")["id"]
    answer = call(server_url, "GET", f"/v1/responses/{id}/input_items?{query}")
    assert error_code(answer) == (400, "invalid_value", param)


EVERYTHING: list[dict[str, Any]] = [
    {
        "type": "message",
        "id": "msg_mine",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"},
            {"type": "input_file", "filename": "a.txt", "file_data": "aGk="},
        ],
    },
    {"type": "reasoning", "id": "rs_mine", "summary": [{"type": "summary_text", "text": "s"}]},
    {
        "type": "function_call",
        "id": "fc_mine",
        "call_id": "call_1",
        "name": "f",
        "arguments": '{"a": 1}',
        "status": "completed",
    },
    {"type": "function_call_output", "id": "fco_mine", "call_id": "call_1", "output": "42", "status": "completed"},
    {"type": "acme:thing", "id": "item_mine", "status": "completed", "deep": {"a": [1, None]}},
]


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_every_field_of_every_item_survives(server_url: str, door: str) -> None:
    id = create_response(server_url, "mirror", EVERYTHING)["id"]
    assert listed(server_url, id, door, order="asc")["data"] == EVERYTHING


def test_the_same_items_may_be_sent_again_and_again(server_url: str) -> None:
    first = create_response(server_url, "demo", EVERYTHING)
    again = create_response(server_url, "mirror", [*EVERYTHING, *first["output"], *numbered(1)])
    expected = [*EVERYTHING, *first["output"]]
    assert listed(server_url, again["id"], order="asc")["data"][:-1] == expected


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_tile_a_list_in_which_the_client_repeats_ids(server_url: str, order: str) -> None:
    input = [{"type": "message", "role": "user", "content": f"{n}", "id": id} for n, id in enumerate("xaxbx")]
    id = create_response(server_url, "demo", input)["id"]
    conversation = call(server_url, "POST", "/v1/conversations", json={"items": input}).json()["id"]
    for path in (f"/v1/responses/{id}/input_items", f"/v1/conversations/{conversation}/items"):
        found: list[str] = []
        page: dict[str, Any] = {}
        query: dict[str, Any] = {"order": order, "limit": 1}
        for _ in input:
            page = call(server_url, "GET", path, params=query).json()
            found += texts(page)
            query["after"] = page["last_id"]
        assert not page["has_more"]
        assert found == (list("01234") if order == "asc" else list("43210"))


def test_an_item_can_be_named_instead_of_sent(server_url: str) -> None:
    first = create_response(server_url, "echo", "remember me")
    ids = [listed(server_url, first["id"])["first_id"], first["output"][0]["id"]]
    references = [{"type": "item_reference", "id": id} for id in ids]
    answer = create_response(server_url, "mirror", [*references, *numbered(1)])
    assert '"remember me"], ["assistant", "remember me"], ["user", "message 0"]' in output_text(answer)


def test_a_response_can_be_read_at_another_door(server_url: str) -> None:
    response = create_response(server_url, "demo", "Hi!", "/openai", reasoning={"effort": "low"})
    id = response["id"]
    assert get_response(server_url, id, "/openai/v1") == response
    ours = get_response(server_url, id, "/v1")
    assert ours == {name: response[name] for name in response if name != "user"} | {"usage": ours["usage"]}


def test_a_wrong_method_is_rejected_with_those_that_are_right(server_url: str) -> None:
    answer: httpx.Response = call(server_url, "PATCH", f"/v1/responses/{UNKNOWN_ID}")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) >= {"GET", "DELETE"}
