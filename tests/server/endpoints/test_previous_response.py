"""A response continues another: what was said before is heard again, and nothing else is."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.http_client import (
    http_client,
    parse_event,
    post_response,
    wait_until,
)
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
    """Serve with a memory of what was just said, or with none."""
    room = 64 * 1024 * 1024 if request.param == "hot" else 0
    with serve_agents(tmp_path, memory_bytes=room) as address:
        yield address


def read_mirror(response: dict[str, Any]) -> list[list[str]]:
    """Return what a mirror was given to read."""
    return json.loads(output_text(response))["said"]


def said_to_model(response: dict[str, Any]) -> list[str]:
    """Return a response as it is heard in the next turn."""
    return ["assistant", output_text(response)]


@pytest.mark.parametrize("door", DIALECT_DOORS)
def test_each_turn_hears_all_that_came_before_it_in_order(place: str, door: str) -> None:
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


def test_the_model_may_change_in_mid_chain(place: str) -> None:
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


def test_a_chain_may_go_on_without_input(place: str) -> None:
    first = create_response(place, "echo", "one")
    body = {"model": "mirror", "previous_response_id": first["id"]}
    answer = call(place, "POST", "/v1/responses", json=body)
    assert read_mirror(answer.json()) == [["user", "one"], ["assistant", "one"]]


def test_forks_do_not_see_each_other(place: str) -> None:
    root = create_response(place, "echo", "root")["id"]
    forks = [
        create_response(place, "echo", f"fork {n}", previous_response_id=root)["id"]
        for n in range(3)
    ]
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
def test_what_a_broken_or_cancelled_turn_said_is_part_of_the_chain(place: str, model: str) -> None:
    id = create_response(place, model, "2 broken", background=True)["id"]
    wait_until(lambda: get_response(place, id)["status"] != "queued")
    if model == "endless":
        call(place, "POST", f"/v1/responses/{id}/cancel")
    wait_until_ended(place, id)
    heard_next = read_mirror(create_response(place, "mirror", "and?", previous_response_id=id))
    assert heard_next[0] == ["user", "2 broken"]
    assert heard_next[-1] == ["user", "and?"]


def test_a_tool_loop_goes_on_by_its_output_alone(place: str) -> None:
    tools = [{"type": "function", "name": "ping"}]
    first = create_response(place, "demo", "ping", tools=tools)
    output = {"type": "function_call_output", "output": "pong"}
    output["call_id"] = first["output"][0]["call_id"]
    second = create_response(place, "demo", [output], tools=tools, previous_response_id=first["id"])
    assert output_text(second) == "ping says: pong"


# --- what cannot be continued -----------------------------------------------------------------


@pytest.mark.parametrize("id", [UNKNOWN_ID, "resp_1", "../..", "", "x" * 1000, "msg_1"])
def test_an_unknown_parent_is_an_error_of_its_own(house: str, id: str) -> None:
    for stream in (False, True):
        answer = post_response(house, model="mirror", previous_response_id=id, stream=stream)
        if id:
            assert error_code(answer) == MISSING
        else:
            assert answer.status_code == 200  # which is none at all
    answer = post_response(house, "/openai", model="mirror", previous_response_id=UNKNOWN_ID)
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_parent_that_is_still_running_has_to_end_first(house: str) -> None:
    id = create_response(house, "endless", "go", background=True)["id"]
    answer = post_response(house, model="mirror", previous_response_id=id)
    code = "previous_response_in_progress"
    assert error_code(answer) == (400, code, "previous_response_id")
    call(house, "POST", f"/v1/responses/{id}/cancel")
    assert post_response(house, model="mirror", previous_response_id=id).status_code == 200


# --- at once, and many at once ----------------------------------------------------------------


def test_a_follow_up_sent_the_instant_the_end_arrives_finds_its_parent(house: str) -> None:
    with http_client(house) as http:
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
    last = read_mirror(create_response(house, "mirror", "end", previous_response_id=previous))
    assert len(last) == 201


def test_conversations_at_once_do_not_mix(house: str) -> None:
    def talk(name: int) -> None:
        previous = None
        for turn in range(4):
            response = create_response(
                house, "echo", f"{name}.{turn}", previous_response_id=previous
            )
            previous = response["id"]
        last = create_response(house, "mirror", "end", previous_response_id=previous)
        words = [text for role, text in read_mirror(last) if role == "user"]
        assert words == [*(f"{name}.{turn}" for turn in range(4)), "end"]

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(talk, range(50)))


# --- what is not to be stored -----------------------------------------------------------------

SECRET = "xylophone-7391"


def test_what_is_not_stored_can_be_continued_from_memory_and_is_never_on_disk(
    tmp_path: Path,
) -> None:
    with serve_agents(tmp_path) as house:
        previous = None
        for turn in range(5):
            previous = create_response(
                house,
                "echo",
                f"{SECRET} {turn}",
                instructions=SECRET,
                metadata={"a": SECRET},
                store=False,
                previous_response_id=previous,
            )["id"]
        last = create_response(house, "mirror", "end", store=False, previous_response_id=previous)
        assert len(read_mirror(last)) == 11
        create_response(house, "echo", "stored")
        checkpoint(tmp_path)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    with serve_agents(tmp_path) as house:
        assert (
            error_code(post_response(house, model="mirror", previous_response_id=previous))
            == MISSING
        )
    files += [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(b"stored" in content for content in files)
    assert not [content for content in files if SECRET.encode() in content]


def checkpoint(folder: Path) -> None:
    """Bring everything that SQLite knows into its main file."""
    connection = sqlite3.connect(folder / "responses.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_nothing_of_what_was_deleted_is_left_in_the_file(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as house:
        id = create_response(house, "echo", SECRET, background=True)["id"]
        wait_until_ended(house, id)
        call(house, "DELETE", f"/v1/responses/{id}")
        checkpoint(tmp_path)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert not [content for content in files if SECRET.encode() in content]


def test_a_stored_child_of_an_unstored_parent_lasts_as_long_as_the_memory(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as house:
        parent = create_response(house, "echo", "parent", store=False)["id"]
        child = create_response(house, "echo", "child", previous_response_id=parent)["id"]
        assert (
            len(read_mirror(create_response(house, "mirror", "end", previous_response_id=child)))
            == 5
        )
    with serve_agents(tmp_path) as house:
        assert (
            error_code(post_response(house, model="mirror", previous_response_id=child)) == MISSING
        )
        assert get_response(house, child)["previous_response_id"] == parent


def test_what_was_evicted_is_not_found() -> None:
    with serve_agents(None, memory_bytes=8000) as house:
        ids = [create_response(house, "echo", "x" * 300, store=False)["id"] for _ in range(10)]
        statuses = [
            post_response(house, model="mirror", previous_response_id=id).status_code for id in ids
        ]
        assert statuses[0] == 400
        assert (
            error_code(post_response(house, model="mirror", previous_response_id=ids[0])) == MISSING
        )


def test_what_is_too_old_is_not_found() -> None:
    with serve_agents(None, memory_seconds=0) as house:
        id = create_response(house, "echo", "x", store=False)["id"]
        assert error_code(post_response(house, model="mirror", previous_response_id=id)) == MISSING


def test_a_stored_chain_outlives_the_server(tmp_path: Path) -> None:
    with serve_agents(tmp_path) as house:
        first = create_response(house, "echo", "one")["id"]
        second = create_response(house, "echo", "two", previous_response_id=first)
    with serve_agents(tmp_path) as house:
        assert get_response(house, second["id"]) == second
        third = create_response(house, "mirror", "three", previous_response_id=second["id"])
    assert [text for role, text in read_mirror(third) if role == "user"] == ["one", "two", "three"]
