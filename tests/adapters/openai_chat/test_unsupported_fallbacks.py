"""Chat servers that reject a feature: the request is repeated in another way."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from time import sleep
from typing import Any

import pytest

from antiphon.adapters.azure import Azure
from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.writer import Writer
from antiphon.protocol.errors import UpstreamError
from antiphon.server.settings import Settings
from tests.adapters.openai_chat.error_messages import (
    NO_CHAT,
    NO_EFFORT,
    NO_JSON_WITH_TOOLS,
    NO_NAMED_CHOICE,
    NO_OBJECT,
    NO_SCHEMA,
    NO_TOOL_CHOICE,
    OLD_API_VERSION,
    ONLY_RESPONSES,
    REQUEST_MISTAKES,
    TOOLS_ONLY_IN_RESPONSES,
    decode_error,
    error_answer,
)
from tests.adapters.provider_servers import SCENE_MODULES, ProviderServers, serve_providers, stream_answer, whole_answer
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes import FORMAT, TIME, TOOL
from tests.adapters.scenes import openai as chat
from tests.http_client import DOORS, http_client, parse_stream, post_response
from tests.run_server import run_server
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, json_answer, sse_answer

TEXT = SCENE_MODULES["openai"].SCENES["text"]
CALL = SCENE_MODULES["openai"].SCENES["call"]
CALLED = SCENE_MODULES["responses"].SCENES["call"]
EFFORT: dict[str, Any] = {"reasoning": {"effort": "medium"}}
ANY_JSON: dict[str, Any] = {"text": {"format": {"type": "json_object"}}}
REPORT: dict[str, Any] = {"text": FORMAT}
ANSWER = {"type": "function", "function": {"name": "final_answer"}}
NOT_FOUND = {"error": {"message": "Not found"}}
NUMBERS = count()


@pytest.fixture(scope="module")
def served() -> Iterator[ProviderServers]:
    with serve_providers(["openai", "azure", "responses"], retries=0) as there:
        yield there


@pytest.fixture
def model() -> str:
    """The name of a model that nothing is known of yet."""
    return f"openai/{next(NUMBERS)}"


def final_response(served: ProviderServers, *, stream: bool, door: str = "/v1", **body: Any) -> dict[str, Any]:
    """Ask, and return the response."""
    answer = post_response(served.address, door, stream=stream, **body)
    assert answer.status_code == 200, answer.text
    return parse_stream(answer.text)[-1]["response"] if stream else answer.json()


def play_answers(served: ProviderServers, name: str, *answers: ScriptedAnswer) -> ScriptedUpstream:
    """Have an upstream play, as if it had not been asked before."""
    there = served.upstreams[name]
    there.play(*answers)
    there.requests.clear()
    return there


def output_text(response: dict[str, Any]) -> str:
    """Return the text of a response."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def warning_messages(response: dict[str, Any]) -> list[str]:
    """Return what a response warns of."""
    return [warning["param"] for warning in response.get("antiphon:warnings", [])]


def schema_answer(stream: bool, arguments: str = chat.REPORT) -> ScriptedAnswer:
    """Play a call of the answer's tool."""
    if stream:
        bits = chat.calls(chat.call_start(0, "a", "final_answer", arguments))
        return sse_answer(chat.stream(bits, finish="tool_calls"))
    message = chat.calls(chat.call("a", "final_answer", arguments))
    return ScriptedAnswer(chat.whole(message, "tool_calls"), headers={"content-type": "application/json"})


def text_answer(stream: bool, words: str = chat.REPORT) -> ScriptedAnswer:
    """Play some words."""
    if stream:
        return sse_answer(chat.stream({"content": words}))
    return ScriptedAnswer(chat.whole({"content": words}), headers={"content-type": "application/json"})


