"""Responses in conversations: their input, the items they add, and locking."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol.items import Message
from antiphon.server.settings import Settings
from tests.http_client import http_client, parse_stream, wait_until
from tests.run_server import run_server
from tests.spec.schema_checks import check_response

RELEASE = threading.Event()


@agent("witness")
async def witness(turn: Turn) -> str:
    """Return the roles and texts of all messages."""
    return " ".join(item.text if isinstance(item, Message) else item.type for item in turn.items)


@agent("held")
async def held(turn: Turn) -> AsyncIterator[str]:
    """Says a word, and the rest when it is released."""
    yield "Wait"
    while not RELEASE.is_set():
        await asyncio.sleep(0.01)
    if "FAIL" in turn.text:
        raise RuntimeError("asked to fail")
    yield " over."


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve with each store in turn."""
    folder: Path | None = None
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("responses")
    with run_server(Settings(agents=[witness, held], responses_dir=folder)) as address:
        yield address


@pytest.fixture(params=["/v1", "/openai/v1"])
def http(request: pytest.FixtureRequest, address: str) -> Iterator[httpx.Client]:
    """Return a client at each door; models do not wait unless the test requests it."""
    RELEASE.set()
    with http_client(address + request.param) as http:
        yield http
    RELEASE.set()


def make(http: httpx.Client, *items: object) -> str:
    """Make a conversation; return its id."""
    return http.post("/conversations", json={"items": items}).json()["id"]


def ask(http: httpx.Client, conversation: object, **body: object) -> httpx.Response:
    """Ask for a response in a conversation."""
    requested = {"model": "witness", "input": "?", "conversation": conversation, **body}
    return http.post("/responses", json=requested)


def items_of(http: httpx.Client, id: str) -> list[dict[str, Any]]:
    """Return everything in a conversation."""
    page = http.get(f"/conversations/{id}/items", params={"order": "asc", "limit": 100})
    return page.json()["data"]


def texts(http: httpx.Client, id: str) -> list[str]:
    """Return the texts of a conversation."""
    return [part["text"] for item in items_of(http, id) for part in item["content"]]


def text_of(answer: httpx.Response) -> str:
    """Return the text of a completed response."""
    response = answer.json()
    assert response["status"] == "completed", response
    (message,) = response["output"]
    return message["content"][0]["text"]


@contextmanager
def running(http: httpx.Client, id: str, **body: object) -> Iterator[str]:
    """Keep a response waiting in a conversation, in the background; give its id."""
    RELEASE.clear()
    started = ask(http, id, model="held", background=True, **body).json()
    assert started["conversation"] == {"id": id}
    yield started["id"]
    RELEASE.set()
    wait_until(lambda: http.get(f"/responses/{started['id']}").json()["completed_at"] is not None)


@pytest.mark.parametrize("stream", [False, True])
def test_responses_in_one_conversation_see_each_other(http: httpx.Client, stream: bool) -> None:
    id = make(http, {"role": "user", "content": "one"})

    def say(conversation: object, text: str) -> dict[str, Any]:
        answer = ask(http, conversation, input=text, stream=stream)
        response = parse_stream(answer.text)[-1]["response"] if stream else answer.json()
        check_response(response)
        assert response["conversation"] == {"id": id}
        assert http.get(f"/responses/{response['id']}").json() == response
        return response

    first = say(id, "two")
    second = say({"id": id}, "three")
    assert texts(http, id) == ["one", "two", "one two", "three", "one two one two three"]
    items = items_of(http, id)
    assert [items[2], items[4]] == first["output"] + second["output"]
    inputs = http.get(f"/responses/{second['id']}/input_items").json()["data"]
    assert [item["id"] for item in inputs] == [items[3]["id"]]


def test_items_added_and_deleted_between_responses_count(http: httpx.Client) -> None:
    id = make(http)
    assert text_of(ask(http, id, input="one")) == "one"
    added = {"items": [{"role": "user", "content": "two"}]}
    http.post(f"/conversations/{id}/items", json=added)
    http.delete(f"/conversations/{id}/items/{items_of(http, id)[0]['id']}")
    assert text_of(ask(http, id, input="three")) == "one two three"
    assert text_of(ask(http, id, input=None)) == "one two three one two three"


def test_images_and_calls_survive(http: httpx.Client) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    id = make(http, {"role": "user", "content": [image]})
    called = ask(http, id, model="demo", input="The weather?", tools=[tool]).json()["output"][0]
    output = {"type": "function_call_output", "call_id": called["call_id"], "output": "Rain."}
    answered = ask(http, id, model="demo", input=[output], tools=[tool])
    assert text_of(answered) == "get_weather says: Rain."
    seen = ask(http, id, model="demo", input="And the picture?")
    assert text_of(seen).endswith("I was shown 1 image. This conversation has 4 messages.")
    items = items_of(http, id)
    kinds = ["message", "message", "function_call", "function_call_output", *["message"] * 3]
    assert [item["type"] for item in items] == kinds
    assert items[0]["content"] == [image]
    assert items[2] == called
    assert items[3] == {**output, "id": items[3]["id"], "status": "completed"}
    assert ask(http, make(http), model="demo", input=[output]).status_code == 400


