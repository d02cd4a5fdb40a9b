"""Our server in front of llmock, an upstream that others have written to break its clients.

It decides for itself when to call a tool, from what it reads in our requests; and it judges us, as
a client, by what it has seen of us.
"""

import json
from collections.abc import Iterator

import pytest
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply
from llmock.testing import LLMockServer

from antiphon.adapters.base import Provider
from antiphon.server.settings import Settings
from tests.adapters.response_summary import (
    ErrorSummary,
    ResponseSummary,
    call_summary,
    message_summary,
    post_and_summarize,
)
from tests.http_client import post_response
from tests.run_server import run_server

PLACES = {"openai": "openai", "responses": "openai", "anthropic": "anthropic", "google": "gemini"}
"""Each dialect, and what llmock calls the place where it speaks it."""

DIALECTS = list(PLACES)
TEXT = "Good morning, dear reader of ours."
PARIS = {"city": "Paris"}
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}},
]
CUT = ("failed", "upstream_cut")


def settings(server: LLMockServer, **choices: float) -> Settings:
    """Configure llmock once for each dialect."""
    providers = [Provider(name=name, adapter=name, base_url=server.base_url(place)) for name, place in PLACES.items()]
    return Settings(providers=providers, keys=dict.fromkeys(PLACES, "a-key"), **choices)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def home(llmock_server: LLMockServer) -> Iterator[str]:
    with run_server(settings(llmock_server, retries=0)) as address:
        yield address


@pytest.fixture(scope="module")
def patient(llmock_server: LLMockServer) -> Iterator[str]:
    """A server that tries again, soon."""
    with run_server(settings(llmock_server, retries=2, retry_seconds=0.05)) as address:
        yield address


every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def find_problems(llmock: LLMock) -> list[str]:
    """Return what llmock holds against us."""
    return [finding.code for finding in llmock.verdict().findings]


# --- what is said ---------------------------------------------------------------------------------


