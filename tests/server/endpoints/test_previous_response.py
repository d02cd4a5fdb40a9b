"""`previous_response_id`: a response continues another one."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.http_client import http_client, parse_event, post_response, wait_until
from tests.server.stateful_server import (
    DIALECT_DOORS,
    UNKNOWN_ID,
    call,
    create_response,
    error_code,
    get_response,
    output_text,
    serve_agents,
    wait_until_ended,
)

MISSING = (400, "previous_response_not_found", "previous_response_id")


@pytest.fixture(params=["hot", "cold"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Serve with and without the cache of recent responses."""
    room = 64 * 1024 * 1024 if request.param == "hot" else 0
    with serve_agents(tmp_path, memory_bytes=room) as address:
        yield address


def read_mirror(response: dict[str, Any]) -> list[list[str]]:
    """Return what a mirror was given to read."""
    return json.loads(output_text(response))["said"]


def said_to_model(response: dict[str, Any]) -> list[str]:
    """Return a response as the next turn reads it."""
    return ["assistant", output_text(response)]


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_each_turn_reads_all_earlier_turns_in_order(place: str, door: str) -> None:
    first = create_response(place, "mirror", "one", door)
    second = create_response(place, "mirror", "two", door, previous_response_id=first["id"])
    third = create_response(
        place,
        "mirror",
        [{"role": "system", "content": "be kind"}, {"role": "user", "content": "three"}],
        door,
        previous_response_id=second["id"],
    )
    turns = [["user", "one"], said_to_model(first), ["user", "two"], said_to_model(second)]
    assert read_mirror(first) == turns[:1]
    assert read_mirror(second) == turns[:3]
    assert read_mirror(third) == [*turns, ["system", "be kind"], ["user", "three"]]
    assert third["previous_response_id"] == second["id"]


def test_instructions_are_not_inherited(place: str) -> None:
    first = create_response(place, "mirror", "one", instructions="Be brief.")
    second = create_response(place, "mirror", "two", previous_response_id=first["id"])
    assert json.loads(output_text(first))["instructions"] == "Be brief."
    assert json.loads(output_text(second))["instructions"] is None
    assert second["instructions"] is None


def test_the_model_can_change_within_a_chain(place: str) -> None:
    first = create_response(place, "echo", "one")
    second = create_response(place, "demo", "two", previous_response_id=first["id"])
    third = create_response(place, "mirror", "three", previous_response_id=second["id"])
    assert read_mirror(third) == [
        ["user", "one"],
        ["assistant", "one"],
        ["user", "two"],
        said_to_model(second),
        ["user", "three"],
    ]


def test_a_chain_can_continue_without_input(place: str) -> None:
    first = create_response(place, "echo", "one")
    body = {"model": "mirror", "previous_response_id": first["id"]}
    answer = call(place, "POST", "/v1/responses", json=body)
    assert read_mirror(answer.json()) == [["user", "one"], ["assistant", "one"]]


def test_forks_do_not_see_each_other(place: str) -> None:
    root = create_response(place, "echo", "root")["id"]
    forks = [create_response(place, "echo", f"fork {n}", previous_response_id=root)["id"] for n in range(3)]
    for n, fork in enumerate(forks):
        leaf = create_response(place, "mirror", "leaf", previous_response_id=fork)
        assert read_mirror(leaf) == [
            ["user", "root"],
            ["assistant", "root"],
            ["user", f"fork {n}"],
            ["assistant", f"fork {n}"],
            ["user", "leaf"],
        ]


@pytest.mark.parametrize("model", ["counter", "endless"])
def test_partial_output_is_part_of_the_chain(place: str, model: str) -> None:
    id = create_response(place, model, "2 broken", background=True)["id"]
    wait_until(lambda: get_response(place, id)["status"] != "queued")
    if model == "endless":
        call(place, "POST", f"/v1/responses/{id}/cancel")
    wait_until_ended(place, id)
    heard_next = read_mirror(create_response(place, "mirror", "and?", previous_response_id=id))
    assert heard_next[0] == ["user", "2 broken"]
    assert heard_next[-1] == ["user", "and?"]


def test_a_tool_loop_continues_with_the_output_only(place: str) -> None:
    tools = [{"type": "function", "name": "ping"}]
    first = create_response(place, "demo", "ping", tools=tools)
    output = {"type": "function_call_output", "output": "pong"}
    output["call_id"] = first["output"][0]["call_id"]
    second = create_response(place, "demo", [output], tools=tools, previous_response_id=first["id"])
    assert output_text(second) == "ping says: pong"


