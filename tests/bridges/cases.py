"""The cases that the agent `assistant` passes over HTTP, whatever framework it is written with.

A framework joins in three steps:

1. `tests/bridges/agents/NAME.py` defines `assistant` with the framework's own means: the instructions `PROMPT` and the
   tools of `agents/tools.py`. Its model is `scripted`, called with the framework's own OpenAI classes; its address is
   in the environment (`OPENAI_BASE_URL`, `OPENAI_API_KEY`). The module must not import what only tests need.
2. A test module defines a fixture named `assistant`, of the scope "module", that yields what `serve_assistant` gives:

       @pytest.fixture(scope="module")
       def assistant() -> Iterator[Assistant]:
           with serve_assistant("tests.bridges.agents.NAME:assistant") as served:
               yield served

   A framework in another environment passes `python=` that environment's Python; antiphon must be installed there.
3. It inherits from the cases: `class TestName(AssistantCases): ...`

What the model answers is in `scripted_model.py`.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from tests.bridges.scripted_model import GREETING
from tests.bridges.serve_assistant import Assistant
from tests.http_client import http_client, parse_event, post_response, stream_events, wait_until
from tests.server.stateful_server import output_text, replay, wait_until_ended
from tests.spec.schema_checks import check_event, check_response

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of 70 bytes, in base64."""

GET_USER: Json = {"type": "function", "name": "get_user", "parameters": {"type": "object", "properties": {}}}
GET_PLACE: Json = {
    "type": "function",
    "name": "get_place",
    "description": "Find out where the user is.",
    "parameters": {
        "type": "object",
        "properties": {"precision": {"type": "string", "enum": ["city", "street"]}},
        "required": ["precision"],
    },
}
CLIENT_TOOLS = [GET_USER, GET_PLACE]

CLOTHES_QUESTION = "What shall I wear in Oslo?"
CLOTHES_ANSWER = "In Oslo there is snow. Wear a warm coat."
USER_QUESTION = "Who am I, and where?"
MIXED_QUESTION = "How is the weather where I am?"

# How a call is shown, without its ids.
GET_WEATHER_CALL = ["call", "get_weather", {"city": "Oslo"}]
GET_PLACE_CALL = ["call", "get_place", {"precision": "city"}]
CLOTHES_OUTPUT = [
    GET_WEATHER_CALL,
    ["output", "snow"],
    ["message", "I look in the wardrobe."],
    ["call", "choose_clothes", {"weather": "snow"}],
    ["output", "a warm coat"],
    ["message", CLOTHES_ANSWER],
]
"""The output of a response to `CLOTHES_QUESTION`."""


