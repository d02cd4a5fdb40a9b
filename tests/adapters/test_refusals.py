"""Servers of the chat dialect that refuse what can be had in another way."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.azure import Azure
from antiphon.adapters.base import Adapter, Provider
from antiphon.adapters.chat import Chat
from antiphon.adapters.chat.refusals import lacked, wants_responses
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.responses import Responses
from antiphon.adapters.writer import Writer
from antiphon.core.errors import UpstreamError
from antiphon.server.settings import Settings
from tests.adapters.everywhere import SCRIPTS, House, house, in_one_piece, streamed
from tests.adapters.hearing import asked, made
from tests.adapters.refusing import (
    CALLERS,
    LACKS,
    NO_CHAT,
    NO_DEMAND,
    NO_EFFORT,
    NO_NAME,
    NO_OBJECT,
    NO_SCHEMA,
    NOT_TOGETHER,
    OLDER,
    ONLY_RESPONSES,
    TOOLS_IN_RESPONSES,
    refusal,
    refused,
)
from tests.adapters.scripts import FORMAT, TIME, TOOL
from tests.adapters.scripts import openai as chat
from tests.asking import DOORS, ask, client, events_of
from tests.serving import serving
from tests.upstream import Answer, ScriptedUpstream, sse, whole

TEXT = SCRIPTS["openai"].SCENES["text"]
CALL = SCRIPTS["openai"].SCENES["call"]
CALLED = SCRIPTS["responses"].SCENES["call"]
EFFORT: dict[str, Any] = {"reasoning": {"effort": "medium"}}
ANY_JSON: dict[str, Any] = {"text": {"format": {"type": "json_object"}}}
REPORT: dict[str, Any] = {"text": FORMAT}
ANSWER = {"type": "function", "function": {"name": "final_answer"}}
NOT_FOUND = {"error": {"message": "Not found"}}
NUMBERS = count()


@pytest.fixture(scope="module")
def served() -> Iterator[House]:
    with house(["openai", "azure", "responses"], retries=0) as there:
        yield there


@pytest.fixture
def model() -> str:
    """The name of a model that nothing is known of yet."""
    return f"openai/{next(NUMBERS)}"


def response_of(served: House, *, stream: bool, door: str = "/v1", **body: Any) -> dict[str, Any]:
    """Ask, and return the response."""
    answer = ask(served.address, door, stream=stream, **body)
    assert answer.status_code == 200, answer.text
    return events_of(answer.text)[-1]["response"] if stream else answer.json()


def playing(served: House, name: str, *answers: Answer) -> ScriptedUpstream:
    """Have an upstream play, as if it had not been asked before."""
    there = served.upstreams[name]
    there.play(*answers)
    there.requests.clear()
    return there


def said(response: dict[str, Any]) -> str:
    """Return the text of a response."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def warned(response: dict[str, Any]) -> list[str]:
    """Return what a response warns of."""
    return [warning["param"] for warning in response.get("antiphon:warnings", [])]


def answer(stream: bool, arguments: str = chat.REPORT) -> Answer:
    """Play a call of the answer's tool."""
    if stream:
        bits = chat.calls(chat.begin(0, "a", "final_answer", arguments))
        return sse(chat.stream(bits, finish="tool_calls"))
    message = chat.calls(chat.call("a", "final_answer", arguments))
    return Answer(chat.whole(message, "tool_calls"), headers={"content-type": "application/json"})


def text(stream: bool, words: str = chat.REPORT) -> Answer:
    """Play some words."""
    if stream:
        return sse(chat.stream({"content": words}))
    return Answer(chat.whole({"content": words}), headers={"content-type": "application/json"})


# --- what is recognised ---------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "feature"), LACKS)
def test_a_lack_is_recognised(words: str, feature: str) -> None:
    assert [lacked(status, words) for status in (400, 422)] == [feature, feature]
    assert not wants_responses(400, words)


@pytest.mark.parametrize("words", [TOOLS_IN_RESPONSES, OLDER, ONLY_RESPONSES, NO_CHAT])
def test_a_model_that_wants_responses_is_recognised(words: str) -> None:
    assert wants_responses(400, words)
    assert wants_responses(404, words)
    assert lacked(400, words) is None


@pytest.mark.parametrize("words", CALLERS)
def test_what_the_caller_did_wrong_is_no_lack(words: str) -> None:
    assert lacked(400, words) is None
    assert not wants_responses(400, words)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
