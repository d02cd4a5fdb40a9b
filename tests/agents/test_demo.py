"""The demo and echo models."""

import asyncio
import base64
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from antiphon.agents import demo as demo_module
from antiphon.agents.agent import Turn
from antiphon.agents.demo import demo, echo
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.engine.sealing import SEAL_PREFIX, ItemSealer, KeyRing
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import RequestError
from antiphon.protocol.events import Event, OutputTextDelta
from antiphon.protocol.items import (
    FunctionCall,
    Item,
    LogProb,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    RefusalContent,
    SummaryText,
    TopLogProb,
    user_message,
)
from antiphon.protocol.request import Request
from antiphon.protocol.response import IncompleteDetails, Response, ResponseError, ResponseUsage
from antiphon.wire.openresponses import decode_request
from tests.engine.recording_sink import RecordingSink

pytestmark = pytest.mark.anyio

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2},
            "days": {"type": "integer", "minimum": 1},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city", "days", "unit"],
        "additionalProperties": False,
    },
}
TIME = {"type": "function", "name": "getLocalTime", "parameters": {"type": "object"}}
BARE = {"type": "function", "name": "ping"}
TOOLS = [WEATHER, TIME, BARE]
GREETING = "Hello from Antiphon's demo model. You said: "


async def run_demo(input: object, **fields: object) -> tuple[Response, list[Event]]:
    """Ask a model, `demo` if no other is named; return its response and its events."""
    sink = RecordingSink()
    request = decode_request({"model": "demo", "input": input, **fields})
    run = await Engine(Models([demo, echo])).create_run(request, sink)
    response = await run.execute()
    assert find_violations(sink.events) == []
    return response, sink.events


async def response_of(input: object, **fields: object) -> Response:
    """Ask a model, and return only its response."""
    response, _ = await run_demo(input, **fields)
    return response


def deltas(events: list[Event]) -> list[str]:
    """Return the text deltas of a stream."""
    return [event.delta for event in events if isinstance(event, OutputTextDelta)]


def calls(output: Sequence[Item]) -> list[tuple[str, Any]]:
    """Return the calls of a response, which must be all there is: names and arguments."""
    assert all(isinstance(item, FunctionCall) for item in output)
    found = [item for item in output if isinstance(item, FunctionCall)]
    return [(item.name, json.loads(item.arguments)) for item in found]


async def test_anything_is_answered_word_by_word() -> None:
    response, events = await run_demo("Good morning!")
    words = ["Hello", " from", " Antiphon's", " demo", " model.", " You", " said:"]
    assert deltas(events) == [*words, " Good", " morning!"]
    [message] = response.output
    assert message == Message(
        id=message.id, status="completed", role="assistant", content=[OutputText(text=f"{GREETING}Good morning!")]
    )
    assert response.status == "completed"


async def test_the_same_question_has_the_same_answer() -> None:
    first, second = await response_of("Hi!"), await response_of("Hi!")
    assert first.output_text == second.output_text


async def test_the_answer_counts_images_files_and_messages() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    file = {"type": "input_file", "file_url": "https://example.com/a.pdf"}
    said = {"type": "input_text", "text": "Look!"}
    one = await response_of([{"role": "user", "content": [said, image]}])
    two = await response_of(
        [
            {"role": "user", "content": [image, image, file]},
            {"role": "assistant", "content": "I see."},
            {"role": "user", "content": [said]},
        ]
    )
    assert one.output_text == f"{GREETING}Look! I was shown 1 image."
    assert two.output_text == (
        f"{GREETING}Look! I was shown 2 images. I was given 1 file. This conversation has 3 messages."
    )


class CountingText(str):
    """A text that counts how often it is searched."""

    searches = 0

    def __contains__(self, text: str) -> bool:
        self.searches += 1
        return super().__contains__(text)


async def test_the_text_is_not_searched_again_for_every_word() -> None:
    text = CountingText("word " * 5000)
    turn = Turn(Request(model="demo"), [user_message(text)])
    turn.__dict__["text"] = text  # where the cached property keeps it
    parts = [part async for part in demo.stream(turn)]
    assert len(parts) > 5000
    assert text.searches < 20


async def test_a_story_has_at_least_sixty_words() -> None:
    response = await response_of("Tell me a Story, please.")
    assert len(response.output_text.split()) >= 60