class AssistantCases:
    """The shared cases."""

    def test_it_answers(self, assistant: Assistant) -> None:
        response = ask(assistant, "Hi.")
        assert summarize(response) == [["message", "Hello from the model."]]

    def test_a_stream_is_legal_and_its_deltas_are_the_text(self, assistant: Assistant) -> None:
        events = stream(assistant, "Hi.")
        assert deltas(events) == GREETING
        assert output_text(events[-1]["response"]) == "".join(GREETING)

    def test_a_delta_arrives_before_the_model_has_ended(self, assistant: Assistant) -> None:
        assistant.model.release.clear()
        with open_stream(assistant, "Wait.") as events:
            seen = read_until(events, lambda event: event["type"] == "response.output_text.delta")
            assert deltas(seen) == ["One moment, "]
            assistant.model.release.set()
            rest = list(events)
        assert output_text(rest[-1]["response"]) == "One moment, please."

    def test_its_own_tools_run_in_two_rounds(self, assistant: Assistant) -> None:
        response = ask(assistant, CLOTHES_QUESTION)
        assert summarize(response) == CLOTHES_OUTPUT
        check_pairs(response)

    def test_a_stream_shows_its_own_calls_and_their_outputs(self, assistant: Assistant) -> None:
        events = stream(assistant, CLOTHES_QUESTION)
        response = events[-1]["response"]
        assert summarize(response) == CLOTHES_OUTPUT
        check_pairs(response)
        assert "".join(deltas(events)) == output_text(response)
        assert deltas(events)[-3:] == ["In Oslo there is ", "snow", ". Wear a warm coat."]

    def test_a_call_arrives_before_its_tool_has_ended(self, assistant: Assistant) -> None:
        assistant.work_log.unlink(missing_ok=True)
        with open_stream(assistant, "Work.") as events:
            seen = read_until(events, lambda event: event["type"] == "response.output_item.done")
            assert summarize_items([seen[-1]["item"]]) == [["call", "work", {}]]
            wait_until(lambda: "working" in assistant.work_lines)
        wait_until(lambda: assistant.work_lines[-1] == "stopped")

    def test_the_client_runs_its_own_tools(self, assistant: Assistant) -> None:
        first = ask(assistant, USER_QUESTION, tools=CLIENT_TOOLS)
        assert summarize(first) == [["call", "get_user", {}], GET_PLACE_CALL]
        outputs = answer_calls(first, get_user="Ada", get_place="Rome")
        second = ask(assistant, outputs, tools=CLIENT_TOOLS, previous_response_id=first["id"])
        assert summarize(second) == [["message", "You are Ada in Rome."]]

    def test_the_client_runs_its_own_tools_without_stored_responses(self, assistant: Assistant) -> None:
        events = stream(assistant, USER_QUESTION, tools=CLIENT_TOOLS, store=False)
        first = events[-1]["response"]
        assert summarize(first) == [["call", "get_user", {}], GET_PLACE_CALL]
        outputs = answer_calls(first, get_place="Rome", get_user="Ada")
        # In the other order: the call_id decides which output is whose.
        items = [message(USER_QUESTION), *first["output"], *outputs[::-1]]
        second = stream(assistant, items, tools=CLIENT_TOOLS, store=False)[-1]["response"]
        assert summarize(second) in ([["message", "You are Ada in Rome."]], [["message", "You are Rome in Ada."]])

    def test_one_round_may_call_a_tool_of_each_side(self, assistant: Assistant) -> None:
        first = ask(assistant, MIXED_QUESTION, tools=CLIENT_TOOLS)
        shown = summarize(first)
        assert sorted(map(json.dumps, shown)) == sorted(
            map(json.dumps, [GET_WEATHER_CALL, GET_PLACE_CALL, ["output", "snow"]])
        )
        outputs = answer_calls(first, get_place="Oslo")
        second = ask(assistant, outputs, tools=CLIENT_TOOLS, previous_response_id=first["id"])
        assert summarize(second) == [["message", "There is snow in Oslo."]]

    def test_reasoning_comes_before_the_text(self, assistant: Assistant) -> None:
        events = stream(assistant, "Think.")
        response = events[-1]["response"]
        assert summarize(response) == [["reasoning", "I have to think."], ["message", "I have thought."]]
        assert len([event for event in events if "reasoning" in event["type"] and "delta" in event["type"]]) == 2

    def test_it_sees_an_image(self, assistant: Assistant) -> None:
        content = [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        ]
        response = ask(assistant, [{"type": "message", "role": "user", "content": content}])
        assert output_text(response) == "I see image/png of 70 bytes."

    def test_its_own_instructions_and_those_of_the_request_reach_the_model(self, assistant: Assistant) -> None:
        response = ask(assistant, "What are your instructions?", instructions="Answer in Latin.")
        lines = output_text(response).split("\n")
        assert [lines.count("Be kind."), lines.count("Answer in Latin.")] == [1, 1]

    def test_a_developer_message_reaches_the_model(self, assistant: Assistant) -> None:
        items = [message("Answer in Greek.", role="developer"), message("What are your instructions?")]
        assert "Answer in Greek." in output_text(ask(assistant, items)).split("\n")

    def test_usage_is_that_of_every_call_of_the_model(self, assistant: Assistant) -> None:
        one, three = ask(assistant, "Hi.")["usage"], ask(assistant, CLOTHES_QUESTION)["usage"]
        assert [one["input_tokens"], one["output_tokens"], one["total_tokens"]] == [10, 5, 15]
        assert [three["input_tokens"], three["output_tokens"], three["total_tokens"]] == [30, 15, 45]

    def test_usage_has_the_details(self, assistant: Assistant) -> None:
        usage = stream(assistant, CLOTHES_QUESTION)[-1]["response"]["usage"]
        assert usage["input_tokens_details"] == {"cached_tokens": 6}
        assert usage["output_tokens_details"] == {"reasoning_tokens": 3}

    def test_a_chain_has_every_message_once(self, assistant: Assistant) -> None:
        first = ask(assistant, "Hi.")
        second = ask(assistant, "Think.", previous_response_id=first["id"])
        third = ask(assistant, "What did I say?", previous_response_id=second["id"])
        assert json.loads(output_text(third)) == [
            ["user", "Hi."],
            ["assistant", "Hello from the model."],
            ["user", "Think."],
            ["assistant", "I have thought."],
            ["user", "What did I say?"],
        ]

    def test_a_chain_has_the_calls_of_the_agent_and_their_outputs(self, assistant: Assistant) -> None:
        first = ask(assistant, CLOTHES_QUESTION)
        second = ask(assistant, "What did I say?", previous_response_id=first["id"])
        assert json.loads(output_text(second)) == [
            ["user", CLOTHES_QUESTION],
            ["call", "get_weather", '{"city":"Oslo"}'],
            ["output", "snow"],
            ["assistant", "I look in the wardrobe."],
            ["call", "choose_clothes", '{"weather":"snow"}'],
            ["output", "a warm coat"],
            ["assistant", CLOTHES_ANSWER],
            ["user", "What did I say?"],
        ]

    def test_concurrent_conversations_do_not_mix(self, assistant: Assistant) -> None:
        def chain(number: int) -> list[str]:
            first = ask(assistant, f"I am {number}.")
            said = json.loads(output_text(ask(assistant, "What did I say?", previous_response_id=first["id"])))
            return [text for role, text in said if role == "user"]

        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(chain, range(8)))
        assert said == [[f"I am {number}.", "What did I say?"] for number in range(8)]

    def test_a_failure_is_a_failed_response_without_a_traceback(self, assistant: Assistant) -> None:
        events = stream(assistant, "Fail.")
        response = events[-1]["response"]
        assert events[-1]["type"] == "response.failed"
        assert [response["status"], response["error"]["code"]] == ["failed", "server_error"]
        check_no_traceback(json.dumps(events))

    def test_a_failure_that_is_not_streamed_has_a_reason_too(self, assistant: Assistant) -> None:
        answer = post_response(assistant.url, model="assistant", input="Fail.")
        error = answer.json()["error"]
        assert error["code"] == "server_error", answer.text
        check_no_traceback(answer.text)

    def test_it_answers_after_a_failure(self, assistant: Assistant) -> None:
        stream(assistant, "Fail.")
        assert output_text(ask(assistant, "Hi.")) == "Hello from the model."

    def test_a_client_that_disconnects_stops_the_model(self, assistant: Assistant) -> None:
        before = assistant.model.stopped
        with open_stream(assistant, "Count.") as events:
            read_until(events, lambda event: event["type"] == "response.output_text.delta")
        wait_until(lambda: assistant.model.stopped == before + 1)

    def test_cancelling_stops_the_model(self, assistant: Assistant) -> None:
        before = assistant.model.stopped
        with open_stream(assistant, "Count.", background=True) as events:
            seen = read_until(events, lambda event: event["type"] == "response.output_text.delta")
            cancelled = cancel(assistant, seen[0]["response"])
        assert cancelled["status"] == "cancelled"
        wait_until(lambda: assistant.model.stopped == before + 1)
        assert output_text(wait_until_ended(assistant.url, cancelled["id"])).startswith("more ")

    def test_cancelling_stops_a_tool_of_the_agent(self, assistant: Assistant) -> None:
        assistant.work_log.unlink(missing_ok=True)
        response = ask(assistant, "Work.", background=True)
        wait_until(lambda: "working" in assistant.work_lines)
        assert cancel(assistant, response)["status"] == "cancelled"
        wait_until(lambda: assistant.work_lines[-1] == "stopped")

    def test_a_background_response_is_returned_before_it_is_made(self, assistant: Assistant) -> None:
        assistant.model.release.clear()
        response = ask(assistant, "Wait.", background=True)
        assert response["status"] in ("queued", "in_progress")
        assistant.model.release.set()
        ended = wait_until_ended(assistant.url, response["id"])
        assert [ended["status"], output_text(ended)] == ["completed", "One moment, please."]

    def test_a_background_stream_can_be_resumed(self, assistant: Assistant) -> None:
        whole = stream(assistant, CLOTHES_QUESTION, background=True)
        half = len(whole) // 2
        assert replay(assistant.url, whole[0]["response"]["id"], half) == whole[half + 1 :]