@pytest.mark.parametrize("words", [ONLY_RESPONSES, NO_EFFORT])
def test_only_a_refusal_of_the_request_is_one(words: str, status: int) -> None:
    assert lacked(status, words) is None
    assert not wants_responses(status, words)


@given(st.text(min_size=1), st.sampled_from([words for words, _ in LACKS] + [ONLY_RESPONSES]))
def test_nothing_is_learnt_from_what_is_quoted(before: str, words: str) -> None:
    quoted = f"{before} {words}"
    assert lacked(400, quoted) is None
    assert not wants_responses(400, quoted)


@pytest.mark.parametrize(("words", "feature"), LACKS)
def test_only_an_effort_may_be_found_lacking_at_openais_own_address(
    words: str, feature: str
) -> None:
    own = made(OpenAI)
    assert (own.instead(refused(own, words)) is not None) == (feature == "reasoning")


@pytest.mark.parametrize(("words", "feature"), LACKS)
def test_what_is_refused_once_more_is_not_asked_again(words: str, feature: str) -> None:
    there = made(OpenAI, base_url="http://x/v1")
    other = there.instead(refused(there, words))
    assert isinstance(there, Chat)
    assert isinstance(other, Chat)
    assert (other.lacking, there.lacking) == (frozenset({feature}), frozenset())
    assert other.instead(refused(other, words)) is None


def test_lacks_add_up_in_any_order() -> None:
    words = [NO_EFFORT, NO_SCHEMA, NO_DEMAND]
    for order in (words, words[::-1]):
        adapter: Adapter | None = made(OpenAI, base_url="http://x/v1")
        for refusing in order:
            assert adapter
            adapter = adapter.instead(refused(adapter, refusing))
        assert isinstance(adapter, OpenAI)
        assert adapter.lacking == {"reasoning", "json_schema", "tool_choice"}
        asking = asked(adapter, **EFFORT, **REPORT)
        assert asking.body.keys() == {"model", "messages", "tools"}


# --- Responses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "words"), [(400, TOOLS_IN_RESPONSES), (404, ONLY_RESPONSES)])
def test_a_model_that_wants_responses_is_asked_there_and_from_then_on(
    served: House, model: str, status: int, words: str, stream: bool
) -> None:
    played = streamed(CALLED) if stream else in_one_piece(CALLED)
    there = playing(served, "openai", refusal(words, status), played)
    wish = {"model": model, "tools": [TOOL], **EFFORT, "stream": stream}
    first, second = [response_of(served, **wish) for _ in range(2)]
    paths = [sent.path for sent in there.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    for response in (first, second):
        assert [item["type"] for item in response["output"]] == ["function_call"]
        assert warned(response) == []
    body = there.requests[-1].json
    assert (body["reasoning"], body["store"]) == ({"effort": "medium"}, False)
    assert "previous_response_id" not in body
    assert {sent.headers["authorization"] for sent in there.requests} == {"Bearer secret-openai"}


@pytest.mark.parametrize("door", DOORS)
def test_its_conversation_goes_on_there_for_the_state_is_ours(
    served: House, model: str, door: str
) -> None:
    there = playing(served, "openai", refusal(TOOLS_IN_RESPONSES), in_one_piece(CALLED))
    first = response_of(served, door=door, stream=False, model=model, tools=[TOOL])
    call_id = first["output"][0]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    there.play(in_one_piece(SCRIPTS["responses"].SCENES["text"]))
    goes_on = {"previous_response_id": first["id"], "input": [output], "tools": [TOOL]}
    response_of(served, door=door, stream=False, model=model, **goes_on)
    body = there.requests[-1].json
    types = [item["type"] for item in body["input"]]
    assert types == ["message", "function_call", "function_call_output"]


def test_what_it_thought_in_chat_stays_behind(served: House, model: str) -> None:
    thought = SCRIPTS["openai"].SCENES["thinking_and_call"]
    there = playing(served, "openai", in_one_piece(thought))
    first = response_of(served, stream=False, model=model, tools=[TOOL])
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    there.play(refusal(TOOLS_IN_RESPONSES), in_one_piece(CALLED))
    outputs = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        for call in calls
    ]
    goes_on = {"previous_response_id": first["id"], "input": outputs, "tools": [TOOL]}
    response_of(served, stream=False, model=model, **goes_on)
    types = {item["type"] for item in there.requests[-1].json["input"]}
    assert types == {"message", "function_call", "function_call_output"}


