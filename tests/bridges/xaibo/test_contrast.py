"""What Xaibo's own adapter gets wrong and ours does not: the same agents, asked in the same way."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bridges.xaibo.servers import XaiboServer
from tests.http_client import http_client, post_response, wait_until
from tests.server.stateful_server import output_text

DOOR = "/openai"
Json = dict[str, Any]


def ask(address: str, model: str, input: object = "Hi!", **body: object) -> Json:
    """Create a response."""
    return post_response(address, DOOR, model=model, input=input, **body).json()


def read_stream(address: str, model: str) -> tuple[list[Json], bool]:
    """Return the events of a stream, and whether it ended with `[DONE]`."""
    text = post_response(address, DOOR, model=model, stream=True).text
    data = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"], data[-1] == "[DONE]"


def call(address: str, method: str, path: str, **params: str | int) -> httpx.Response:
    """Make one request about a stored response."""
    with http_client(address) as http:
        return http.request(method, f"{DOOR}/responses/{path}", params=params)


def deltas(events: list[Json]) -> list[str]:
    """Return the deltas of the text."""
    return [event["delta"] for event in events if event["type"] == "response.output_text.delta"]


def test_all_deltas_arrive(ours: str, theirs: str) -> None:
    words = [f"word{number} " for number in range(20)]
    assert deltas(read_stream(ours, "words")[0]) == words
    events, _ = read_stream(theirs, "words")
    assert output_text(events[-1]["response"]) == "".join(words)
    assert len(deltas(events)) < 20


def test_all_deltas_of_an_agent_that_never_waits_arrive(ours: str, theirs: str) -> None:
    assert deltas(read_stream(ours, "burst")[0]) == [f"word{number} " for number in range(300)]
    assert len(deltas(read_stream(theirs, "burst")[0])) < 300


def test_sequence_numbers_count_the_events(ours: str, theirs: str) -> None:
    numbers = [event["sequence_number"] for event in read_stream(ours, "words")[0]]
    assert numbers == list(range(len(numbers)))
    numbers = [event["sequence_number"] for event in read_stream(theirs, "words")[0]]
    assert len(set(numbers)) < len(numbers)


def test_a_stream_ends_with_its_agent(ours: str, theirs: str) -> None:
    # Ours would wait for longer than the client does.
    assert deltas(read_stream(ours, "paced")[0]) == ["word0 ", "word1 ", "word2 "]
    begin = time.monotonic()
    read_stream(theirs, "paced")
    # The agent takes 0.4 s, and the timeout is 1 s.
    assert time.monotonic() - begin >= 1


def test_a_failed_stream_is_complete(ours: str, theirs: str) -> None:
    events, done = read_stream(ours, "fail")
    assert [events[-1]["type"], done] == ["response.failed", True]
    assert output_text(events[-1]["response"]) == "It begins well"
    assert call(ours, "GET", events[-1]["response"]["id"]).json()["status"] == "failed"
    events, done = read_stream(theirs, "fail")
    assert [events[-1]["type"], done] == ["response.failed", False]
    assert events[-1]["response"]["output"] == []
    assert call(theirs, "GET", events[-1]["response"]["id"]).status_code == 404


def test_an_unknown_model_is_an_error_before_the_stream(ours: str, theirs: str) -> None:
    assert post_response(ours, DOOR, model="nobody", stream=True).status_code == 400
    with pytest.raises(httpx.RemoteProtocolError):
        post_response(theirs, DOOR, model="nobody", stream=True)


def test_a_background_response_does_not_block(ours: str, theirs: str) -> None:
    response = ask(ours, "paced", background=True)
    assert response["status"] in ("queued", "in_progress")
    wait_until(lambda: call(ours, "GET", response["id"]).json()["status"] == "completed")
    assert ask(theirs, "paced", background=True)["status"] == "completed"


def test_cancelling_cancels_the_agent(xaibo: XaiboServer, ours: str, theirs: str) -> None:
    response = ask(ours, "endless", "cancel me", background=True)
    wait_until(lambda: "cancel me" in xaibo.get("/endless")["started"])
    assert call(ours, "POST", f"{response['id']}/cancel").json()["status"] == "cancelled"
    wait_until(lambda: "cancel me" in xaibo.get("/endless")["stopped"])
    # Theirs can only change what is over.
    finished = ask(theirs, "echo", background=True)["id"]
    assert call(theirs, "POST", f"{finished}/cancel").json()["status"] == "cancelled"
    finished = ask(ours, "paced", background=True)["id"]
    wait_until(lambda: call(ours, "GET", finished).json()["status"] == "completed")
    call(ours, "POST", f"{finished}/cancel")
    assert call(ours, "GET", finished).json()["status"] == "completed"


def test_a_client_that_disconnects_stops_its_agent(xaibo: XaiboServer, ours: str, theirs: str) -> None:
    leave_stream(theirs, "endless", "I leave theirs")
    leave_stream(ours, "endless", "I leave ours")
    wait_until(lambda: "I leave ours" in xaibo.get("/endless")["stopped"])
    assert "I leave theirs" not in xaibo.get("/endless")["stopped"]


def leave_stream(address: str, model: str, input: str) -> None:
    """Disconnect after the first delta of a stream."""
    body = {"model": model, "input": input, "stream": True}
    with http_client(address) as http, http.stream("POST", f"{DOOR}/responses", json=body) as answer:
        next(chunk for chunk in answer.iter_text() if "output_text.delta" in chunk)


def test_what_is_not_to_be_stored_is_not_stored(xaibo: XaiboServer, ours: str, theirs: str) -> None:
    for address in (ours, theirs):
        ask(address, "echo", "a secret of mine", store=False)
        ask(address, "echo", "a known thing")
    texts = ("a known thing", "a secret of mine")
    assert [holds(xaibo.folder / "data/responses", text) for text in texts] == [True, False]
    assert [holds(xaibo.folder / "theirs", text) for text in texts] == [True, True]


def holds(folder: Path, text: str) -> bool:
    """Return whether any file of a folder contains a text."""
    return any(text.encode() in path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize(
    "item", [{"role": "user", "content": "Bonjour"}, {"type": "message", "role": "user", "content": "Bonjour"}]
)
def test_array_input_is_read(ours: str, theirs: str, item: Json) -> None:
    assert output_text(ask(ours, "echo", [item])) == "You said: Bonjour"
    assert output_text(ask(theirs, "echo", [item])) == "You said: Hello"


def test_instructions_reach_the_agent(ours: str, theirs: str) -> None:
    assert "Rhyme." in output_text(ask(ours, "prompt", instructions="Rhyme."))
    assert "Rhyme." not in output_text(ask(theirs, "prompt", instructions="Rhyme."))


def test_the_users_message_is_there_once(ours: str, theirs: str) -> None:
    assert output_text(ask(ours, "appends", "Only once")).count("Only once") == 1
    assert output_text(ask(theirs, "appends", "Only once")).count("Only once") == 2


def test_tokens_are_counted(ours: str, theirs: str) -> None:
    assert ask(ours, "tools")["usage"]["total_tokens"] == 42
    assert ask(theirs, "tools")["usage"]["total_tokens"] == 0


def test_input_items_are_sorted_and_paged(ours: str, theirs: str) -> None:
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": t}]} for t in "abc"]
    ids = {address: ask(address, "echo", items)["id"] for address in (ours, theirs)}

    def texts(address: str, **params: str) -> list[str]:
        page = call(address, "GET", f"{ids[address]}/input_items", **params).json()
        return [item["content"][0]["text"] for item in page["data"]]

    assert [texts(ours, order="asc"), texts(ours, order="desc")] == [["a", "b", "c"], ["c", "b", "a"]]
    assert texts(theirs, order="asc") == texts(theirs, order="desc")
    pages = {s: call(s, "GET", f"{ids[s]}/input_items", limit=3).json()["has_more"] for s in (ours, theirs)}
    assert [pages[ours], pages[theirs]] == [False, True]


def test_a_stored_response_is_what_was_sent(ours: str, theirs: str) -> None:
    sent = ask(ours, "echo", user="ada")
    assert call(ours, "GET", sent["id"]).json() == sent
    sent = ask(theirs, "echo", user="ada")
    stored = call(theirs, "GET", sent["id"]).json()
    assert [stored["user_id"], stored["store"], stored["background"]] == ["ada", 1, 0]


def test_an_unknown_response_cannot_be_continued(ours: str, theirs: str) -> None:
    unknown = "resp_" + "0" * 48
    assert ask(ours, "echo", previous_response_id=unknown)["error"]["code"] == "previous_response_not_found"
    assert ask(theirs, "echo", previous_response_id=unknown)["status"] == "completed"


def test_a_silent_agent_says_an_empty_text(ours: str, theirs: str) -> None:
    texts = [ask(address, "silent")["output"][0]["content"][0]["text"] for address in (ours, theirs)]
    assert texts == ["", None]