async def test_slow_sends_at_least_thirty_words_with_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def record_delay(seconds: float) -> None:
        delays.append(seconds)
        await asyncio.sleep(0)

    # For the demo only: the engine's tasks sleep, too.
    monkeypatch.setattr(demo_module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": record_delay}))
    response, events = await run_demo("SLOW")
    words = response.output_text.split()
    assert len(words) == len(deltas(events)) >= 30
    assert delays == [0.1] * len(words)


async def test_refuse_produces_a_refusal() -> None:
    response = await response_of("REFUSE")
    [message] = response.output
    assert message == Message(
        id=message.id,
        status="completed",
        role="assistant",
        content=[RefusalContent(refusal="I was asked to refuse, and so I do.")],
    )


@pytest.mark.parametrize(
    "fields", [{}, {"text": {"format": {"type": "json_object"}}}, {"tools": [BARE]}, {"reasoning": {}}]
)
async def test_fail_fails_in_mid_answer_whatever_the_answer_is(fields: dict[str, object]) -> None:
    response = await response_of("FAIL with a ping", **fields)
    assert response.status == "failed"
    assert response.error == ResponseError(
        code="server_error", message="The model 'demo' failed while answering.", type="server_error"
    )
    assert len(response.output) == 1


async def test_fail_keeps_the_words_before_the_failure() -> None:
    response = await response_of("FAIL")
    [message] = response.output
    assert message == Message(
        id=message.id, status="incomplete", role="assistant", content=[OutputText(text="Hello from Antiphon's demo")]
    )


THOUGHT = "The user said 2 words. I have a script, so I will follow it."


@pytest.mark.parametrize(
    ("reasoning", "content", "summary"),
    [
        ({"effort": "low"}, [ReasoningText(text=THOUGHT)], []),
        (
            {"effort": "high", "summary": "auto"},
            [ReasoningText(text=THOUGHT)],
            [SummaryText(text="Followed the script.")],
        ),
        ({"summary": "concise"}, [ReasoningText(text=THOUGHT)], [SummaryText(text="Followed the script.")]),
    ],
)
async def test_reasoning_comes_first_on_request(reasoning: object, content: list[Any], summary: list[Any]) -> None:
    response = await response_of("Good morning!", reasoning=reasoning)
    thought, message = response.output
    assert thought == Reasoning(id=thought.id, content=content, summary=summary)
    assert isinstance(message, Message)
    assert response.output_text == f"{GREETING}Good morning!"


@pytest.mark.parametrize("reasoning", [None, {}, {"effort": "none"}, {"effort": None}])
async def test_there_is_no_reasoning_by_default(reasoning: object) -> None:
    response = await response_of("Good morning!", reasoning=reasoning)
    assert [item.type for item in response.output] == ["message"]


async def test_reasoning_is_sealed_on_request() -> None:
    include = ["reasoning.encrypted_content"]
    response = await response_of("Good morning!", reasoning={"effort": "low"}, include=include)
    thought = response.output[0]
    assert isinstance(thought, Reasoning)
    assert str(thought.encrypted_content).startswith(SEAL_PREFIX)


async def test_the_seal_of_the_engine_contains_that_of_the_model() -> None:
    seal = KeyRing.ephemeral()
    body = {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}
    request = decode_request({"model": "demo", "input": "Good morning!", **body})
    response = await (await Engine(Models([demo]), key_ring=seal).create_run(request)).execute()
    [thought, _] = ItemSealer(seal, "demo").unseal_items(response.output, "input")
    assert isinstance(thought, Reasoning)
    assert base64.b64decode(str(thought.encrypted_content)).decode() == THOUGHT


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What's the weather in Paris?", "get_weather"),
        ("WEATHER!", "get_weather"),
        ("Which time is it?", "getLocalTime"),
        ("Please ping it", "ping"),
        ("USE_TOOL", "get_weather"),
        ("USE_TOOL for the time", "getLocalTime"),
    ],
)
async def test_a_tool_is_called_by_a_word_of_its_name_or_by_use_tool(text: str, name: str) -> None:
    response = await response_of(text, tools=TOOLS)
    [(called, arguments)] = calls(response.output)
    assert called == name
    assert response.status == "completed"
    schema = next(tool for tool in TOOLS if tool["name"] == name).get("parameters", {})
    Draft202012Validator(schema).validate(arguments)


@pytest.mark.parametrize("text", ["Hello!", "Let me get the list for you", "weatherman", ""])
async def test_no_tool_is_called_unless_the_input_names_one(text: str) -> None:
    response = await response_of(text, tools=TOOLS)
    assert [item.type for item in response.output] == ["message"]


async def test_use_tools_calls_each_tool_in_parallel() -> None:
    response = await response_of("USE_TOOLS", tools=TOOLS)
    assert [name for name, _ in calls(response.output)] == ["get_weather", "getLocalTime", "ping"]
    ids = {item.call_id for item in response.output if isinstance(item, FunctionCall)}
    assert len(ids) == 3
    Draft202012Validator(WEATHER["parameters"]).validate(calls(response.output)[0][1])


async def test_without_parallel_tool_calls_there_is_one_call() -> None:
    response = await response_of("USE_TOOLS", tools=TOOLS, parallel_tool_calls=False)
    assert [name for name, _ in calls(response.output)] == ["get_weather"]


