"""A response continues another: what was said before is heard again, and nothing else is."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.asking import ask, client, event_of, eventually
from tests.server.stateful import BOTH, UNKNOWN, call, finished, found, keeping, made, refused, said

MISSING = (400, "previous_response_not_found", "previous_response_id")


@pytest.fixture(params=["hot", "cold"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Serve with a memory of what was just said, or with none."""
    room = 64 * 1024 * 1024 if request.param == "hot" else 0
    with keeping(tmp_path, memory_bytes=room) as address:
        yield address


def heard(response: dict[str, Any]) -> list[list[str]]:
    """Return what a mirror was given to read."""
    return json.loads(said(response))["said"]


def answered(response: dict[str, Any]) -> list[str]:
    """Return a response as it is heard in the next turn."""
    return ["assistant", said(response)]


@pytest.mark.parametrize("door", BOTH)
def test_each_turn_hears_all_that_came_before_it_in_order(place: str, door: str) -> None:
    first = made(place, "mirror", "one", door)
    second = made(place, "mirror", "two", door, previous_response_id=first["id"])
    third = made(
        place,
        "mirror",
        [{"role": "system", "content": "be kind"}, {"role": "user", "content": "three"}],
        door,
        previous_response_id=second["id"],
    )
    turns = [["user", "one"], answered(first), ["user", "two"], answered(second)]
    assert heard(first) == turns[:1]
    assert heard(second) == turns[:3]
    assert heard(third) == [*turns, ["system", "be kind"], ["user", "three"]]
    assert third["previous_response_id"] == second["id"]


def test_instructions_are_not_inherited(place: str) -> None:
    first = made(place, "mirror", "one", instructions="Be brief.")
    second = made(place, "mirror", "two", previous_response_id=first["id"])
    assert json.loads(said(first))["instructions"] == "Be brief."
    assert json.loads(said(second))["instructions"] is None
    assert second["instructions"] is None


def test_the_model_may_change_in_mid_chain(place: str) -> None:
    first = made(place, "echo", "one")
    second = made(place, "demo", "two", previous_response_id=first["id"])
    third = made(place, "mirror", "three", previous_response_id=second["id"])
    assert heard(third) == [
        ["user", "one"],
        ["assistant", "one"],
        ["user", "two"],
        answered(second),
        ["user", "three"],
    ]


def test_a_chain_may_go_on_without_input(place: str) -> None:
    first = made(place, "echo", "one")
    body = {"model": "mirror", "previous_response_id": first["id"]}
    answer = call(place, "POST", "/v1/responses", json=body)
    assert heard(answer.json()) == [["user", "one"], ["assistant", "one"]]


def test_forks_do_not_see_each_other(place: str) -> None:
    root = made(place, "echo", "root")["id"]
    forks = [made(place, "echo", f"fork {n}", previous_response_id=root)["id"] for n in range(3)]
    for n, fork in enumerate(forks):
        leaf = made(place, "mirror", "leaf", previous_response_id=fork)
        assert heard(leaf) == [
            ["user", "root"],
            ["assistant", "root"],
            ["user", f"fork {n}"],
            ["assistant", f"fork {n}"],
            ["user", "leaf"],
        ]


@pytest.mark.parametrize("model", ["counter", "endless"])
def test_what_a_broken_or_cancelled_turn_said_is_part_of_the_chain(place: str, model: str) -> None:
    id = made(place, model, "2 broken", background=True)["id"]
    eventually(lambda: found(place, id)["status"] != "queued")
    if model == "endless":
        call(place, "POST", f"/v1/responses/{id}/cancel")
    finished(place, id)
    heard_next = heard(made(place, "mirror", "and?", previous_response_id=id))
    assert heard_next[0] == ["user", "2 broken"]
    assert heard_next[-1] == ["user", "and?"]


def test_a_tool_loop_goes_on_by_its_output_alone(place: str) -> None:
    tools = [{"type": "function", "name": "ping"}]
    first = made(place, "demo", "ping", tools=tools)
    output = {"type": "function_call_output", "output": "pong"}
    output["call_id"] = first["output"][0]["call_id"]
    second = made(place, "demo", [output], tools=tools, previous_response_id=first["id"])
    assert said(second) == "ping says: pong"


# --- what cannot be continued -----------------------------------------------------------------


