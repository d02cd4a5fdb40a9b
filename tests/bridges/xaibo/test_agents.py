"""A Xaibo agent receives the whole conversation and its answer becomes items."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.http_client import post_response, stream_events
from tests.server.stateful_server import output_text

DOOR = "/openai"
Json = dict[str, Any]
PNG = "data:image/png;base64,AAAA"


def ask(address: str, model: str, input: object = "Hello?", **body: object) -> Json:
    """Create a response."""
    answer = post_response(address, DOOR, model=model, input=input, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def say(role: str, text: str) -> Json:
    """Return a message of Xaibo's with one text."""
    return {"role": role, "content": [{"type": "text", "text": text}]}


def summarize(response: Json) -> list[tuple[str, Any]]:
    """Return the type and the content of each output item."""
    return [
        (item["type"], item.get("output") or item.get("arguments") or "".join(c["text"] for c in item["content"]))
        for item in response["output"]
    ]


@pytest.mark.parametrize("model", ["appends", "own-history"])
def test_the_users_message_is_in_the_history_once_for_an_agent_that_appends_it(ours: str, model: str) -> None:
    first = ask(ours, model, "One.")
    assert json.loads(output_text(first)) == [say("user", "One.")]
    second = ask(ours, model, "Two.", previous_response_id=first["id"])
    expected = [say("user", "One."), say("assistant", output_text(first)), say("user", "Two.")]
    assert json.loads(output_text(second)) == expected


def test_the_users_message_is_not_in_the_history_of_an_agent_that_does_not_append_it(ours: str) -> None:
    first = ask(ours, "appends-not", "One.")
    second = ask(ours, "appends-not", "Two.", previous_response_id=first["id"])
    # The second message is the argument of `handle_text`.
    assert json.loads(output_text(second)) == [say("user", "One."), say("assistant", "[]")]
    assert output_text(ask(ours, "echo", "Three.")) == "You said: Three."


def test_all_items_and_the_instructions_are_context(ours: str) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "One."},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"where":"up"}'},
        {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sky"},
        {"type": "function_call_output", "call_id": "b", "output": "floor"},
        {"type": "message", "role": "assistant", "content": "Two."},
        {"type": "message", "role": "user", "content": "Three."},
    ]
    prompt = json.loads(output_text(ask(ours, "prompt", items, instructions="Rhyme.")))["messages"]
    assert prompt == [
        say("system", "Be kind."),
        say("system", "Rhyme."),
        say("system", "Be brief."),
        say("user", "One."),
        {
            "role": "function",
            "content": [],
            "tool_calls": [
                {"id": "a", "name": "look", "arguments": {"where": "up"}},
                {"id": "b", "name": "look", "arguments": {}},
            ],
        },
        {
            "role": "function",
            "content": [],
            "tool_results": [
                {"id": "a", "name": "look", "content": "sky"},
                {"id": "b", "name": "look", "content": "floor"},
            ],
        },
        say("assistant", "Two."),
        say("user", "Three."),
    ]


def test_an_image_reaches_the_model_beside_the_text(ours: str) -> None:
    content = [{"type": "input_image", "image_url": PNG}, {"type": "input_text", "text": "What is it?"}]
    prompt = json.loads(output_text(ask(ours, "prompt", [{"role": "user", "content": content}])))["messages"]
    image = {"type": "image", "image": PNG}
    assert prompt[1:] == [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]
    history = json.loads(output_text(ask(ours, "appends-not", [{"role": "user", "content": content}])))
    assert history == [{"role": "user", "content": [image]}]


def test_a_file_is_left_out_with_a_warning(ours: str) -> None:
    content = [{"type": "input_text", "text": "Read."}, {"type": "input_file", "file_url": "https://example.org/a.pdf"}]
    response = ask(ours, "echo", [{"role": "user", "content": content}])
    assert "unsupported_content" in [warning["code"] for warning in response["antiphon:warnings"]]
    assert output_text(response) == "You said: Read."


def test_tool_outputs_come_after_the_users_message_when_the_model_reads_them(ours: str) -> None:
    items = [
        {"role": "user", "content": "Where am I?"},
        {"type": "function_call", "call_id": "a", "name": "get_place", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "Rome"},
    ]
    prompt = json.loads(output_text(ask(ours, "prompt", items)))["messages"]
    assert [message["role"] for message in prompt] == ["system", "user", "function", "function"]


def test_the_options_of_the_request_reach_the_model(ours: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "precision": {"type": ["string", "null"], "enum": ["city", "street"], "description": "How exactly."},
            "area": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        "required": ["precision"],
    }
    tool = {"type": "function", "name": "get_place", "description": "Find the user.", "parameters": schema}
    prompt = json.loads(output_text(ask(ours, "prompt", temperature=0.25, tools=[tool])))
    assert prompt["temperature"] == 0.25
    [offered] = prompt["tools"]
    area = offered["parameters"].pop("area")
    assert offered == {
        "name": "get_place",
        "description": "Find the user.",
        "parameters": {
            "precision": {
                "type": "string",
                "description": "How exactly.",
                "required": True,
                "default": None,
                "enum": ["city", "street"],
            }
        },
    }
    assert area["type"] == "object"
    assert "JSON Schema" in area["description"]


