"""The lists of stored responses and conversations at every door, in memory and in SQLite."""

from typing import Any

import pytest

from tests.http_client import DOORS
from tests.server.stateful_server import call, create_response, error_code, get_response

LISTS = ["/responses", "/conversations"]


def get_list(address: str, path: str, **query: Any) -> dict[str, Any]:
    """Return a page of a list."""
    answer = call(address, "GET", path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def create_conversation(address: str, text: str, **metadata: str) -> dict[str, Any]:
    """Create a conversation with one message."""
    body = {"items": [{"role": "user", "content": text}], "metadata": metadata}
    return call(address, "POST", "/v1/conversations", json=body).json()


@pytest.mark.parametrize("door", DOORS)
def test_a_stored_response_is_listed_without_its_items(server_url: str, door: str) -> None:
    first = create_response(server_url, "counter", "3 one", door, metadata={"topic": f"row {door}"})
    second = create_response(server_url, "counter", "3 two", door, previous_response_id=first["id"])
    page = get_list(server_url, f"{door}/responses", limit=2)
    row = {
        "id": first["id"],
        "object": "response.summary",
        "created_at": first["created_at"],
        "completed_at": first["completed_at"],
        "status": "completed",
        "model": "counter",
        "title": "3 one",
        "usage": get_response(server_url, first["id"])["usage"],
        "previous_response_id": None,
        "conversation": None,
        "background": False,
        "metadata": {"topic": f"row {door}"},
        "error": None,
    }
    assert page["data"][1] == row
    assert (page["data"][0]["id"], page["data"][0]["previous_response_id"]) == (second["id"], first["id"])
    assert (page["object"], page["first_id"], page["last_id"]) == ("list", second["id"], first["id"])
    found = get_list(server_url, f"{door}/responses", **{"metadata[topic]": f"row {door}"})
    assert (found["data"], found["has_more"]) == ([row], False)
    children = get_list(server_url, f"{door}/responses", previous_response_id=first["id"])
    assert [row["id"] for row in children["data"]] == [second["id"]]


def test_pages_of_responses_follow_each_other(server_url: str) -> None:
    ids = [create_response(server_url, "counter", "1", metadata={"walk": "1"})["id"] for _ in range(5)]
    found: list[str] = []
    query: dict[str, Any] = {"limit": 2, "metadata[walk]": "1"}
    has_more = True
    while has_more:
        page = get_list(server_url, "/v1/responses", **query)
        found += [row["id"] for row in page["data"]]
        query["after"], has_more = page["last_id"], page["has_more"]
    assert found == ids[::-1]
    page = get_list(server_url, "/v1/responses", order="asc", after=ids[0], before=ids[3])
    assert [row["id"] for row in page["data"]] == ids[1:3]


def test_responses_are_selected_by_what_they_are(server_url: str) -> None:
    response = create_response(server_url, "counter", "2 broken needle in a haystack", background=True)
    conversation = create_conversation(server_url, "Hi!")["id"]
    create_response(server_url, "counter", "1 needle", conversation=conversation)
    path = "/v1/responses"
    while get_response(server_url, response["id"])["status"] in ("queued", "in_progress"):
        pass
    background = get_list(server_url, path, search="NEEDLE", background="true")["data"]
    assert [row["id"] for row in background] == [response["id"]]
    assert len(get_list(server_url, path, search="NEEDLE")["data"]) == 2
    assert len(get_list(server_url, path, search="needle", conversation=conversation)["data"]) == 1
    assert get_list(server_url, path, search="needle", model="mirror")["data"] == []
    assert get_list(server_url, path, created_before=response["created_at"] - 1000)["data"] == []
    assert get_list(server_url, path, created_after=response["created_at"] + 1000)["first_id"] is None
    assert len(get_list(server_url, path, created_after=response["created_at"] - 1)["data"]) >= 2
    # Empty parameters, as forms send them, are no conditions.
    assert len(get_list(server_url, path, search="needle", model="", status="", background="")["data"]) == 2


@pytest.mark.parametrize("door", DOORS)
def test_conversations_are_listed(server_url: str, door: str) -> None:
    old = create_conversation(server_url, f"The old talk {door}.", door=door, n="1")
    new = create_conversation(server_url, f"A new talk {door}", door=door, n="2")
    page = get_list(server_url, f"{door}/conversations", **{"metadata[door]": door})
    rows = [new | {"title": f"A new talk {door}"}, old | {"title": f"The old talk {door}."}]
    assert page == {"object": "list", "data": rows, "first_id": new["id"], "last_id": old["id"], "has_more": False}
    found = get_list(server_url, f"{door}/conversations", search=f"OLD TALK {door}.")
    assert [row["id"] for row in found["data"]] == [old["id"]]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("order=up", "order"),
        ("after=resp_unknown", "after"),
        ("before=%00", "before"),
        ("created_after=yesterday", "created_after"),
        ("created_before=-1", "created_before"),
        (f"search={'x' * 201}", "search"),
        ("metadata=a", "metadata"),
    ],
)
def test_an_invalid_parameter_of_a_list_is_named(server_url: str, door: str, path: str, query: str, param: str) -> None:
    answer = call(server_url, "GET", f"{door}{path}?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(("query", "param"), [("status=done", "status"), ("background=maybe", "background")])
def test_an_invalid_condition_on_responses_is_named(server_url: str, query: str, param: str) -> None:
    answer = call(server_url, "GET", f"/v1/responses?{query}")
    assert error_code(answer) == (400, "invalid_value", param)


def test_a_condition_may_be_any_text(server_url: str) -> None:
    for text in ("%00", "%ff", "💥", "'; DROP TABLE responses; --", "\\"):
        for name in ("model", "previous_response_id", "conversation", "search", "metadata[x]"):
            assert call(server_url, "GET", f"/v1/responses?{name}={text}").json()["data"] == []


def test_a_response_that_is_not_stored_is_not_listed(server_url: str) -> None:
    create_response(server_url, "counter", "1", store=False, metadata={"stored": "no"})
    assert get_list(server_url, "/v1/responses", **{"metadata[stored]": "no"})["data"] == []