# --- Responses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "words"), [(400, TOOLS_ONLY_IN_RESPONSES), (404, ONLY_RESPONSES)])
def test_a_model_that_needs_responses_is_called_there_and_later_too(
    served: ProviderServers, model: str, status: int, words: str, stream: bool
) -> None:
    played = stream_answer(CALLED) if stream else whole_answer(CALLED)
    there = play_answers(served, "openai", error_answer(words, status), played)
    wish = {"model": model, "tools": [TOOL], **EFFORT, "stream": stream}
    first, second = [final_response(served, **wish) for _ in range(2)]
    paths = [sent.path for sent in there.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    for response in (first, second):
        assert [item["type"] for item in response["output"]] == ["function_call"]
        assert warning_messages(response) == []
    body = there.requests[-1].json
    assert (body["reasoning"], body["store"]) == ({"effort": "medium"}, False)
    assert "previous_response_id" not in body
    assert {sent.headers["authorization"] for sent in there.requests} == {"Bearer secret-openai"}


@pytest.mark.parametrize("door", DOORS)
def test_its_conversation_goes_on_there_for_the_state_is_ours(served: ProviderServers, model: str, door: str) -> None:
    there = play_answers(served, "openai", error_answer(TOOLS_ONLY_IN_RESPONSES), whole_answer(CALLED))
    first = final_response(served, door=door, stream=False, model=model, tools=[TOOL])
    call_id = first["output"][0]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    there.play(whole_answer(SCENE_MODULES["responses"].SCENES["text"]))
    goes_on = {"previous_response_id": first["id"], "input": [output], "tools": [TOOL]}
    final_response(served, door=door, stream=False, model=model, **goes_on)
    body = there.requests[-1].json
    types = [item["type"] for item in body["input"]]
    assert types == ["message", "function_call", "function_call_output"]


def test_what_it_thought_in_chat_stays_behind(served: ProviderServers, model: str) -> None:
    thought = SCENE_MODULES["openai"].SCENES["thinking_and_call"]
    there = play_answers(served, "openai", whole_answer(thought))
    first = final_response(served, stream=False, model=model, tools=[TOOL])
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    there.play(error_answer(TOOLS_ONLY_IN_RESPONSES), whole_answer(CALLED))
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"} for call in calls]
    goes_on = {"previous_response_id": first["id"], "input": outputs, "tools": [TOOL]}
    final_response(served, stream=False, model=model, **goes_on)
    types = {item["type"] for item in there.requests[-1].json["input"]}
    assert types == {"message", "function_call", "function_call_output"}


def test_a_client_of_our_chat_is_answered_too(served: ProviderServers, model: str) -> None:
    there = play_answers(served, "openai", error_answer(TOOLS_ONLY_IN_RESPONSES), whole_answer(CALLED))
    function = {key: TOOL[key] for key in ("name", "description", "parameters")}
    wish = {
        "model": model,
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"type": "function", "function": function}],
    }
    with http_client(served.address) as http:
        answered = http.post("/v1/chat/completions", json=wish).json()
    assert answered["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert there.requests[-1].path == "/v1/responses"


@pytest.mark.parametrize("options", [{}, {"api_version": "2024-10-21"}])
def test_azure_has_responses_at_its_newer_address(options: dict[str, str]) -> None:
    azure = make_adapter(Azure, endpoint="https://a.openai.azure.com", **options)
    other = azure.fallback_adapter(decode_error(azure, NO_CHAT))
    assert isinstance(other, OpenResponses)
    asking = encode_request(other, upstream_model="codex", seed=7)
    assert asking.sent.url == "https://a.openai.azure.com/openai/v1/responses"
    assert [warning.param for warning in asking.warnings] == ["seed"]


def test_a_deployment_that_needs_responses_is_called_there_with_the_same_key(served: ProviderServers) -> None:
    there = play_answers(served, "azure", error_answer(NO_CHAT), whole_answer(CALLED))
    final_response(served, stream=False, model="azure/codex", tools=[TOOL])
    sent = [(request.path, request.headers["api-key"]) for request in there.requests]
    assert sent == [("/openai/v1/chat/completions", "secret-azure"), ("/openai/v1/responses", "secret-azure")]


def test_writer_has_no_responses() -> None:
    writer = make_adapter(Writer)
    assert writer.fallback_adapter(decode_error(writer, ONLY_RESPONSES)) is None


def test_a_server_with_neither_api_is_not_called_in_a_loop(served: ProviderServers, model: str) -> None:
    there = play_answers(served, "openai", error_answer(ONLY_RESPONSES), json_answer(NOT_FOUND, 404))
    for _ in range(2):
        assert post_response(served.address, model=model).status_code == 404
        there.play(error_answer(ONLY_RESPONSES), json_answer(NOT_FOUND, 404))
    paths = [sent.path for sent in there.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses"] * 2  # nothing has worked yet


def test_a_server_called_through_responses_first_is_not_called_in_a_loop(served: ProviderServers) -> None:
    absent = json_answer(NOT_FOUND, 404)
    there = play_answers(served, "responses", absent, error_answer(ONLY_RESPONSES), absent)
    assert post_response(served.address, model="responses/neither").status_code == 404
    paths = [sent.path for sent in there.requests]
    assert paths == ["/v1/responses", "/v1/chat/completions", "/v1/responses"]


def test_a_model_without_reasoning_gets_a_smaller_responses_request() -> None:
    there = make_adapter(OpenAI)
    eager = there.fallback_adapter(decode_error(there, ONLY_RESPONSES))
    assert eager
    modest = eager.fallback_adapter(decode_error(eager, "Encrypted content is not supported with this model."))
    assert isinstance(modest, OpenResponses)
    assert "include" not in encode_request(modest).body
    assert modest.fallback_adapter(decode_error(modest, "Not found", 404)) is None


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 422])
def test_a_schema_that_a_server_lacks_is_had_by_a_tool_and_from_then_on(
    served: ProviderServers, model: str, status: int, stream: bool
) -> None:
    there = play_answers(served, "openai", error_answer(NO_SCHEMA, status), schema_answer(stream))
    wish = {"model": model, **REPORT, "stream": stream}
    responses = [final_response(served, **wish) for _ in range(2)]
    assert [output_text(response) for response in responses] == [chat.REPORT] * 2
    first, *others = [sent.json for sent in there.requests]
    assert first["response_format"]["type"] == "json_schema"
    for body in others:
        assert "response_format" not in body
        assert body["tool_choice"] == ANSWER
    assert len(others) == 2