@both_ways
@every_dialect
def test_text_is_passed_through(home: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    llmock.reply(TEXT)
    assert post_and_summarize(home, model=f"{dialect}/some-model", stream=stream) == ResponseSummary(
        [message_summary(TEXT)]
    )
    assert llmock.last_request.model == "some-model"
    llmock.assert_resilient(strict=True)


@both_ways
@every_dialect
def test_a_call_is_made_and_its_output_is_answered(home: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    model = f"{dialect}/some-model"
    asked = {"role": "user", "content": "What is the weather?"}
    made = post_and_summarize(home, model=model, input=[asked], tools=TOOLS, stream=stream)
    assert made == ResponseSummary([call_summary("get_weather", {"city": "mock-city"})])
    first = post_response(home, model=model, input=[asked], tools=TOOLS).json()
    [call] = first["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    for round in ({"input": [asked, call, output]}, {"input": [output], "previous_response_id": first["id"]}):
        llmock.reset().reply("It is sunny.")
        answered = post_and_summarize(home, model=model, tools=TOOLS, stream=stream, **round)
        assert answered == ResponseSummary([message_summary("It is sunny.")])
        assert "sunny" in json.dumps(llmock.last_request.body)
        answered = post_and_summarize(home, model=model, tools=TOOLS, stream=stream, **round)
        assert isinstance(answered, ResponseSummary)  # its own words, once it has seen the output
        assert [item[0] for item in answered.items] == ["message"]


@both_ways
@every_dialect
def test_text_and_calls_come_together(home: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    llmock.call_tool("get_weather", PARIS, text="Let me look.")
    answered = post_and_summarize(home, model=f"{dialect}/some-model", tools=TOOLS, stream=stream)
    assert answered == ResponseSummary([message_summary("Let me look."), call_summary("get_weather", PARIS)])


@every_dialect
def test_the_choice_of_a_tool_is_obeyed(home: str, llmock: LLMock, dialect: str) -> None:
    model = f"{dialect}/some-model"
    one = {"type": "function", "name": "get_time"}
    assert post_and_summarize(home, model=model, tools=TOOLS, tool_choice=one) == ResponseSummary(
        [call_summary("get_time", {})]
    )
    llmock.reply("No tool.")
    none = post_and_summarize(home, model=model, tools=TOOLS, tool_choice="none")
    assert none == ResponseSummary([message_summary("No tool.")])


@pytest.mark.parametrize("dialect", ["openai", "responses", "google"])
def test_a_schema_is_obeyed(home: str, llmock: LLMock, dialect: str) -> None:
    """All but Anthropic's, whose schema llmock looks for where it stood in a beta."""
    del llmock
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer"}},
        "required": ["age"],
        "additionalProperties": False,
    }
    wanted = {"format": {"type": "json_schema", "name": "someone", "schema": schema}}
    answered = post_and_summarize(home, model=f"{dialect}/some-model", text=wanted)
    assert isinstance(answered, ResponseSummary)
    [(_, _, text)] = answered.items
    assert type(json.loads(str(text))["age"]) is int


@both_ways
@every_dialect
def test_a_call_with_invalid_arguments_is_passed_on_unchanged(
    home: str, llmock: LLMock, dialect: str, stream: bool
) -> None:
    """Where arguments are an object on the wire, llmock can only leave them out."""
    llmock.break_tool_call("malformed_arguments")
    answered = post_and_summarize(home, model=f"{dialect}/some-model", tools=TOOLS, stream=stream)
    object_ = dialect == "google" or (dialect == "anthropic" and not stream)
    assert answered == ResponseSummary([call_summary("get_weather", {} if object_ else '{"city": "')])


@both_ways
@every_dialect
def test_a_call_of_an_unknown_tool_is_passed_on(home: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    llmock.break_tool_call("unknown_tool")
    answered = post_and_summarize(home, model=f"{dialect}/some-model", tools=TOOLS, stream=stream)
    assert answered == ResponseSummary([call_summary("llmock_unknown_tool", {"city": "mock-city"})])


# --- the end --------------------------------------------------------------------------------------


@both_ways
@every_dialect
def test_an_answer_that_is_too_long_is_incomplete(home: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    """llmock's Responses say `completed` of the message, and in the name of the last event."""
    llmock.add(Reply(text="And so it", finish_reason="length"))
    assert post_and_summarize(home, model=f"{dialect}/some-model", stream=stream) == ResponseSummary(
        [message_summary("And so it", "incomplete")], "incomplete", "max_output_tokens"
    )


@both_ways
@pytest.mark.parametrize("dialect", ["openai", "anthropic", "google"])
def test_an_answer_that_was_filtered_is_incomplete(home: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    """llmock's Responses have no word for it."""
    llmock.add(Reply(text="And so it", finish_reason="content_filter"))
    assert post_and_summarize(home, model=f"{dialect}/some-model", stream=stream) == ResponseSummary(
        [message_summary("And so it", "incomplete")], "incomplete", "content_filter"
    )


# --- errors ---------------------------------------------------------------------------------------

TYPES = {
    401: ("authentication_error",),
    429: ("rate_limit_error", "too_many_requests"),
    500: ("server_error", "api_error", "model_error"),
}


@both_ways
@pytest.mark.parametrize("status", list(TYPES))
@every_dialect
def test_a_refusal_keeps_its_status_and_its_advice(
    home: str, llmock: LLMock, dialect: str, status: int, stream: bool
) -> None:
    llmock.fail(status, message="No.", retry_after=7 if status == 429 else None)
    answered = post_and_summarize(home, model=f"{dialect}/some-model", stream=stream)
    assert isinstance(answered, ErrorSummary)
    assert (answered.status, answered.message) == (status, f"{dialect}: No.")
    assert answered.after == ("7" if status == 429 else None)
    assert answered.type in TYPES[status]


@every_dialect
def test_advice_to_the_millisecond_is_passed_on(home: str, llmock: LLMock, dialect: str) -> None:
    llmock.rate_limit(retry_after=0.3)
    headers = post_response(home, model=f"{dialect}/some-model").headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("1", "300")


@every_dialect
def test_an_overloaded_provider_is_unavailable(home: str, llmock: LLMock, dialect: str) -> None:
    llmock.fail(529)
    answered = post_and_summarize(home, model=f"{dialect}/some-model")
    assert isinstance(answered, ErrorSummary)
    assert answered.status == 503


# --- what breaks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 3, 5])
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
@every_dialect
def test_a_stream_that_breaks_never_completes(home: str, llmock: LLMock, dialect: str, fault: str, after: int) -> None:
    getattr(llmock.reply(TEXT), fault)(after_chunks=after)
    answered = post_and_summarize(home, model=f"{dialect}/some-model", stream=True)
    assert isinstance(answered, ResponseSummary)
    invalid = ("failed", "upstream_invalid")
    assert (answered.status, answered.error) == (invalid if fault == "corrupt" else CUT)
    for kind, status, text in answered.items:
        assert (kind, status) == ("message", "incomplete")
        assert TEXT.startswith(str(text))
        assert text != TEXT


@pytest.mark.parametrize("fault", ["disconnect", "truncate"])
@pytest.mark.parametrize(("dialect", "after"), [("openai", 3), ("anthropic", 3), ("responses", 4)])
def test_a_call_that_breaks_never_completes(home: str, llmock: LLMock, dialect: str, after: int, fault: str) -> None:
    getattr(llmock.call_tool("get_weather", PARIS), fault)(after_chunks=after)
    answered = post_and_summarize(home, model=f"{dialect}/some-model", tools=TOOLS, stream=True)
    assert answered == ResponseSummary(
        [call_summary("get_weather", '{"city": "Pa', "incomplete")], "failed", error="upstream_cut"
    )


# --- time -----------------------------------------------------------------------------------------


@every_dialect
def test_a_slow_answer_is_waited_for(home: str, llmock: LLMock, dialect: str) -> None:
    model = f"{dialect}/some-model"
    llmock.reply(TEXT, times=3).delay(0.1)
    assert post_and_summarize(home, model=model) == ResponseSummary([message_summary(TEXT)])
    llmock.slow_first_token(0.1)
    assert post_and_summarize(home, model=model, stream=True) == ResponseSummary([message_summary(TEXT)])
    llmock.stall(after_chunks=3, seconds=0.1)
    assert post_and_summarize(home, model=model, stream=True) == ResponseSummary([message_summary(TEXT)])


def test_a_stream_that_stalls_is_left(llmock_server: LLMockServer, llmock: LLMock) -> None:
    with run_server(settings(llmock_server, idle_seconds=0.1)) as address:
        for dialect in DIALECTS:
            llmock.reset().reply(TEXT).stall(after_chunks=1, seconds=5)
            answered = post_and_summarize(address, model=f"{dialect}/some-model", stream=True)
            assert isinstance(answered, ResponseSummary)
            assert answered.status == "failed"
            assert "no_read_timeout" not in find_problems(llmock)


# --- llmock's verdict on us -----------------------------------------------------------------------


@every_dialect
def test_a_retry_waits_as_long_as_the_provider_asks(patient: str, llmock: LLMock, dialect: str) -> None:
    llmock.rate_limit(retry_after=0.3).reply(TEXT)
    assert post_and_summarize(patient, model=f"{dialect}/some-model") == ResponseSummary([message_summary(TEXT)])
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@both_ways
@every_dialect
def test_we_try_again_what_may_succeed(patient: str, llmock: LLMock, dialect: str, stream: bool) -> None:
    llmock.fail(500).reply(TEXT)
    answered = post_and_summarize(patient, model=f"{dialect}/some-model", stream=stream)
    assert answered == ResponseSummary([message_summary(TEXT)])
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@every_dialect
def test_we_give_up_in_the_end(patient: str, llmock: LLMock, dialect: str) -> None:
    llmock.outage(status=502)
    answered = post_and_summarize(patient, model=f"{dialect}/some-model")
    assert isinstance(answered, ErrorSummary)
    assert (answered.status, len(llmock.requests)) == (502, 3)
    llmock.assert_resilient()


@pytest.mark.parametrize("status", [400, 401, 403, 422])
@every_dialect
def test_we_never_repeat_what_cannot_succeed(patient: str, llmock: LLMock, dialect: str, status: int) -> None:
    llmock.fail(status, times=None)
    answered = post_and_summarize(patient, model=f"{dialect}/some-model")
    assert isinstance(answered, ErrorSummary)
    assert (answered.status, len(llmock.requests)) == (status, 1)
    llmock.assert_resilient(strict=True)


@every_dialect
def test_a_broken_stream_is_reported_although_llmock_cannot_see_it(patient: str, llmock: LLMock, dialect: str) -> None:
    """It wants a cut stream asked for again; what has begun cannot be, and the client is told."""
    llmock.reply(TEXT).truncate(after_chunks=5)
    answered = post_and_summarize(patient, model=f"{dialect}/some-model", stream=True)
    assert isinstance(answered, ResponseSummary)
    assert (answered.status, answered.error) == CUT
    assert find_problems(llmock) == ["truncated_stream_accepted"]