def test_usage_is_that_of_the_models_of_the_agent(ours: str) -> None:
    usage = [ask(ours, model)["usage"] for model in ("prompt", "tools", "react", "streaming")]
    counts = [[count["input_tokens"], count["output_tokens"], count["total_tokens"]] for count in usage]
    assert counts == [[11, 3, 14], [33, 9, 42], [55, 15, 70], [11, 3, 14]]


def test_the_agents_own_calls_and_outputs_are_items(ours: str) -> None:
    response = ask(ours, "tools")
    # The model gives both calls the same id.
    first, first_output, second, second_output, _ = [item.get("call_id") for item in response["output"]]
    assert (first, second) == (first_output, second_output)
    assert first != second
    assert summarize(response) == [
        ("function_call", '{"city":"Rome"}'),
        ("function_call_output", "sun in Rome"),
        ("function_call", '{"city":"nowhere"}'),
        ("function_call_output", "Error: there is no window"),
        ("message", "The sun shines."),
    ]


def test_calls_that_an_orchestrator_does_not_report_are_items_too(ours: str) -> None:
    response = ask(ours, "react")
    call, output, message = response["output"]
    assert [call["call_id"], output["call_id"], output["output"]] == ["call_1", "call_1", "sun in Rome"]
    assert message["content"][0]["text"] == "FINAL_ANSWER: sun"


def test_a_call_of_the_clients_tool_ends_the_turn_after_the_agents_own(ours: str) -> None:
    tools = [{"type": "function", "name": "get_place", "parameters": {"type": "object", "properties": {}}}]
    response = ask(ours, "client-tools", tools=tools)
    assert sorted(summarize(response)) == [
        ("function_call", '{"city":"Rome"}'),
        ("function_call", "{}"),
        ("function_call_output", "sun in Rome"),
    ]


def test_a_module_can_respond_with_parts_and_attachments(ours: str) -> None:
    reasoning, image, message = ask(ours, "wardrobe")["output"]
    assert reasoning["content"][0]["text"] == "I draw."
    assert [image["type"], image["data"]] == ["xaibo:image", "YSBwaWN0dXJl"]
    assert message["content"][0]["text"] == "Here it is."


def test_a_streaming_model_streams(ours: str) -> None:
    events = stream_events(ours, DOOR, model="streaming")
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == [
        "abc",
        "def",
        "ghi",
    ]


@pytest.mark.parametrize(
    ("model", "answer", "tokens"),
    [("no-models", "0 models.", None), ("one-model", "One, 1 models.", 14), ("two-models", "One, two, 2 models.", 28)],
)
def test_an_agent_may_depend_on_a_list_of_models(ours: str, model: str, answer: str, tokens: int | None) -> None:
    response = ask(ours, model)
    assert output_text(response) == answer
    assert tokens in (None, response["usage"]["total_tokens"])


def test_the_conversation_and_the_response_module_are_injected(ours: str, theirs: str) -> None:
    assert [output_text(ask(ours, "needs-exchange")) for _ in range(2)] == ["Conversation Output"] * 2
    # Each instantiation adds Xaibo's exchange to the agent's configuration once more, and the module wants one.
    again = [post_response(theirs, DOOR, model="needs-exchange").status_code for _ in range(2)]
    assert again == [200, 500]


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("doors", "front: Hi!"),
        ("doors/__entry__", "front: Hi!"),
        ("doors/front", "front: Hi!"),
        ("doors/back", "back: Hi!"),
    ],
)
def test_an_entry_point_follows_the_first_slash(ours: str, model: str, answer: str) -> None:
    assert output_text(ask(ours, model, "Hi!")) == answer


@pytest.mark.parametrize("model", ["doors/none", "doors/a/b", "echo/none", "nobody"])
def test_an_unknown_entry_point_is_not_found(ours: str, model: str) -> None:
    for stream in (False, True):
        answer = post_response(ours, DOOR, model=model, stream=stream)
        body = answer.json()
        assert [answer.status_code, body["error"]["code"], body["detail"]] == [
            400,
            "model_not_found",
            "model not found",
        ]


def test_concurrent_conversations_do_not_mix(ours: str) -> None:
    def chain(number: int) -> list[str]:
        first = ask(ours, "appends", f"I am {number}.")
        second = ask(ours, "appends", "Who am I?", previous_response_id=first["id"])
        messages = json.loads(output_text(second))
        return [message["content"][0]["text"] for message in messages if message["role"] == "user"]

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(chain, range(20)))
    assert found == [[f"I am {number}.", "Who am I?"] for number in range(20)]
