"""Our server in front of aimock, an upstream that others have written, through every dialect.

Where aimock is not like the provider that it plays, the test says so: the provider's own client is
right, and we only have to do something sane.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from antiphon.adapters.base import Provider
from antiphon.server.settings import Settings
from tests.adapters.provider_servers import configure_provider
from tests.adapters.response_summary import (
    ErrorSummary,
    ResponseSummary,
    call_summary,
    message_summary,
    post_and_summarize,
    reasoning_summary,
)
from tests.aimock import KEY, aimock
from tests.http_client import WAIT, post_response
from tests.run_server import run_server

MODELS = {
    "openai": "gpt-4o",
    "azure": "gpt-4o",
    "azure-versioned": "gpt-4o",
    "responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "google": "gemini-2.5-flash",
    "bedrock": "anthropic.claude-3-haiku-20240307-v1:0",
    "ollama": "llama3.2",
}
DIALECTS = list(MODELS)
PATHS = {
    "openai": "/v1/chat/completions",
    "azure": "/openai/v1/chat/completions",
    "azure-versioned": "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/gemini-2.5-flash:generateContent",
    "bedrock": "/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse",
    "ollama": "/api/chat",
}

TEXT = "Good morning, dear reader of streams."
PARIS = {"city": "Paris", "country": "France"}
WEATHER = {"name": "get_weather", "arguments": PARIS, "id": "call_weather"}
TIME = {"name": "get_time", "arguments": {}, "id": "call_time"}
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Says what the weather is like.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
            "required": ["city"],
        },
    },
    {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}},
]
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 5,
    "input_tokens": 11,
    "output_tokens": 5,
    "promptTokenCount": 11,
    "candidatesTokenCount": 5,
}
"""The same counts in every dialect's words."""


def fixture(match: str | dict[str, Any], response: dict[str, Any], **how: Any) -> dict[str, Any]:
    """Say what is answered to a user who says something."""
    asked = {"userMessage": match} if isinstance(match, str) else match
    return {"match": asked, "response": response, **how}


def error(status: int, message: str, **more: Any) -> dict[str, Any]:
    """Say that a request is refused."""
    return {"error": {"message": message, "type": "some_error"}, "status": status, **more}


FIXTURES = [
    fixture("Say it", {"content": TEXT, "usage": USAGE}, chunkSize=5),
    fixture({"userMessage": "Who?", "systemMessage": "a pirate"}, {"content": "Arr."}),
    fixture(
        {"userMessage": "Weather?", "hasToolResult": True, "toolResultContains": "sunny"}, {"content": "It is sunny."}
    ),
    fixture({"userMessage": "Weather?", "hasToolResult": False}, {"toolCalls": [WEATHER]}),
    fixture("Two calls", {"toolCalls": [WEATHER, TIME]}, chunkSize=4),
    fixture("Words and a call", {"content": "Let me look.", "toolCalls": [WEATHER]}),
    fixture("Think", {"content": "Four.", "reasoning": "Two and two."}),
    fixture("Go on", {"content": "And so it", "finishReason": "length"}),
    fixture("Be bad", {"content": "And so it", "finishReason": "content_filter"}),
    fixture("Key?", error(401, "Bad key.")),
    fixture("Hurry", error(429, "Slow down.", retryAfter=7)),
    fixture("Break", error(500, "Oh no.")),
    fixture("Cut the text", {"content": TEXT}, chunkSize=3, latency=8, truncateAfterChunks=7),
    fixture("Cut the call", {"toolCalls": [WEATHER]}, chunkSize=3, latency=8, truncateAfterChunks=7),
    fixture("Cut in time", {"content": TEXT}, chunkSize=3, latency=25, disconnectAfterMs=180),
    fixture("Chaos: malformed", {"content": TEXT}, chaos={"malformedRate": 1}),
    fixture("Chaos: dropped", {"content": TEXT}, chaos={"dropRate": 1}),
    fixture("Chaos: limited", {"content": TEXT}, chaos={"rateLimitRate": 1}),
    fixture("Chaos: gone", {"content": TEXT}, chaos={"disconnectRate": 1}),
    fixture("Slowly", {"content": TEXT}, chunkSize=10, latency=60, chaos={"latencyMs": 150}),
]