@pytest.mark.parametrize("id", [UNKNOWN_ID, "resp_1", "../..", "", "x" * 1000, "msg_1"])
def test_an_unknown_parent_has_its_own_error(server_url: str, id: str) -> None:
    for stream in (False, True):
        answer = post_response(server_url, model="mirror", previous_response_id=id, stream=stream)
        assert error_code(answer) == (MISSING if id else (400, "invalid_value", "previous_response_id"))
    answer = post_response(server_url, "/openai", model="mirror", previous_response_id=UNKNOWN_ID)
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_parent_that_is_still_running_has_to_end_first(server_url: str) -> None:
    id = create_response(server_url, "endless", "go", background=True)["id"]
    answer = post_response(server_url, model="mirror", previous_response_id=id)
    code = "previous_response_in_progress"
    assert error_code(answer) == (400, code, "previous_response_id")
    call(server_url, "POST", f"/v1/responses/{id}/cancel")
    assert post_response(server_url, model="mirror", previous_response_id=id).status_code == 200


def test_a_follow_up_sent_the_instant_the_end_arrives_finds_its_parent(server_url: str) -> None:
    with http_client(server_url) as http:
        previous = None
        for number in range(100):
            body = {"model": "echo", "input": f"{number}", "stream": True}
            body["previous_response_id"] = previous
            with http.stream("POST", "/v1/responses", json=body) as answer:
                assert answer.status_code == 200
                text = ""
                chunks = answer.iter_text()
                while "event: response.completed\n" not in text or not text.endswith("\n\n"):
                    text += next(chunks)
                frames = [frame for frame in text.split("\n\n") if frame.startswith("event:")]
                previous = parse_event(frames[-1])["response"]["id"]
    last = read_mirror(create_response(server_url, "mirror", "end", previous_response_id=previous))
    assert len(last) == 201


def test_conversations_at_once_do_not_mix(server_url: str) -> None:
    def ws(name: int) -> None:
        previous = None
        for turn in range(4):
            response = create_response(server_url, "echo", f"{name}.{turn}", previous_response_id=previous)
            previous = response["id"]
        last = create_response(server_url, "mirror", "end", previous_response_id=previous)
        deltas = [text for role, text in read_mirror(last) if role == "user"]
        assert deltas == [*(f"{name}.{turn}" for turn in range(4)), "end"]

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(ws, range(50)))


SECRET = "xylophone-7391"


def test_unstored_responses_continue_from_memory_and_never_reach_the_disk(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as server_url:
        previous = None
        for turn in range(5):
            previous = create_response(
                server_url,
                "echo",
                f"{SECRET} {turn}",
                instructions=SECRET,
                metadata={"a": SECRET},
                store=False,
                previous_response_id=previous,
            )["id"]
        last = create_response(server_url, "mirror", "end", store=False, previous_response_id=previous)
        assert len(read_mirror(last)) == 11
        create_response(server_url, "echo", "stored")
        checkpoint(tmp_path)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    with serve_agents(tmp_path) as server_url:
        assert error_code(post_response(server_url, model="mirror", previous_response_id=previous)) == MISSING
    files += [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(b"stored" in content for content in files)
    assert not [content for content in files if SECRET.encode() in content]


def checkpoint(folder: Path) -> None:
    """Bring everything that SQLite knows into its main file."""
    connection = sqlite3.connect(folder / "responses.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_deleted_content_is_erased_from_the_file(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as server_url:
        id = create_response(server_url, "echo", SECRET, background=True)["id"]
        wait_until_ended(server_url, id)
        call(server_url, "DELETE", f"/v1/responses/{id}")
        checkpoint(tmp_path)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert not [content for content in files if SECRET.encode() in content]


def test_a_stored_child_of_an_unstored_parent_lasts_as_long_as_the_memory(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as server_url:
        parent = create_response(server_url, "echo", "parent", store=False)["id"]
        child = create_response(server_url, "echo", "child", previous_response_id=parent)["id"]
        assert len(read_mirror(create_response(server_url, "mirror", "end", previous_response_id=child))) == 5
    with serve_agents(tmp_path) as server_url:
        assert error_code(post_response(server_url, model="mirror", previous_response_id=child)) == MISSING
        assert get_response(server_url, child)["previous_response_id"] == parent


def test_evicted_responses_are_not_found() -> None:
    with serve_agents(None, memory_bytes=8000) as server_url:
        ids = [create_response(server_url, "echo", "x" * 300, store=False)["id"] for _ in range(10)]
        statuses = [post_response(server_url, model="mirror", previous_response_id=id).status_code for id in ids]
        assert statuses[0] == 400
        assert error_code(post_response(server_url, model="mirror", previous_response_id=ids[0])) == MISSING


def test_expired_responses_are_not_found() -> None:
    with serve_agents(None, memory_seconds=0) as server_url:
        id = create_response(server_url, "echo", "x", store=False)["id"]
        assert error_code(post_response(server_url, model="mirror", previous_response_id=id)) == MISSING


def test_a_stored_chain_outlives_the_server(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as server_url:
        first = create_response(server_url, "echo", "one")["id"]
        second = create_response(server_url, "echo", "two", previous_response_id=first)
    with serve_agents(tmp_path) as server_url:
        assert get_response(server_url, second["id"]) == second
        third = create_response(server_url, "mirror", "three", previous_response_id=second["id"])
    assert [text for role, text in read_mirror(third) if role == "user"] == ["one", "two", "three"]
