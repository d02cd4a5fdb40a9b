"""What an agent receives."""

from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.agents.agent import Turn, agent
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    Item,
    Message,
    OutputText,
    Reasoning,
    user_message,
)
from antiphon.protocol.request import Request
from antiphon.protocol.tools import AllowedTools, ExtensionTool, FunctionTool, FunctionToolChoice
from antiphon.wire.openresponses import decode_request
from tests.protocol.builders import counting_ids

IMAGE = "data:image/jpeg;base64,/9j/4AAQ"
CALL = FunctionCall(call_id="c1", name="get_weather", arguments="{}")
OUTPUT = FunctionCallOutput(call_id="c1", output="sunny")
WEATHER = FunctionTool(name="get_weather")
TIME = FunctionTool(name="get_time")


def make_turn(*input: Item, history: tuple[Item, ...] = (), **options: Any) -> Turn:
    """Make a turn of some items."""
    request = Request(model="m", input=list(input), **options)
    return Turn(request=request, input=input, history=history)


@pytest.mark.anyio
async def test_an_agent_receives_the_whole_request() -> None:
    seen: list[Turn] = []

    @agent("spy")
    async def spy(turn: Turn) -> str:
        seen.append(turn)
        return "seen"

    @spy.entry("other")
    async def other(turn: Turn) -> str:
        return await spy(turn)  # pyright: ignore[reportGeneralTypeIssues]

    body = {
        "model": "spy/other",
        "instructions": "Be brief.",
        "metadata": {"who": "me"},
        "tools": [{"type": "function", "name": "get_weather"}, {"type": "web_search"}],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "temperature": 0.5,
        "input": [
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": [{"type": "input_text", "text": "Be quick."}]},
            {"role": "user", "content": "What is this?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "And this?"},
                    {"type": "input_image", "image_url": IMAGE},
                    {"type": "input_file", "filename": "a.txt", "file_data": "aGk="},
                ],
            },
        ],
    }
    request = decode_request(body)
    run = await Engine(Models([spy]), ids=counting_ids()).create_run(request)
    await run.execute()

    items = [
        Message(id="msg_0", role="system", content=[InputText(text="Be kind.")]),
        Message(id="msg_1", role="developer", content=[InputText(text="Be quick.")]),
        Message(id="msg_2", role="user", content=[InputText(text="What is this?")]),
        Reasoning(id="rs_1", content=[]),
        replace(CALL, id="fc_0"),
        replace(OUTPUT, id="fco_0"),
        ExtensionItem(type="openai:web_search_call", id="ws_1", status="completed"),
        Message(id="msg_3", role="assistant", content=[OutputText(text="A cat.")]),
        Message(
            id="msg_4",
            role="user",
            content=[
                InputText(text="And this?"),
                InputImage(image_url=IMAGE),
                InputFile(filename="a.txt", file_data="aGk="),
            ],
        ),
    ]
    [given] = seen
    assert given == Turn(
        request=replace(request, input=items),
        input=items,
        history=[],
        entry="other",
        response_id=run.response.id,
        cancelled=given.cancelled,
    )
    assert given.model == "spy/other"
    assert given.instructions == "Be brief."
    assert given.metadata == {"who": "me"}
    assert given.items == items
    assert given.text == "And this?"
    assert given.tools == [WEATHER, ExtensionTool(type="openai:web_search")]
    assert given.tool_choice == FunctionToolChoice(name="get_weather")
    assert given.functions == [WEATHER]
    assert given.request.temperature == 0.5


def test_the_items_are_the_history_and_the_input() -> None:
    given = make_turn(user_message("now"), history=(user_message("before"),))
    assert given.items == [user_message("before"), user_message("now")]
    assert given.text == "now"


def test_the_text_is_that_of_the_last_user_message() -> None:
    answer = Message(role="assistant", content=[OutputText(text="It is.")])
    assert make_turn(user_message("Is it?"), answer, CALL, OUTPUT).text == "Is it?"
    assert make_turn(OUTPUT, history=(user_message("Is it?"), CALL)).text == "Is it?"


def test_the_text_is_empty_without_a_user_message() -> None:
    assert make_turn(Message(id="msg_0", role="system", content=[InputText(text="Be kind.")])).text == ""
    assert make_turn().text == ""


def test_the_tool_outputs_are_those_since_the_last_user_message() -> None:
    other = FunctionCallOutput(call_id="c2", output="late")
    assert make_turn(user_message("a"), CALL, OUTPUT, CALL, other).tool_outputs == [OUTPUT, other]
    assert make_turn(user_message("a"), CALL, OUTPUT, user_message("b")).tool_outputs == []
    assert make_turn(OUTPUT, history=(user_message("a"), CALL)).tool_outputs == [OUTPUT]


@pytest.mark.parametrize(
    ("choice", "functions"),
    [
        ("auto", [WEATHER, TIME]),
        ("required", [WEATHER, TIME]),
        ("none", []),
        (FunctionToolChoice(name="get_time"), [TIME]),
        (AllowedTools(tools=[FunctionToolChoice(name="get_time")]), [TIME]),
        (AllowedTools(tools=[FunctionToolChoice(name="get_time")], mode="none"), []),
    ],
)
def test_the_functions_are_those_that_the_tool_choice_allows(choice: Any, functions: list[FunctionTool]) -> None:
    given = make_turn(user_message("a"), tools=[WEATHER, TIME], tool_choice=choice)
    assert given.functions == functions
    assert given.tools == [WEATHER, TIME]