def test_a_cut_answer_joins_and_a_failed_one_does_not(http: httpx.Client) -> None:
    id = make(http, {"role": "user", "content": "Hi!"})
    for stream in (False, True):
        failed = ask(http, id, model="demo", input="FAIL", stream=stream)
        assert "server_error" in failed.text
        refused = ask(http, id, model="demo", input="?", tool_choice="required", stream=stream)
        assert refused.status_code == 400
        assert texts(http, id) == ["Hi!"]
    cut = ask(http, id, model="demo", input="A story!", max_output_tokens=16).json()
    assert cut["status"] == "incomplete"
    assert texts(http, id) == ["Hi!", "A story!", cut["output"][0]["content"][0]["text"]]
    assert items_of(http, id)[2]["status"] == "incomplete"


def test_a_background_response_joins_when_it_ends(http: httpx.Client) -> None:
    id = make(http)
    with running(http, id, input="one"):
        assert items_of(http, id) == []
    assert texts(http, id) == ["one", "Wait over."]
    with running(http, id, input="FAIL"):
        pass
    with running(http, id, input="two") as response:
        assert http.post(f"/responses/{response}/cancel").json()["status"] == "cancelled"
    assert texts(http, id) == ["one", "Wait over."]
    streamed = ask(http, id, input="three", background=True, stream=True)
    assert parse_stream(streamed.text)[-1]["response"]["status"] == "completed"
    assert texts(http, id)[2:] == ["three", "one Wait over. three"]


def test_a_conversation_outlives_its_responses_and_they_outlive_it(http: httpx.Client) -> None:
    id = make(http)
    first, second = (ask(http, id, input=text).json() for text in ("one", "two"))
    http.delete(f"/responses/{first['id']}")
    assert texts(http, id) == ["one", "one", "two", "one one two"]
    http.delete(f"/conversations/{id}")
    assert http.get(f"/responses/{second['id']}").json() == second
    with running(http, other := make(http)) as response:
        http.delete(f"/conversations/{other}")
    assert http.get(f"/responses/{response}").json()["status"] == "completed"
    assert http.get(f"/conversations/{other}").status_code == 404


def refused(answer: httpx.Response) -> tuple[int, str, str]:
    """Return an error's status, code and param."""
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_a_second_response_at_the_same_time_is_a_conflict(http: httpx.Client) -> None:
    id = make(http)
    with running(http, id) as first:
        for options in ({}, {"stream": True}, {"background": True}):
            answer = ask(http, id, **options)
            assert refused(answer) == (409, "conversation_busy", "conversation")
            assert answer.headers["retry-after"] == "1"
        assert text_of(ask(http, make(http))) == "?"
        assert http.get(f"/responses/{first}").json()["status"] == "in_progress"
    assert text_of(ask(http, id)) == "? Wait over. ?"


def test_the_same_request_again_is_not_a_second_one(http: httpx.Client) -> None:
    id = make(http)
    body = json.dumps({"model": "witness", "input": "one", "conversation": id})
    headers = {"content-type": "application/json", "idempotency-key": f"key of {id}"}
    answers = [http.post("/responses", content=body, headers=headers) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert texts(http, id) == ["one", "one"]


@pytest.mark.parametrize("id", ["conv_" + "0" * 48, "conv_short", "", "\0"])
@pytest.mark.parametrize("options", [{}, {"stream": True}, {"background": True}])
def test_an_unknown_conversation_is_not_found(http: httpx.Client, id: str, options: dict[str, bool]) -> None:
    answer = ask(http, id, **options)
    assert refused(answer) == (404, "conversation_not_found", "conversation")


def test_a_conversation_excludes_other_parameters(http: httpx.Client) -> None:
    id = make(http)
    assert refused(ask(http, id, store=False)) == (400, "store_required", "conversation")
    both = ask(http, id, previous_response_id="resp_" + "0" * 48)
    assert refused(both) == (400, "mutually_exclusive_parameters", "conversation")
    for wrong in (1, [], {}, {"id": None}):
        answer = ask(http, wrong)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] in ("conversation", "conversation.id")


def test_a_response_in_a_conversation_is_continued_there(http: httpx.Client) -> None:
    # Whatever came before it may have been changed or deleted since.
    response = ask(http, make(http)).json()["id"]
    chained = ask(http, None, previous_response_id=response)
    code, param = "previous_response_in_conversation", "previous_response_id"
    assert refused(chained) == (400, code, param)