def test_a_client_of_our_chat_is_answered_too(served: House, model: str) -> None:
    there = playing(served, "openai", refusal(TOOLS_IN_RESPONSES), in_one_piece(CALLED))
    function = {key: TOOL[key] for key in ("name", "description", "parameters")}
    wish = {
        "model": model,
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"type": "function", "function": function}],
    }
    with client(served.address) as http:
        answered = http.post("/v1/chat/completions", json=wish).json()
    assert answered["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert there.requests[-1].path == "/v1/responses"


@pytest.mark.parametrize("options", [{}, {"api_version": "2024-10-21"}])
def test_azure_has_responses_at_its_newer_address(options: dict[str, str]) -> None:
    azure = made(Azure, endpoint="https://a.openai.azure.com", **options)
    other = azure.instead(refused(azure, NO_CHAT))
    assert isinstance(other, Responses)
    asking = asked(other, upstream_model="codex", seed=7)
    assert asking.sent.url == "https://a.openai.azure.com/openai/v1/responses"
    assert [warning.param for warning in asking.warnings] == ["seed"]


def test_a_deployment_that_wants_responses_is_asked_there_with_the_same_key(served: House) -> None:
    there = playing(served, "azure", refusal(NO_CHAT), in_one_piece(CALLED))
    response_of(served, stream=False, model="azure/codex", tools=[TOOL])
    sent = [(request.path, request.headers["api-key"]) for request in there.requests]
    assert sent == [
        ("/openai/v1/chat/completions", "secret-azure"),
        ("/openai/v1/responses", "secret-azure"),
    ]


def test_writer_has_no_responses() -> None:
    writer = made(Writer)
    assert writer.instead(refused(writer, ONLY_RESPONSES)) is None


def test_a_server_that_has_neither_is_not_asked_in_a_circle(served: House, model: str) -> None:
    there = playing(served, "openai", refusal(ONLY_RESPONSES), whole(NOT_FOUND, 404))
    for _ in range(2):
        assert ask(served.address, model=model).status_code == 404
        there.play(refusal(ONLY_RESPONSES), whole(NOT_FOUND, 404))
    paths = [sent.path for sent in there.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses"] * 2  # nothing has worked yet


def test_nor_is_one_that_is_asked_in_responses_first(served: House) -> None:
    absent = whole(NOT_FOUND, 404)
    there = playing(served, "responses", absent, refusal(ONLY_RESPONSES), absent)
    assert ask(served.address, model="responses/neither").status_code == 404
    paths = [sent.path for sent in there.requests]
    assert paths == ["/v1/responses", "/v1/chat/completions", "/v1/responses"]


def test_a_model_that_does_not_think_is_asked_in_responses_for_less() -> None:
    there = made(OpenAI)
    eager = there.instead(refused(there, ONLY_RESPONSES))
    assert eager
    modest = eager.instead(refused(eager, "Encrypted content is not supported with this model."))
    assert isinstance(modest, Responses)
    assert "include" not in asked(modest).body
    assert modest.instead(refused(modest, "Not found", 404)) is None


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 422])
def test_a_schema_that_a_server_lacks_is_had_by_a_tool_and_from_then_on(
    served: House, model: str, status: int, stream: bool
) -> None:
    there = playing(served, "openai", refusal(NO_SCHEMA, status), answer(stream))
    wish = {"model": model, **REPORT, "stream": stream}
    responses = [response_of(served, **wish) for _ in range(2)]
    assert [said(response) for response in responses] == [chat.REPORT] * 2
    first, *others = [sent.json for sent in there.requests]
    assert first["response_format"]["type"] == "json_schema"
    for body in others:
        assert "response_format" not in body
        assert body["tool_choice"] == ANSWER
    assert len(others) == 2


def test_what_does_not_satisfy_the_schema_has_failed_there_too(served: House, model: str) -> None:
    playing(served, "openai", refusal(NO_SCHEMA), answer(False, '{"city":"Berlin"}'))
    failed = ask(served.address, model=model, **REPORT).json()
    assert failed["error"]["code"] == "invalid_structured_output"