NAMED = {"type": "function", "name": "ping"}
ALLOWED = {"type": "allowed_tools", "tools": [NAMED]}


@pytest.mark.parametrize(
    ("text", "choice", "names"),
    [
        ("Hello!", "auto", []),
        ("Hello!", "required", ["get_weather"]),
        ("What time is it?", "required", ["getLocalTime"]),
        ("Hello!", NAMED, ["ping"]),
        ("What's the weather?", NAMED, ["ping"]),
        ("USE_TOOLS", NAMED, ["ping"]),
        ("USE_TOOLS, weather", "none", []),
        ("What's the weather?", ALLOWED, []),
        ("ping", ALLOWED, ["ping"]),
        ("Hello!", ALLOWED | {"mode": "required"}, ["ping"]),
        ("ping", ALLOWED | {"mode": "none"}, []),
    ],
)
async def test_the_tool_choice_is_obeyed(text: str, choice: object, names: list[str]) -> None:
    response = await response_of(text, tools=TOOLS, tool_choice=choice)
    called = [item.name for item in response.output if isinstance(item, FunctionCall)]
    assert called == names
    assert len(response.output) == max(len(names), 1)


async def test_the_tools_output_is_quoted_in_the_answer() -> None:
    asked = await response_of("USE_TOOLS", tools=[WEATHER, BARE])
    made = [item for item in asked.output if isinstance(item, FunctionCall)]
    items = [
        {"role": "user", "content": "USE_TOOLS"},
        *({"type": i.type, "call_id": i.call_id, "name": i.name, "arguments": "{}"} for i in made),
        {"type": "function_call_output", "call_id": made[0].call_id, "output": "Sunny, 21 C."},
        {
            "type": "function_call_output",
            "call_id": made[1].call_id,
            "output": [{"type": "input_text", "text": "pong"}],
        },
    ]
    response = await response_of(items, tools=[WEATHER, BARE])
    assert response.output_text == "get_weather says: Sunny, 21 C.\nping says: pong"
    again = await response_of(items, tools=[WEATHER, BARE], tool_choice="required")
    assert again.output_text == response.output_text


async def test_a_demand_after_one_tool_leads_to_another() -> None:
    items = [
        {"role": "user", "content": "get_weather"},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "Sunny."},
    ]
    response = await response_of(items, tools=[WEATHER, BARE], tool_choice="required")
    assert calls(response.output) == [("ping", {})]
    response = await response_of(items, tools=[WEATHER, BARE])
    assert response.output_text == "get_weather says: Sunny."


async def test_a_call_without_a_schema_has_an_empty_object_for_arguments() -> None:
    response = await response_of("ping", tools=[BARE])
    assert calls(response.output) == [("ping", {})]


async def test_hosted_tools_are_left_out_with_a_warning() -> None:
    tools = [{"type": "web_search"}, BARE, {"type": "acme:lookup"}]
    response = await response_of("ping", tools=tools)
    assert calls(response.output) == [("ping", {})]
    assert response.warnings
    assert [(w.code, w.message, w.param) for w in response.warnings] == [
        ("unsupported_tool", "This model has no tool 'openai:web_search'; it was left out.", "tools[0]"),
        ("unsupported_tool", "This model has no tool 'acme:lookup'; it was left out.", "tools[2]"),
    ]


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search"},
        "required",
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    ],
)
async def test_a_required_hosted_tool_is_rejected(choice: object) -> None:
    with pytest.raises(RequestError) as caught:
        await response_of("Search!", tools=[{"type": "web_search"}], tool_choice=choice)
    payload = caught.value.payload
    assert (payload.param, payload.code) == ("tool_choice", "unsupported_value")


@pytest.mark.parametrize("reasoning", [None, {"effort": "low"}])
async def test_a_tool_with_a_schema_that_cannot_be_satisfied_is_rejected(reasoning: object) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}
    tool = {"type": "function", "name": "odd", "parameters": schema}
    with pytest.raises(RequestError, match="cannot satisfy this schema: a: ") as caught:
        await response_of("USE_TOOL odd", tools=[BARE, tool], reasoning=reasoning)
    assert caught.value.payload.param == "tools[1].parameters"


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 18},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
        "home": {"$ref": "#/$defs/address"},
    },
    "required": ["name", "age", "tags", "home"],
    "additionalProperties": False,
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$", "default": "10115"}},
            "required": ["zip"],
        }
    },
}


async def test_the_answer_satisfies_the_schema_of_the_format() -> None:
    format = {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}
    response = await response_of("Who is Ada?", text={"format": format})
    Draft202012Validator(PERSON).validate(json.loads(response.output_text))


async def test_json_object_format_gives_an_object() -> None:
    response = await response_of('Say "hi"\n!', text={"format": {"type": "json_object"}})
    assert json.loads(response.output_text) == {"answer": 'Say "hi"\n!'}