def test_what_does_not_satisfy_the_schema_has_failed_there_too(served: ProviderServers, model: str) -> None:
    play_answers(served, "openai", error_answer(NO_SCHEMA), schema_answer(False, '{"city":"Berlin"}'))
    failed = post_response(served.address, model=model, **REPORT).json()
    assert failed["error"]["code"] == "invalid_structured_output"


def test_its_json_of_any_shape_is_still_its_own(served: ProviderServers, model: str) -> None:
    there = play_answers(served, "openai", error_answer(NO_SCHEMA), schema_answer(False), text_answer(False, "{}"))
    final_response(served, stream=False, model=model, **REPORT)
    final_response(served, stream=False, model=model, **ANY_JSON)
    assert there.requests[-1].json["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_with_tools_uses_the_answer_tool_and_without_tools_the_format(
    served: ProviderServers, model: str, stream: bool
) -> None:
    there = play_answers(served, "openai", error_answer(NO_JSON_WITH_TOOLS), schema_answer(stream), text_answer(stream))
    wish = {"model": model, **REPORT, "stream": stream}
    assert output_text(final_response(served, **wish, tools=[TOOL])) == chat.REPORT
    assert output_text(final_response(served, **wish)) == chat.REPORT
    _, forced, alone = [sent.json for sent in there.requests]
    names = [tool["function"]["name"] for tool in forced["tools"]]
    assert (names, forced["tool_choice"]) == (["weather", "final_answer"], "required")
    assert alone["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_cannot_be_chosen_by_name_is_offered_alone(
    served: ProviderServers, model: str, stream: bool
) -> None:
    refusals = [error_answer(NO_OBJECT), error_answer(NO_NAMED_CHOICE)]
    there = play_answers(served, "openai", *refusals, schema_answer(stream, "{}"))
    assert output_text(final_response(served, model=model, **ANY_JSON, stream=stream)) == "{}"
    named = {"tools": [TOOL, TIME], "tool_choice": {"type": "function", "name": "time"}}
    final_response(served, model=model, **named, stream=stream)
    _, _, forced, last = [sent.json for sent in there.requests]
    assert forced["tool_choice"] == last["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in last["tools"]] == ["time"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("played", [schema_answer, text_answer])
def test_a_server_without_schemas_and_tool_choice_is_offered_the_tool(
    served: ProviderServers, model: str, played: Any, stream: bool
) -> None:
    refusals = [error_answer(NO_SCHEMA), error_answer(NO_TOOL_CHOICE)]
    there = play_answers(served, "openai", *refusals, played(stream))
    wish = {"model": model, **REPORT, "stream": stream}
    responses = [final_response(served, **wish) for _ in range(2)]
    assert [output_text(response) for response in responses] == [chat.REPORT] * 2
    bodies = [sent.json for sent in there.requests]
    assert ["tool_choice" in body for body in bodies] == [False, True, False, False]


def test_a_required_call_is_rejected_with_the_param(served: ProviderServers, model: str) -> None:
    play_answers(served, "openai", error_answer(NO_TOOL_CHOICE))
    answered = post_response(served.address, model=model, tools=[TOOL], tool_choice="required")
    assert answered.status_code == 400
    assert answered.json()["error"]["param"] == "tool_choice"


# --- effort ---------------------------------------------------------------------------------------

MISTRAL = [{"type": "extra_forbidden", "loc": ["body", "reasoning_effort"]}]
MISTRAL[0]["msg"] = "Extra inputs are not permitted"
BODIES = {
    "groq": {"error": {"message": NO_EFFORT, "type": "invalid_request_error"}},
    "xai": {
        "code": "Client specified an invalid argument",
        "error": "Model grok-4 does not support parameter reasoningEffort.",
    },
    "azure": {"error": {"message": "Unrecognized request argument supplied: reasoning_effort"}},
    "mistral": {"object": "error", "message": {"detail": MISTRAL}, "type": "invalid_request_error"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("server", BODIES)
def test_a_rejected_effort_is_not_sent_again(served: ProviderServers, model: str, server: str, stream: bool) -> None:
    name = "azure" if server == "azure" else "openai"
    status = 422 if server == "mistral" else 400
    there = play_answers(served, name, json_answer(BODIES[server], status), text_answer(stream, "Hi"))
    wish = {"model": model.replace("openai", name), **EFFORT, "stream": stream}
    responses = [final_response(served, **wish) for _ in range(2)]
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["medium", None, None]
    for response in responses:
        (warning,) = response["antiphon:warnings"]
        assert (warning["code"], warning["param"]) == ("unsupported_parameter", "reasoning")
        assert warning["message"] == f"{name} has no 'reasoning' for this model; it was not sent."


@pytest.mark.parametrize("stream", [False, True])
def test_not_to_think_is_no_less_an_effort_that_it_refuses(served: ProviderServers, model: str, stream: bool) -> None:
    there = play_answers(served, "openai", error_answer(NO_EFFORT), text_answer(stream, "Hi"))
    wish = {"model": model, "reasoning": {"effort": "none"}, "stream": stream}
    responses = [final_response(served, **wish) for _ in range(2)]
    assert [warning_messages(response) for response in responses] == [["reasoning"]] * 2
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["none", None, None]
    assert warning_messages(final_response(served, model=model, stream=stream)) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_may_lack_both(served: ProviderServers, model: str, stream: bool) -> None:
    there = play_answers(served, "openai", error_answer(NO_EFFORT), error_answer(NO_SCHEMA), schema_answer(stream))
    wish = {"model": model, **REPORT, **EFFORT, "stream": stream}
    for _ in range(2):
        response = final_response(served, **wish)
        assert (output_text(response), warning_messages(response)) == (chat.REPORT, ["reasoning"])
    assert len(there.requests) == 4
    assert not {"reasoning_effort", "response_format"} & there.requests[-1].json.keys()


# --- what is remembered ---------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_call_is_sent_even_if_the_server_rejected_one_before(
    served: ProviderServers, model: str, stream: bool
) -> None:
    refusals = [error_answer(NO_SCHEMA), error_answer(NO_TOOL_CHOICE)]
    there = play_answers(served, "openai", *refusals, schema_answer(stream))
    wish = {"model": model, "stream": stream}
    final_response(served, **wish, **REPORT)
    demand = {"tools": [TOOL], "tool_choice": "required"}
    there.play(stream_answer(CALL) if stream else whole_answer(CALL), schema_answer(stream))
    assert final_response(served, **wish, **demand)["output"][0]["type"] == "function_call"
    assert there.requests[-1].json["tool_choice"] == "required"
    final_response(served, **wish, **REPORT)
    assert not {"response_format", "tool_choice"} & there.requests[-1].json.keys()


@pytest.mark.parametrize("stream", [False, True])
def test_what_responses_does_not_support_is_sent_to_chat(served: ProviderServers, model: str, stream: bool) -> None:
    there = play_answers(served, "openai", error_answer(OLD_API_VERSION), whole_answer(CALLED))
    final_response(served, stream=False, model=model, tools=[TOOL], **EFFORT)
    there.play(text_answer(stream, "Hi"))
    response = final_response(served, stream=stream, model=model, stop=["END"])
    assert (output_text(response), warning_messages(response)) == ("Hi", [])
    there.play(whole_answer(CALLED))
    final_response(served, stream=False, model=model, tools=[TOOL], **EFFORT)
    paths = [sent.path.removeprefix("/v1/") for sent in there.requests]
    assert paths == ["chat/completions", "responses", "chat/completions", "responses"]


def test_but_what_chat_refuses_then_is_refused_with_the_param(served: ProviderServers, model: str) -> None:
    there = play_answers(served, "openai", error_answer(ONLY_RESPONSES), whole_answer(CALLED))
    final_response(served, stream=False, model=model)
    there.play(error_answer(ONLY_RESPONSES))
    answered = post_response(served.address, model=model, stop=["END"])
    assert (answered.status_code, answered.json()["error"]["param"]) == (400, "stop")


def test_what_two_requests_find_out_at_once_adds_up(served: ProviderServers, model: str) -> None:
    slow = replace(error_answer(NO_EFFORT), delay=0.5)
    played = [slow, error_answer(NO_SCHEMA), schema_answer(False), text_answer(False, "Hi"), schema_answer(False)]
    there = play_answers(served, "openai", *played)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(final_response, served, stream=False, model=model, **EFFORT)
        while not there.requests:
            sleep(0.01)
        final_response(served, stream=False, model=model, **REPORT)
        assert output_text(first.result()) == "Hi"
    final_response(served, stream=False, model=model, **EFFORT, **REPORT)
    assert len(there.requests) == 5
    assert not {"reasoning_effort", "response_format"} & there.requests[-1].json.keys()


def test_another_model_of_the_same_server_is_not_affected(served: ProviderServers, model: str) -> None:
    there = play_answers(served, "openai", error_answer(NO_EFFORT), text_answer(False, "Hi"))
    for name in (model, f"{model}-other"):
        final_response(served, stream=False, model=name, **EFFORT)
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["medium", None, "medium"]


def test_what_has_not_worked_is_not_remembered(served: ProviderServers, model: str) -> None:
    other = error_answer("No.")
    there = play_answers(served, "openai", error_answer(NO_EFFORT), other, error_answer(NO_EFFORT), other)
    for _ in range(2):
        assert post_response(served.address, model=model, **EFFORT).status_code == 400
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["medium", None, "medium", None]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", REQUEST_MISTAKES)
def test_any_other_refusal_is_passed_on_after_one_request(
    served: ProviderServers, model: str, words: str, stream: bool
) -> None:
    there = play_answers(served, "openai", error_answer(words))
    wish = {"tools": [TOOL], **REPORT, **EFFORT}
    answered = post_response(served.address, model=model, stream=stream, **wish)
    assert answered.status_code == 400
    error = answered.json()["error"]
    assert (error["message"], error["type"]) == (f"openai: {words}", "invalid_request_error")
    assert len(there.requests) == 1


# --- a circle -------------------------------------------------------------------------------------


class RetryingAdapter(OpenAI):
    """An adapter that always knows another way."""

    def fallback_adapter(self, error: UpstreamError) -> Adapter:
        """Return one that is as good as this one."""
        del error
        return RetryingAdapter(self.provider)


def test_an_adapter_that_always_knows_another_way_is_not_followed_for_ever(
    served: ProviderServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = play_answers(served, "openai", error_answer("No."))
    provider = Provider(name="restless", adapter="openai", base_url=f"{there.url}/v1")
    monkeypatch.setattr("antiphon.adapters.openai.OpenAI", RetryingAdapter)
    with run_server(Settings(providers=[provider])) as address:
        assert post_response(address, model="restless/m").status_code == 400
    assert len(there.requests) == 5