def ask(assistant: Assistant, input: object, **body: Any) -> Json:
    """Have a response made and return it, checked."""
    answer = post_response(assistant.url, model="assistant", input=input, **body)
    assert answer.status_code == 200, answer.text
    response = answer.json()
    check_response(response)
    return response


def stream(assistant: Assistant, input: object, **body: Any) -> list[Json]:
    """Have a response streamed and return its events, checked."""
    events = stream_events(assistant.url, model="assistant", input=input, **body)
    assert find_violations(map(decode_event, events)) == []
    for event in events:
        check_event(event)
    return events


@contextmanager
def open_stream(assistant: Assistant, input: str, *, background: bool = False) -> Iterator[Iterator[Json]]:
    """Stream a response and give its events as they come; leaving disconnects."""
    body = {"model": "assistant", "input": input, "stream": True, "background": background}
    with http_client(assistant.url) as http, http.stream("POST", "/v1/responses", json=body) as answer:
        yield iterate_events(answer.iter_text())


def iterate_events(chunks: Iterator[str]) -> Iterator[Json]:
    """Yield the events of a stream until `[DONE]`."""
    buffer = ""
    for chunk in chunks:
        *frames, buffer = (buffer + chunk).split("\n\n")
        yield from (parse_event(frame) for frame in frames if frame.startswith("event:"))