@pytest.mark.parametrize("reasoning", [None, {"effort": "low"}])
async def test_a_format_that_cannot_be_satisfied_is_rejected(reasoning: object) -> None:
    format = {"type": "json_schema", "name": "never", "schema": {"enum": []}}
    with pytest.raises(RequestError, match="cannot satisfy this schema") as caught:
        await response_of("Hi!", text={"format": format}, reasoning=reasoning)
    assert caught.value.payload.param == "text.format.schema"


async def test_max_output_tokens_truncates_the_answer() -> None:
    response, events = await run_demo("Tell me a story", max_output_tokens=16)
    assert len(deltas(events)) == 16
    [message] = response.output
    text = "Once upon a time a small server stood at the edge of a large network. Every"
    assert message == Message(id=message.id, status="incomplete", role="assistant", content=[OutputText(text=text)])
    assert response.status == "incomplete"
    assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")
    assert response.usage == ResponseUsage.of(4, 16)


async def test_an_answer_that_just_fits_is_complete() -> None:
    text = "one two three four five six seven eight nine"
    response = await response_of(text, max_output_tokens=16)
    assert response.status == "completed"
    assert response.usage == ResponseUsage.of(9, 16)


async def test_max_output_tokens_truncates_calls() -> None:
    response = await response_of("USE_TOOLS " + "long " * 40, tools=[WEATHER, TIME, BARE])
    [whole, *_] = response.output
    assert isinstance(whole, FunctionCall)
    cut = await response_of("USE_TOOLS " + "long " * 40, tools=[WEATHER, TIME, BARE], max_output_tokens=16)
    [call] = cut.output
    assert (
        call
        == FunctionCall(
            id=call.id,
            call_id=call.call_id,  # pyright: ignore[reportAttributeAccessIssue]
            name="get_weather",
            arguments=whole.arguments[: 16 * 8],
            status="incomplete",
        )
    )
    assert cut.status == "incomplete"


async def test_reasoning_counts_and_may_use_up_the_limit() -> None:
    fields = {"reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 16}
    response = await response_of("Good morning!", **fields)
    assert [item.type for item in response.output] == ["reasoning"]
    assert response.status == "incomplete"
    assert response.usage == ResponseUsage.of(2, 16, reasoning=16)


async def test_tokens_are_words_in_input_and_output() -> None:
    response = await response_of("Good morning!", instructions="Be very kind.")
    assert response.usage == ResponseUsage.of(5, 9)
    thoughtful = await response_of("Good morning!", reasoning={"effort": "low"})
    assert thoughtful.usage == ResponseUsage.of(2, 9 + 14, reasoning=14)


async def test_the_whole_conversation_counts_as_input() -> None:
    items = [
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "three"},
        {"type": "function_call", "call_id": "c", "name": "ping", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "four five six"},
    ]
    response = await response_of(items)
    assert response.usage == ResponseUsage.of(2 + 1 + 2 + 3, 5)


def certain_logprob(word: str, top: bool) -> LogProb:
    """Return the log probability of a word that could be no other."""
    data = list(word.encode())
    tops = [TopLogProb(token=word, logprob=0.0, bytes=data)] if top else []
    return LogProb(token=word, logprob=0.0, bytes=data, top_logprobs=tops)


@pytest.mark.parametrize("top", [0, 3])
async def test_log_probabilities_are_sent_on_request(top: int) -> None:
    include = ["message.output_text.logprobs"]
    response, events = await run_demo("Héllo", include=include, top_logprobs=top)
    expected = [certain_logprob(word, bool(top)) for word in deltas(events)]
    given = [event.logprobs for event in events if isinstance(event, OutputTextDelta)]
    assert given == [[one] for one in expected]
    [message] = response.output
    assert message == Message(
        id=message.id,
        status="completed",
        role="assistant",
        content=[OutputText(text=f"{GREETING}Héllo", logprobs=expected)],
    )


async def test_log_probabilities_are_not_sent_by_default() -> None:
    _, events = await run_demo("Hi!", top_logprobs=3)
    assert not any(event.logprobs for event in events if isinstance(event, OutputTextDelta))


@pytest.mark.parametrize("text", ["one", " two  words\n\tor three ", "日本語 ok", "line\nbreak\n", ""])
async def test_echo_repeats_the_user_message_exactly(text: str) -> None:
    response = await response_of(text, model="echo")
    assert response.output_text == text


async def test_echo_reports_usage_and_obeys_the_limit() -> None:
    response = await response_of("word " * 20, model="echo", max_output_tokens=16)
    assert response.output_text == ("word " * 16).strip()
    assert response.status == "incomplete"
    assert response.usage == ResponseUsage.of(20, 16)