def test_its_json_of_any_shape_is_still_its_own(served: House, model: str) -> None:
    there = playing(served, "openai", refusal(NO_SCHEMA), answer(False), text(False, "{}"))
    response_of(served, stream=False, model=model, **REPORT)
    response_of(served, stream=False, model=model, **ANY_JSON)
    assert there.requests[-1].json["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_beside_tools_is_had_by_a_tool_and_alone_as_before(
    served: House, model: str, stream: bool
) -> None:
    there = playing(served, "openai", refusal(NOT_TOGETHER), answer(stream), text(stream))
    wish = {"model": model, **REPORT, "stream": stream}
    assert said(response_of(served, **wish, tools=[TOOL])) == chat.REPORT
    assert said(response_of(served, **wish)) == chat.REPORT
    _, forced, alone = [sent.json for sent in there.requests]
    names = [tool["function"]["name"] for tool in forced["tools"]]
    assert (names, forced["tool_choice"]) == (["weather", "final_answer"], "required")
    assert alone["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_cannot_be_called_by_its_name_is_the_only_one_to_be_called(
    served: House, model: str, stream: bool
) -> None:
    refusals = [refusal(NO_OBJECT), refusal(NO_NAME)]
    there = playing(served, "openai", *refusals, answer(stream, "{}"))
    assert said(response_of(served, model=model, **ANY_JSON, stream=stream)) == "{}"
    named = {"tools": [TOOL, TIME], "tool_choice": {"type": "function", "name": "time"}}
    response_of(served, model=model, **named, stream=stream)
    _, _, forced, last = [sent.json for sent in there.requests]
    assert forced["tool_choice"] == last["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in last["tools"]] == ["time"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("played", [answer, text])
def test_a_server_without_schemas_and_demands_is_offered_the_tool(
    served: House, model: str, played: Any, stream: bool
) -> None:
    refusals = [refusal(NO_SCHEMA), refusal(NO_DEMAND)]
    there = playing(served, "openai", *refusals, played(stream))
    wish = {"model": model, **REPORT, "stream": stream}
    responses = [response_of(served, **wish) for _ in range(2)]
    assert [said(response) for response in responses] == [chat.REPORT] * 2
    bodies = [sent.json for sent in there.requests]
    assert ["tool_choice" in body for body in bodies] == [False, True, False, False]


def test_a_call_that_is_demanded_of_it_is_refused_with_the_param(served: House, model: str) -> None:
    playing(served, "openai", refusal(NO_DEMAND))
    answered = ask(served.address, model=model, tools=[TOOL], tool_choice="required")
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
def test_a_model_that_refuses_an_effort_is_asked_without_and_from_then_on(
    served: House, model: str, server: str, stream: bool
) -> None:
    name = "azure" if server == "azure" else "openai"
    status = 422 if server == "mistral" else 400
    there = playing(served, name, whole(BODIES[server], status), text(stream, "Hi"))
    wish = {"model": model.replace("openai", name), **EFFORT, "stream": stream}
    responses = [response_of(served, **wish) for _ in range(2)]
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["medium", None, None]
    for response in responses:
        (warning,) = response["antiphon:warnings"]
        assert (warning["code"], warning["param"]) == ("unsupported_parameter", "reasoning")
        assert warning["message"] == f"{name} has no 'reasoning' for this model; it was not sent."


@pytest.mark.parametrize("stream", [False, True])
def test_not_to_think_is_no_less_an_effort_that_it_refuses(
    served: House, model: str, stream: bool
) -> None:
    there = playing(served, "openai", refusal(NO_EFFORT), text(stream, "Hi"))
    wish = {"model": model, "reasoning": {"effort": "none"}, "stream": stream}
    responses = [response_of(served, **wish) for _ in range(2)]
    assert [warned(response) for response in responses] == [["reasoning"]] * 2
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["none", None, None]
    assert warned(response_of(served, model=model, stream=stream)) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_may_lack_both(served: House, model: str, stream: bool) -> None:
    there = playing(served, "openai", refusal(NO_EFFORT), refusal(NO_SCHEMA), answer(stream))
    wish = {"model": model, **REPORT, **EFFORT, "stream": stream}
    for _ in range(2):
        response = response_of(served, **wish)
        assert (said(response), warned(response)) == (chat.REPORT, ["reasoning"])
    assert len(there.requests) == 4
    assert not {"reasoning_effort", "response_format"} & there.requests[-1].json.keys()


# --- what is remembered ---------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_demanded_is_the_servers_to_refuse_whatever_it_refused_before(
    served: House, model: str, stream: bool
) -> None:
    refusals = [refusal(NO_SCHEMA), refusal(NO_DEMAND)]
    there = playing(served, "openai", *refusals, answer(stream))
    wish = {"model": model, "stream": stream}
    response_of(served, **wish, **REPORT)
    demand = {"tools": [TOOL], "tool_choice": "required"}
    there.play(streamed(CALL) if stream else in_one_piece(CALL), answer(stream))
    assert response_of(served, **wish, **demand)["output"][0]["type"] == "function_call"
    assert there.requests[-1].json["tool_choice"] == "required"
    response_of(served, **wish, **REPORT)
    assert not {"response_format", "tool_choice"} & there.requests[-1].json.keys()