@dataclass(frozen=True)
class AimockServer:
    """Our server, and the upstream behind it."""

    address: str
    upstream: str

    def summarize(self, dialect: str, **body: Any) -> ResponseSummary | ErrorSummary:
        """Ask a model through a dialect."""
        return post_and_summarize(self.address, model=f"{dialect}/{MODELS[dialect]}", **body)

    def last_request(self) -> dict[str, Any]:
        """Return the last request that aimock has read: where it was sent and, as chat, what."""
        journal = httpx.get(f"{self.upstream}/__aimock/journal", headers={"x-api-key": KEY})
        return journal.json()[-1]


def providers(url: str) -> list[Provider]:
    """Configure aimock once for each dialect."""
    versioned = Provider(name="azure-versioned", adapter="azure", endpoint=url, api_version="2024-10-21")
    return [versioned, *(configure_provider(name, url) for name in DIALECTS if name != versioned.name)]


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with aimock(FIXTURES) as address:
        yield address


@pytest.fixture(scope="module")
def home(upstream: str) -> Iterator[AimockServer]:
    keys = dict.fromkeys(DIALECTS, KEY)
    with run_server(Settings(providers=providers(upstream), keys=keys, retries=0)) as address:
        yield AimockServer(address, upstream)


every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


# --- what is said ---------------------------------------------------------------------------------


@both_ways
@every_dialect
def test_text_is_passed_through(home: AimockServer, dialect: str, stream: bool) -> None:
    assert home.summarize(dialect, input="Say it", stream=stream) == ResponseSummary([message_summary(TEXT)])


@every_dialect
def test_each_dialect_has_its_own_address(home: AimockServer, dialect: str) -> None:
    home.summarize(dialect, input="Say it")
    assert home.last_request()["path"] == PATHS[dialect]


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "ollama"])
def test_tokens_are_counted(home: AimockServer, dialect: str) -> None:
    """All but Ollama's, which aimock always counts as none."""
    usage = post_response(home.address, model=f"{dialect}/{MODELS[dialect]}", input="Say it").json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (11, 5)


@both_ways
@every_dialect
def test_instructions_and_settings_arrive(home: AimockServer, dialect: str, stream: bool) -> None:
    options = {"instructions": "You are a pirate.", "temperature": 0.5, "max_output_tokens": 100}
    assert home.summarize(dialect, input="Who?", stream=stream, **options) == ResponseSummary([message_summary("Arr.")])
    heard = home.last_request()["body"]
    assert [(m["role"], m["content"]) for m in heard["messages"]] == [("system", "You are a pirate."), ("user", "Who?")]
    assert heard["temperature"] == 0.5
    assert 100 in (heard.get("max_tokens"), heard.get("max_completion_tokens"))


@both_ways
@every_dialect
def test_thoughts_come_through(home: AimockServer, dialect: str, stream: bool) -> None:
    """aimock's Ollama does not think."""
    thoughts = [] if dialect == "ollama" else [reasoning_summary("Two and two.")]
    assert home.summarize(dialect, input="Think", stream=stream) == ResponseSummary(
        [*thoughts, message_summary("Four.")]
    )


# --- tools ----------------------------------------------------------------------------------------