def read_until(events: Iterator[Json], found: Callable[[Json], bool]) -> list[Json]:
    """Read events up to the first that is looked for."""
    seen: list[Json] = []
    for event in events:
        seen.append(event)
        if found(event):
            return seen
    raise AssertionError(f"the stream ended before: {seen}")


def cancel(assistant: Assistant, response: Json) -> Json:
    """Cancel a background response."""
    with http_client(assistant.url) as http:
        return http.post(f"/v1/responses/{response['id']}/cancel").json()


def message(text: str, role: str = "user") -> Json:
    """Return a message."""
    return {"type": "message", "role": role, "content": text}


def answer_calls(response: Json, **outputs: str) -> list[Json]:
    """Return the outputs of the calls of a response that the client runs."""
    calls = [item for item in response["output"] if item["type"] == "function_call" and item["name"] in outputs]
    assert len(calls) == len(outputs)
    return [
        {"type": "function_call_output", "call_id": call["call_id"], "output": outputs[call["name"]]} for call in calls
    ]


def deltas(events: list[Json]) -> list[str]:
    """Return the deltas of the text."""
    return [event["delta"] for event in events if event["type"] == "response.output_text.delta"]


def summarize(response: Json) -> list[list[Any]]:
    """Return the output of a completed response without ids."""
    assert response["status"] == "completed", response
    assert "antiphon:warnings" not in response, response["antiphon:warnings"]
    return summarize_items(response["output"])


def summarize_items(items: list[Json]) -> list[list[Any]]:
    """Return items without ids."""
    summary: list[list[Any]] = []
    for item in items:
        match item["type"]:
            case "function_call":
                summary.append(["call", item["name"], json.loads(item["arguments"])])
            case "function_call_output":
                summary.append(["output", item["output"]])
            case "reasoning":
                pieces = [*item["summary"], *item.get("content", [])]
                summary.append(["reasoning", "".join(piece["text"] for piece in pieces)])
            case kind:
                summary.append([kind, "".join(piece["text"] for piece in item["content"])])
    return summary


def check_pairs(response: Json) -> None:
    """Check that every call is followed by an output with its call_id, and that no id is used twice."""
    calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in response["output"] if item["type"] == "function_call_output"]
    assert calls == outputs
    assert len(set(calls)) == len(calls)


def check_no_traceback(text: str) -> None:
    """Check that a client learns nothing of the inside."""
    for word in ("Traceback", 'File \\"', ".py"):
        assert word not in text