@pytest.mark.parametrize("stream", [False, True])
def test_what_responses_cannot_carry_is_asked_in_chat_whatever_it_refused_before(
    served: House, model: str, stream: bool
) -> None:
    there = playing(served, "openai", refusal(OLDER), in_one_piece(CALLED))
    response_of(served, stream=False, model=model, tools=[TOOL], **EFFORT)
    there.play(text(stream, "Hi"))
    response = response_of(served, stream=stream, model=model, stop=["END"])
    assert (said(response), warned(response)) == ("Hi", [])
    there.play(in_one_piece(CALLED))
    response_of(served, stream=False, model=model, tools=[TOOL], **EFFORT)
    paths = [sent.path.removeprefix("/v1/") for sent in there.requests]
    assert paths == ["chat/completions", "responses", "chat/completions", "responses"]


def test_but_what_chat_refuses_then_is_refused_with_the_param(served: House, model: str) -> None:
    there = playing(served, "openai", refusal(ONLY_RESPONSES), in_one_piece(CALLED))
    response_of(served, stream=False, model=model)
    there.play(refusal(ONLY_RESPONSES))
    answered = ask(served.address, model=model, stop=["END"])
    assert (answered.status_code, answered.json()["error"]["param"]) == (400, "stop")


def test_what_two_requests_find_out_at_once_adds_up(served: House, model: str) -> None:
    slow = replace(refusal(NO_EFFORT), late=0.5)
    played = [slow, refusal(NO_SCHEMA), answer(False), text(False, "Hi"), answer(False)]
    there = playing(served, "openai", *played)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(response_of, served, stream=False, model=model, **EFFORT)
        while not there.requests:
            sleep(0.01)
        response_of(served, stream=False, model=model, **REPORT)
        assert said(first.result()) == "Hi"
    response_of(served, stream=False, model=model, **EFFORT, **REPORT)
    assert len(there.requests) == 5
    assert not {"reasoning_effort", "response_format"} & there.requests[-1].json.keys()


def test_another_model_of_the_same_server_is_asked_as_before(served: House, model: str) -> None:
    there = playing(served, "openai", refusal(NO_EFFORT), text(False, "Hi"))
    for name in (model, f"{model}-other"):
        response_of(served, stream=False, model=name, **EFFORT)
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["medium", None, "medium"]


def test_what_has_not_worked_is_not_remembered(served: House, model: str) -> None:
    other = refusal("No.")
    there = playing(served, "openai", refusal(NO_EFFORT), other, refusal(NO_EFFORT), other)
    for _ in range(2):
        assert ask(served.address, model=model, **EFFORT).status_code == 400
    efforts = [sent.json.get("reasoning_effort") for sent in there.requests]
    assert efforts == ["medium", None, "medium", None]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", CALLERS)
def test_any_other_refusal_is_passed_on_after_one_request(
    served: House, model: str, words: str, stream: bool
) -> None:
    there = playing(served, "openai", refusal(words))
    wish = {"tools": [TOOL], **REPORT, **EFFORT}
    answered = ask(served.address, model=model, stream=stream, **wish)
    assert answered.status_code == 400
    error = answered.json()["error"]
    assert (error["message"], error["type"]) == (f"openai: {words}", "invalid_request_error")
    assert len(there.requests) == 1


# --- a circle -------------------------------------------------------------------------------------


class Restless(OpenAI):
    """An adapter that always knows another way."""

    def instead(self, error: UpstreamError) -> Adapter:
        """Return one that is as good as this one."""
        del error
        return Restless(self.provider)


def test_an_adapter_that_always_knows_another_way_is_not_followed_for_ever(
    served: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = playing(served, "openai", refusal("No."))
    provider = Provider(name="restless", adapter="openai", base_url=f"{there.url}/v1")
    monkeypatch.setattr("antiphon.adapters.openai.OpenAI", Restless)
    with serving(Settings(providers=[provider])) as address:
        assert ask(address, model="restless/m").status_code == 400
    assert len(there.requests) == 5