@both_ways
@every_dialect
def test_a_call_is_made_and_its_output_is_answered(home: AimockServer, dialect: str, stream: bool) -> None:
    """aimock's Gemini ends with FUNCTION_CALL, a word that Google's own client does not know."""
    model = f"{dialect}/{MODELS[dialect]}"
    asked = {"role": "user", "content": "Weather?"}
    first = post_response(home.address, model=model, input=[asked], tools=TOOLS)
    assert home.summarize(dialect, input=[asked], tools=TOOLS, stream=stream) == ResponseSummary(
        [call_summary("get_weather", PARIS)]
    )
    [call] = first.json()["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    goes_on = [{"input": [asked, call, output]}, {"input": [output], "previous_response_id": first.json()["id"]}]
    for round in goes_on:
        answered = home.summarize(dialect, tools=TOOLS, stream=stream, **round)
        assert answered == ResponseSummary([message_summary("It is sunny.")])
        messages = home.last_request()["body"]["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
        assert messages[1]["tool_calls"][0]["function"]["name"] == "get_weather"
        assert "sunny" in messages[2]["content"]


@both_ways
@every_dialect
def test_two_calls_at_once_stay_two(home: AimockServer, dialect: str, stream: bool) -> None:
    assert home.summarize(dialect, input="Two calls", tools=TOOLS, stream=stream) == ResponseSummary(
        [call_summary("get_weather", PARIS), call_summary("get_time", {})]
    )
    assert [t["function"]["name"] for t in home.last_request()["body"]["tools"]] == ["get_weather", "get_time"]


@both_ways
@every_dialect
def test_text_before_a_call_is_kept(home: AimockServer, dialect: str, stream: bool) -> None:
    assert home.summarize(dialect, input="Words and a call", tools=TOOLS, stream=stream) == ResponseSummary(
        [message_summary("Let me look."), call_summary("get_weather", PARIS)]
    )


# --- the end --------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "ollama"])
def test_an_answer_that_is_too_long_is_incomplete(home: AimockServer, dialect: str, stream: bool) -> None:
    """All but Ollama's, to which aimock always says `stop`."""
    assert home.summarize(dialect, input="Go on", stream=stream) == ResponseSummary(
        [message_summary("And so it", "incomplete")], "incomplete", "max_output_tokens"
    )


@both_ways
@pytest.mark.parametrize("dialect", ["openai", "azure", "azure-versioned", "google"])
def test_an_answer_that_was_filtered_is_incomplete(home: AimockServer, dialect: str, stream: bool) -> None:
    assert home.summarize(dialect, input="Be bad", stream=stream) == ResponseSummary(
        [message_summary("And so it", "incomplete")], "incomplete", "content_filter"
    )


@both_ways
@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
def test_a_finish_reason_of_another_provider_is_ignored(home: AimockServer, dialect: str, stream: bool) -> None:
    """Anthropic says `refusal`, AWS `content_filtered`; aimock says `content_filter` for both."""
    answered = home.summarize(dialect, input="Be bad", stream=stream)
    assert answered == ResponseSummary([message_summary("And so it")])


def test_a_response_that_failed_without_an_error_fails(home: AimockServer) -> None:
    """OpenAI would say `incomplete`; aimock says `failed`, with no error."""
    told = "responses: broke off and did not say why."
    whole = home.summarize("responses", input="Be bad")
    assert whole == ErrorSummary(502, "model_error", told)
    streamed = home.summarize("responses", input="Be bad", stream=True)
    assert streamed == ResponseSummary([message_summary("And so it", "incomplete")], "failed", error="model_error")


# --- errors ---------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize(
    ("asked", "status", "words", "after"),
    [("Key?", 401, "Bad key.", None), ("Hurry", 429, "Slow down.", "7"), ("Break", 500, "Oh no.", None)],
)
@every_dialect
def test_an_error_keeps_its_status_message_and_retry_headers(
    home: AimockServer, dialect: str, asked: str, status: int, words: str, after: str | None, stream: bool
) -> None:
    answered = home.summarize(dialect, input=asked, stream=stream)
    assert isinstance(answered, ErrorSummary)
    assert (answered.status, answered.after) == (status, after)
    assert answered.message == f"{dialect}: {words}"
    ours = {401: "authentication_error", 429: "too_many_requests", 500: "model_error"}
    assert answered.type in ("some_error", ours[status])


def test_a_wrong_key_is_reported_in_every_dialect(home: AimockServer) -> None:
    """aimock takes the right key only: every other test shows that each dialect sends it."""
    keys = dict.fromkeys(DIALECTS, "wrong")
    with run_server(Settings(providers=providers(home.upstream), keys=keys)) as address:
        for dialect in DIALECTS:
            answered = post_and_summarize(address, model=f"{dialect}/{MODELS[dialect]}", input="Say it")
            assert isinstance(answered, ErrorSummary)
            assert (answered.status, answered.type) == (401, "authentication_error")


def test_what_is_not_there_does_not_change_the_dialect(home: AimockServer) -> None:
    """A server without `/responses` is asked as chat; a 404 about something else is only that."""
    answered = home.summarize("responses", input="Nothing like this is known")
    assert isinstance(answered, ErrorSummary)
    assert (answered.status, answered.message) == (404, "responses: No fixture matched")
    home.summarize("responses", input="Say it")
    assert home.last_request()["path"] == PATHS["responses"]


# --- what breaks ----------------------------------------------------------------------------------


@every_dialect
def test_a_text_that_is_cut_never_completes(home: AimockServer, dialect: str) -> None:
    answered = home.summarize(dialect, input="Cut the text", stream=True)
    assert isinstance(answered, ResponseSummary)
    assert (answered.status, answered.error) == ("failed", "upstream_cut")
    [(kind, status, text)] = answered.items
    assert (kind, status) == ("message", "incomplete")
    assert TEXT.startswith(str(text))
    assert text != TEXT


@every_dialect
def test_a_connection_that_breaks_at_any_time_is_reported(home: AimockServer, dialect: str) -> None:
    match home.summarize(dialect, input="Cut in time", stream=True):
        case ResponseSummary(_, status, _, error):
            assert (status, error) == ("failed", "upstream_cut")
        case ErrorSummary(status):  # it was cut before it had begun
            assert status == 502


@pytest.mark.parametrize("dialect", ["openai", "azure", "azure-versioned", "responses", "anthropic", "bedrock"])
def test_a_call_that_is_cut_never_completes(home: AimockServer, dialect: str) -> None:
    """Google and Ollama send a call in one piece."""
    answered = home.summarize(dialect, input="Cut the call", tools=TOOLS, stream=True)
    assert isinstance(answered, ResponseSummary)
    assert (answered.status, answered.error) == ("failed", "upstream_cut")
    [(kind, status, name, arguments)] = answered.items
    assert (kind, status, name) == ("function_call", "incomplete", "get_weather")
    assert isinstance(arguments, str)


@every_dialect
def test_an_answer_that_is_no_json_is_no_answer(home: AimockServer, dialect: str) -> None:
    whole = home.summarize(dialect, input="Chaos: malformed")
    assert isinstance(whole, ErrorSummary)
    assert (whole.status, whole.type) == (502, "model_error")
    assert whole.message.startswith(f"{dialect}: sent something that cannot be read")
    streamed = home.summarize(dialect, input="Chaos: malformed", stream=True)
    assert streamed == ResponseSummary([], "failed", error="upstream_invalid")


@both_ways
@every_dialect
def test_injected_faults_are_reported(home: AimockServer, dialect: str, stream: bool) -> None:
    """aimock's chaos speaks OpenAI's shape of errors in every dialect."""
    told = {
        "dropped": (500, "Chaos: request dropped", None),
        "limited": (429, "Chaos: rate limit exceeded", "1"),
        "gone": (502, "closed the connection before its response was complete.", None),
    }
    for what, (status, words, after) in told.items():
        answered = home.summarize(dialect, input=f"Chaos: {what}", stream=stream)
        assert isinstance(answered, ErrorSummary)
        assert (answered.status, answered.after) == (status, after)
        assert answered.message == f"{dialect}: {words}"


# --- time -----------------------------------------------------------------------------------------


@every_dialect
def test_a_slow_answer_is_passed_on_as_it_comes(home: AimockServer, dialect: str) -> None:
    body = {"model": f"{dialect}/{MODELS[dialect]}", "input": "Slowly", "stream": True}
    url = f"{home.address}/v1/responses"
    text, times = "", list[float]()
    with httpx.stream("POST", url, json=body, timeout=WAIT) as answer:
        for line in answer.iter_lines():
            if line == "event: response.output_text.delta":
                times.append(time.monotonic())
            text += f"{line}\n"
    assert times[-1] - times[0] > 0.03  # what had been kept back would come all at once
    assert '"status":"completed"' in text


def test_an_upstream_that_does_not_begin_is_left(upstream: str) -> None:
    settings = Settings(providers=providers(upstream), keys={"openai": KEY}, retries=0, first_byte_seconds=0.05)
    with run_server(settings) as address:
        answered = post_and_summarize(address, model="openai/gpt-4o", input="Slowly")
    assert isinstance(answered, ErrorSummary)
    assert answered.status == 504
