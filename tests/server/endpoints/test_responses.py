"""`POST /responses` at every door: responses and errors."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.events import decode_event
from antiphon.protocol.fold import fold
from antiphon.protocol.struct import to_builtins
from antiphon.server.settings import Settings
from tests.http_client import DOORS, event_types, http_client, parse_stream, post_response, stream_events
from tests.run_server import run_server
from tests.spec.schema_checks import check_event, check_response

OPENAI = DOORS[1:]
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
FIELDS = set(
    """id object created_at status error incomplete_details instructions max_output_tokens model
    output parallel_tool_calls previous_response_id reasoning store temperature text tool_choice
    tools top_p truncation usage user metadata background""".split()
)
"""C01: what a Xaibo client finds in a response."""

MORE = set(
    """completed_at presence_penalty frequency_penalty top_logprobs max_tool_calls service_tier
    safety_identifier prompt_cache_key""".split()
)
"""Further fields that the specification requires."""

FULL = {
    "input": "Tell me a story about AI",
    "model": "demo",
    "instructions": "Be creative and engaging",
    "max_output_tokens": 1000,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "store": True,
    "stream": False,
    "temperature": 0.7,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 0.9,
    "truncation": "disabled",
    "user": "user123",
    "metadata": {"session": "abc"},
    "background": False,
}
"""B20: a body with every field."""

REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Hi!"},
    "everything": FULL,
    "reasoning": {"reasoning": {"effort": "high", "summary": "auto"}},
    "sealed": {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]},
    "call": {"input": "What's the weather in Oslo?", "tools": [WEATHER]},
    "calls": {"input": "USE_TOOLS", "tools": [WEATHER, {"type": "function", "name": "ping"}]},
    "hosted": {"tools": [{"type": "web_search"}], "max_tokens": 5},
    "refusal": {"input": "REFUSE"},
    "cut": {"input": "A story, please.", "max_output_tokens": 16},
    "cut call": {"input": "USE_TOOL " + "word " * 50, "tools": [WEATHER], "max_output_tokens": 16},
    "json": {
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"}
    },
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "obfuscated": {"stream_options": {"include_obfuscation": True}},
    "fail": {"input": "FAIL"},
}


@agent("silent")
async def silent() -> None:
    """Says nothing."""


@agent("moody")
async def moody(turn: Turn) -> AsyncIterator[object]:
    """Yield a number of deltas, then raise the requested error."""
    error, _, deltas = turn.text.partition(" ")
    for word in deltas.split():
        yield word
    if error == "upstream":
        raise UpstreamError(
            "Slow down.", status=429, type="too_many_requests", code="rate_limit_exceeded", headers={"retry-after": "7"}
        )
    if error == "request":
        raise RequestError("Not that.", param="input", code="not_that")
    raise RuntimeError("the secret of the agent")


@agent("noted")
async def noted() -> AsyncIterator[object]:
    """Sends an event of its own."""
    yield "Hello"
    yield parts.Extension("acme:note", {"note": 1})


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """Return the address of a server with the agents of this module."""
    with run_server(Settings(agents=[silent, moody, noted])) as address:
        yield address


def without_identity(value: Any) -> Any:
    """Return a JSON value without ids, times, seals and noise."""
    if isinstance(value, list):
        return [without_identity(entry) for entry in value]
    if isinstance(value, dict):
        own = {"id", "call_id", "created_at", "completed_at", "encrypted_content"}
        return {name: without_identity(value[name]) for name in value if name not in own}
    return value


@pytest.mark.parametrize("door", DOORS)
def test_a_response_is_created_at_every_door(server: str, door: str) -> None:
    answer = post_response(server, door, input="Hi!")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    response = answer.json()
    [message] = response["output"]
    text = "Hello from Antiphon's demo model. You said: Hi!"
    assert message == {
        "type": "message",
        "id": message["id"],
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    written = {} if door == "/v1" else {"cache_write_tokens": 0}
    assert response["usage"] == {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0} | written,
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 9,
    }
    assert response["status"] == "completed"
    assert 0 < response["created_at"] <= response["completed_at"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "fail"])
def test_a_json_response_equals_the_end_of_its_stream(server: str, name: str, door: str) -> None:
    whole = post_response(server, door, **REQUESTS[name]).json()
    ending = stream_events(server, door, **REQUESTS[name])[-1]["response"]
    assert without_identity(whole) == without_identity(ending)


@pytest.mark.parametrize("name", REQUESTS)
def test_every_event_at_the_specifications_door_is_valid(server: str, name: str) -> None:
    events = stream_events(server, **REQUESTS[name])
    for event in events:
        check_event(event)
        if "response" in event:
            check_response(event["response"])
    values = [decode_event(event) for event in events]
    assert find_violations(values) == []
    assert to_builtins(fold(values)) == events[-1]["response"]
    if name != "fail":
        check_response(post_response(server, **REQUESTS[name]).json())


@pytest.mark.parametrize("door", OPENAI)
@pytest.mark.parametrize("name", REQUESTS)
def test_every_event_at_openais_door_obeys_the_rules(server: str, name: str, door: str) -> None:
    events = stream_events(server, door, **REQUESTS[name])
    text = json.dumps(events)
    for theirs, ours in (("reasoning_text.", "reasoning."), ('"web_search"', '"openai:web_search"')):
        text = text.replace(theirs, ours)
    assert find_violations([decode_event(event) for event in json.loads(text)]) == []
    assert "response.reasoning.delta" not in event_types(events)


@pytest.mark.parametrize("door", OPENAI)
def test_a_response_at_openais_door_has_exactly_these_fields(server: str, door: str) -> None:
    assert post_response(server, door).json().keys() == FIELDS | MORE


@pytest.mark.parametrize("door", DOORS)
def test_a_body_with_every_field_is_accepted_and_echoed(server: str, door: str) -> None:
    answer = post_response(server, door, **FULL)
    assert answer.status_code == 200
    echoed = {name: answer.json()[name] for name in FULL if name not in ("input", "stream")}
    given = {name: value for name, value in FULL.items() if name in echoed}
    assert echoed == given | {"text": {"format": {"type": "text"}}}


@pytest.mark.parametrize("door", DOORS)
def test_null_is_as_good_as_nothing(server: str, door: str) -> None:
    names = FULL.keys() | {"include", "max_tool_calls", "prompt_cache_key", "safety_identifier"}
    nulls = dict.fromkeys(names - {"model", "input"})
    answer = post_response(server, door, **nulls)
    assert answer.status_code == 200
    assert without_identity(answer.json()) == without_identity(post_response(server, door).json())


def test_the_schema_of_a_format_is_echoed_only_at_openais_door(server: str) -> None:
    schema = REQUESTS["json"]["text"]["format"]["schema"]
    spec, openai = (post_response(server, door, **REQUESTS["json"]).json() for door in ("/v1", "/openai"))
    assert spec["text"]["format"]["schema"] is None
    assert openai["text"]["format"]["schema"] == schema


@pytest.mark.parametrize(("door", "type"), [("/v1", "openai:web_search"), ("/openai", "web_search")])
def test_a_hosted_tool_is_echoed_under_the_doors_name_for_it_and_warned_about(
    server: str, door: str, type: str
) -> None:
    response = post_response(server, door, **REQUESTS["hosted"]).json()
    assert response["tools"] == [{"type": type}]
    codes = [warning["code"] for warning in response["antiphon:warnings"]]
    assert codes == ["unused_parameter", "unsupported_tool"]


@pytest.mark.parametrize("door", DOORS)
def test_a_silent_agent_has_answered_with_an_empty_string(server_url: str, door: str) -> None:
    [message] = post_response(server_url, door, model="silent").json()["output"]
    assert message["content"] == [{"type": "output_text", "text": "", "annotations": []}]


@pytest.mark.parametrize("door", DOORS)
def test_a_tool_call_is_answered_with_its_output(server: str, door: str) -> None:
    requested = {"role": "user", "content": "What's the weather in Oslo?"}
    [call] = post_response(server, door, input=[requested], tools=[WEATHER]).json()["output"]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "get_weather", "completed")
    assert json.loads(call["arguments"]) == {} or json.loads(call["arguments"])["city"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain."}
    [message] = post_response(server, door, input=[requested, call, output], tools=[WEATHER]).json()["output"]
    assert message["content"][0]["text"] == "get_weather says: Rain."


def test_only_the_body_decides_whether_an_answer_is_streamed(server: str) -> None:
    with http_client(server) as http:
        body = {"model": "demo", "input": "Hi!"}
        for accepted in ("application/json", "text/event-stream", "text/html", "*/*"):
            headers = {"accept": accepted}
            whole = http.post("/v1/responses", json=body, headers=headers)
            streamed = http.post("/v1/responses", json=body | {"stream": True}, headers=headers)
            assert whole.headers["content-type"] == "application/json"
            assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_an_agent_may_send_extension_events(server_url: str) -> None:
    events = stream_events(server_url, model="noted")
    [own] = [event for event in events if event["type"] == "acme:note"]
    assert own == {"type": "acme:note", "sequence_number": own["sequence_number"], "note": 1}


INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"temperature": -0.1}, "temperature", "invalid_value"),
    ({"top_p": 1.5}, "top_p", "invalid_value"),
    ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"max_output_tokens": 15}, "max_output_tokens", "invalid_value"),
    ({"max_output_tokens": "many"}, "max_output_tokens", "invalid_value"),
    ({"max_tool_calls": 0}, "max_tool_calls", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"store": 1}, "store", "invalid_value"),
    ({"instructions": ["a"]}, "instructions", "invalid_value"),
    ({"truncation": "some"}, "truncation", "invalid_value"),
    ({"service_tier": "gold"}, "service_tier", "invalid_value"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
    ({"reasoning": "high"}, "reasoning", "invalid_value"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format.type", "invalid_value"),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_value"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "invalid_value"),
    ({"include": ["everything"]}, "include[0]", "invalid_value"),
    ({"include": "a"}, "include", "invalid_value"),
    ({"input": 5}, "input", "invalid_value"),
    ({"input": ["Hi!"]}, "input[0]", "invalid_value"),
    ({"input": [{"type": "poem"}]}, "input[0].type", "invalid_value"),
    ({"input": [{"role": "king", "content": "Hi!"}]}, "input[0].role", "invalid_value"),
    ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
    ({"input": [{"role": "user", "content": [{"type": "smell"}]}]}, "input[0].content[0].type", "invalid_value"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        "input[0].call_id",
        "function_call_not_found",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id", "item_not_found"),
    ({"tools": {}}, "tools", "invalid_value"),
    ({"tools": [{"type": "hammer"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "invalid_value"),
    ({"tool_choice": "perhaps"}, "tool_choice", "invalid_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice", "unsupported_value"),
    ({"background": True, "store": False}, "background", "store_required"),
    ({"conversation": "conv_1", "store": False}, "conversation", "store_required"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
    ({"previous_response_id": 1}, "previous_response_id", "invalid_value"),
    ({"model": 5}, "model", "invalid_value"),
    ({"model": None}, "model", "missing_required_parameter"),
    ({"input": None}, "input", "missing_required_parameter"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("body", "param", "code"), INVALID)
def test_an_invalid_request_is_rejected_before_any_stream(
    server: str, body: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    for door, type in (("/v1", "invalid_request"), ("/openai", "invalid_request_error")):
        answer = post_response(server, door, **({"stream": stream} | body))
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
        error = answer.json()["error"]
        assert error == {"message": error["message"], "type": type, "param": param, "code": code}
        assert len(error["message"]) > 20


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_not_found_or_at_openais_door_a_bad_request(server: str, stream: bool) -> None:
    message = "The model 'gpt-9' does not exist. GET /v1/models lists those that do."
    error = {"message": message, "param": "model", "code": "model_not_found"}
    spec = post_response(server, "/v1", model="gpt-9", stream=stream)
    assert (spec.status_code, spec.json()) == (404, {"error": error | {"type": "not_found"}})
    for door in OPENAI:
        answer = post_response(server, door, model="gpt-9", stream=stream)
        advised = {"message": message.replace("/v1", door), "type": "invalid_request_error"}
        body = {"error": error | advised, "detail": "model not found"}
        assert (answer.status_code, answer.json()) == (400, body)


@pytest.mark.parametrize("body", [{"model": "demo"}, {"input": "Hi!"}, {}])
def test_without_model_or_input_xaibos_clients_read_the_detail_they_know(server: str, body: dict[str, str]) -> None:
    with http_client(server) as http:
        spec, openai = (http.post(f"{door}/responses", json=body) for door in ("/v1", "/openai"))
    assert (spec.status_code, openai.status_code) == (400, 400)
    assert spec.json().keys() == {"error"}
    assert openai.json()["detail"] == "input and model are required"
    assert openai.json()["error"]["code"] == "missing_required_parameter"


@pytest.mark.parametrize("body", ["[]", '"text"', "5", "null", "true"])
def test_a_body_that_is_no_object_is_rejected(server: str, body: str) -> None:
    with http_client(server) as http:
        headers = {"content-type": "application/json"}
        answer = http.post("/v1/responses", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request"


FAILED = "The model 'moody' failed while answering."


@pytest.mark.parametrize("said", ["", "one two"])
def test_a_failing_agent_ends_its_stream_in_the_specifications_format(server_url: str, said: str) -> None:
    events = stream_events(server_url, model="moody", input=f"runtime {said}")
    error, failed = events[-2:]
    number = len(events) - 2
    payload = {"message": FAILED, "type": "server_error", "param": None, "code": "server_error"}
    assert error == {"type": "error", "sequence_number": number, "error": payload}
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", number + 1)
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": FAILED, "type": "server_error"}
    texts = [part["text"] for item in failed["response"]["output"] for part in item["content"]]
    assert texts == (["onetwo"] if said else [])
    assert "secret" not in str(events)


@pytest.mark.parametrize("door", OPENAI)
@pytest.mark.parametrize("said", ["", "one two"])
def test_a_failing_agent_ends_its_stream_in_openais_format(server_url: str, said: str, door: str) -> None:
    events = stream_events(server_url, door, model="moody", input=f"runtime {said}")
    assert "error" not in event_types(events)
    assert events[-1]["type"] == "response.failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "secret" not in str(events)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("said", ["", "one two"])
def test_a_failing_agent_is_a_500_when_nothing_is_streamed(server_url: str, said: str, door: str) -> None:
    answer = post_response(server_url, door, model="moody", input=f"runtime {said}", store=False)
    error = {"message": FAILED, "type": "server_error", "param": None, "code": "server_error"}
    detail = {} if door == "/v1" else {"detail": FAILED}
    assert (answer.status_code, answer.json()) == (500, {"error": error} | detail)
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("stream", [False, True])
def test_a_providers_early_error_keeps_its_status(server_url: str, stream: bool) -> None:
    answer = post_response(server_url, model="moody", input="upstream", stream=stream)
    error = {"message": "Slow down.", "type": "too_many_requests", "param": None, "code": "rate_limit_exceeded"}
    assert (answer.status_code, answer.json()) == (429, {"error": error})
    assert answer.headers["retry-after"] == "7"
    openai = post_response(server_url, "/openai", model="moody", input="upstream", stream=stream)
    body = {"error": error | {"type": "rate_limit_error"}, "detail": "Slow down."}
    assert (openai.status_code, openai.json()) == (429, body)


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_may_raise_an_error_with_a_status_before_any_output(server_url: str, stream: bool) -> None:
    answer = post_response(server_url, model="moody", input="request", stream=stream)
    error = {"message": "Not that.", "type": "invalid_request", "param": "input", "code": "not_that"}
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_a_providers_error_fails_a_started_stream(server_url: str) -> None:
    events = stream_events(server_url, model="moody", input="upstream one")
    assert event_types(events)[-2:] == ["error", "response.failed"]
    assert events[-1]["response"]["error"] == {
        "code": "rate_limit_exceeded",
        "message": "Slow down.",
        "type": "too_many_requests",
    }
    whole = post_response(server_url, model="moody", input="upstream one")
    assert whole.status_code == 429
    assert whole.headers["retry-after"] == "7"
    assert whole.json()["error"]["code"] == "rate_limit_exceeded"


def test_a_stream_is_framed_correctly(server: str) -> None:
    answer = post_response(server, stream=True)
    assert event_types(parse_stream(answer.text)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 8,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