@pytest.mark.parametrize("id", [UNKNOWN, "resp_1", "../..", "", "x" * 1000, "msg_1"])
def test_an_unknown_parent_is_an_error_of_its_own(house: str, id: str) -> None:
    for stream in (False, True):
        answer = ask(house, model="mirror", previous_response_id=id, stream=stream)
        if id:
            assert refused(answer) == MISSING
        else:
            assert answer.status_code == 200  # which is none at all
    answer = ask(house, "/openai", model="mirror", previous_response_id=UNKNOWN)
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_parent_that_is_still_running_has_to_end_first(house: str) -> None:
    id = made(house, "endless", "go", background=True)["id"]
    answer = ask(house, model="mirror", previous_response_id=id)
    code = "previous_response_in_progress"
    assert refused(answer) == (400, code, "previous_response_id")
    call(house, "POST", f"/v1/responses/{id}/cancel")
    assert ask(house, model="mirror", previous_response_id=id).status_code == 200


# --- at once, and many at once ----------------------------------------------------------------


def test_a_follow_up_sent_the_instant_the_end_arrives_finds_its_parent(house: str) -> None:
    with client(house) as http:
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
                previous = event_of(frames[-1])["response"]["id"]
    last = heard(made(house, "mirror", "end", previous_response_id=previous))
    assert len(last) == 201


def test_conversations_at_once_do_not_mix(house: str) -> None:
    def talk(name: int) -> None:
        previous = None
        for turn in range(4):
            response = made(house, "echo", f"{name}.{turn}", previous_response_id=previous)
            previous = response["id"]
        last = made(house, "mirror", "end", previous_response_id=previous)
        words = [text for role, text in heard(last) if role == "user"]
        assert words == [*(f"{name}.{turn}" for turn in range(4)), "end"]

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(talk, range(50)))


# --- what is not to be stored -----------------------------------------------------------------

SECRET = "xylophone-7391"


def test_what_is_not_stored_can_be_continued_from_memory_and_is_never_on_disk(
    tmp_path: Path,
) -> None:
    with keeping(tmp_path) as house:
        previous = None
        for turn in range(5):
            previous = made(
                house,
                "echo",
                f"{SECRET} {turn}",
                instructions=SECRET,
                metadata={"a": SECRET},
                store=False,
                previous_response_id=previous,
            )["id"]
        last = made(house, "mirror", "end", store=False, previous_response_id=previous)
        assert len(heard(last)) == 11
        made(house, "echo", "stored")
        checkpoint(tmp_path)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    with keeping(tmp_path) as house:
        assert refused(ask(house, model="mirror", previous_response_id=previous)) == MISSING
    files += [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(b"stored" in content for content in files)
    assert not [content for content in files if SECRET.encode() in content]


def checkpoint(folder: Path) -> None:
    """Bring everything that SQLite knows into its main file."""
    connection = sqlite3.connect(folder / "responses.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_nothing_of_what_was_deleted_is_left_in_the_file(tmp_path: Path) -> None:
    with keeping(tmp_path) as house:
        id = made(house, "echo", SECRET, background=True)["id"]
        finished(house, id)
        call(house, "DELETE", f"/v1/responses/{id}")
        checkpoint(tmp_path)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert not [content for content in files if SECRET.encode() in content]


def test_a_stored_child_of_an_unstored_parent_lasts_as_long_as_the_memory(tmp_path: Path) -> None:
    with keeping(tmp_path) as house:
        parent = made(house, "echo", "parent", store=False)["id"]
        child = made(house, "echo", "child", previous_response_id=parent)["id"]
        assert len(heard(made(house, "mirror", "end", previous_response_id=child))) == 5
    with keeping(tmp_path) as house:
        assert refused(ask(house, model="mirror", previous_response_id=child)) == MISSING
        assert found(house, child)["previous_response_id"] == parent


def test_what_was_evicted_is_not_found() -> None:
    with keeping(None, memory_bytes=8000) as house:
        ids = [made(house, "echo", "x" * 300, store=False)["id"] for _ in range(10)]
        statuses = [ask(house, model="mirror", previous_response_id=id).status_code for id in ids]
        assert statuses[0] == 400
        assert refused(ask(house, model="mirror", previous_response_id=ids[0])) == MISSING


def test_what_is_too_old_is_not_found() -> None:
    with keeping(None, memory_seconds=0) as house:
        id = made(house, "echo", "x", store=False)["id"]
        assert refused(ask(house, model="mirror", previous_response_id=id)) == MISSING


def test_a_stored_chain_outlives_the_server(tmp_path: Path) -> None:
    with keeping(tmp_path) as house:
        first = made(house, "echo", "one")["id"]
        second = made(house, "echo", "two", previous_response_id=first)
    with keeping(tmp_path) as house:
        assert found(house, second["id"]) == second
        third = made(house, "mirror", "three", previous_response_id=second["id"])
    assert [text for role, text in heard(third) if role == "user"] == ["one", "two", "three"]
