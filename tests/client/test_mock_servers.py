"""Servers that others have written: the client and its agent loop against aimock and llmock.

aimock sends no sequence numbers and stores nothing; llmock follows the specification and has no
WebSocket. Both imitate OpenAI, as many servers do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer
from msgspec.structs import replace

from antiphon.client.agent.run import AgentOptions, stream_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.sync_client import Client
from antiphon.client.tools.tool import tool
from antiphon.protocol.errors import RemoteProtocolError, UpstreamError
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.response_summary import (
    ResponseSummary,
    call_summary,
    message_summary,
    reasoning_summary,
    summarize_response,
)
from tests.adapters.test_aimock import FIXTURES, PARIS, TEXT, TOOLS, fixture
from tests.aimock import KEY, aimock
from tests.client.agent.faulty_server import ALL_TRANSPORTS, CHAT, HTTP, SOCKET, STATEFUL_TRANSPORTS, event_types

pytestmark = pytest.mark.anyio

ANSWERED = {"name": "get_weather", "arguments": PARIS, "id": "call_answered"}
FAILING = {"error": {"message": "Not now.", "type": "server_error"}, "status": 503}
EXTRA_FIXTURES: list[dict[str, Any]] = [
    fixture({"userMessage": "Anything?", "hasToolResult": True}, {"content": "You asked: sunny."}),
    fixture({"toolCallId": "call_answered"}, {"content": "You asked nothing."}),
    fixture("Anything?", {"toolCalls": [ANSWERED]}),
    fixture({"userMessage": "At last", "sequenceIndex": 0}, FAILING),
    fixture({"userMessage": "At last"}, {"content": "Well."}),
]
EXPECTED = {
    "Say it": ResponseSummary([message_summary(TEXT)]),
    "Think": ResponseSummary([reasoning_summary("Two and two."), message_summary("Four.")]),
    "Two calls": ResponseSummary([call_summary("get_weather", PARIS), call_summary("get_time", {})]),
    "Words and a call": ResponseSummary([message_summary("Let me look."), call_summary("get_weather", PARIS)]),
    "Go on": ResponseSummary([message_summary("And so it")], "incomplete"),
    "Be bad": ResponseSummary([message_summary("And so it")], "failed"),
}
"""What aimock answers; for the last two it gives no reason."""

EACH = pytest.mark.parametrize("prompt", EXPECTED)
KEY_HEADER = {"x-api-key": KEY}
ANY_TRANSPORT = AgentOptions(smoothing_delay=0, retry_delay=1)
MISSING_NUMBER = r"event 0 \(response.created\) .* sequence_number: .* required \[shape\]"


@tool
def get_weather(city: str, country: str = "") -> str:
    """Says what the weather is like."""
    return f"sunny in {city}"


@dataclass(frozen=True)
class Aimock:
    """A running aimock."""

    url: str

    def client(self, **choices: Any) -> AsyncClient:
        return AsyncClient(f"{self.url}/v1", api_key=KEY, **{"retries": 0, **choices})

    def requests(self) -> list[tuple[str, list[str]]]:
        """Return what this test has asked: where, and the roles of all that it has shown."""
        journal = httpx.get(f"{self.url}/__aimock/journal", headers=KEY_HEADER).json()
        asked = [entry for entry in journal if (entry.get("body") or {}).get("messages")]
        return [
            (f"{entry['method']} {entry['path']}", [m["role"] for m in entry["body"]["messages"]]) for entry in asked
        ]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with aimock([*EXTRA_FIXTURES, *FIXTURES]) as address:
        yield address


@pytest.fixture
def server(address: str) -> Aimock:
    assert httpx.post(f"{address}/__aimock/reset/journal", headers=KEY_HEADER).status_code == 200
    return Aimock(address)


def summarize(response: Response) -> ResponseSummary:
    fields = to_builtins(response)
    assert isinstance(fields, dict)
    return summarize_response(fields)


async def run_agent_events(client: AsyncClient, prompt: str, options: AgentOptions, **wanted: Any):
    run = stream_agent(prompt, model="gpt-4o", client=client, options=options, tools=[get_weather], **wanted)
    events = [event async for event in run]
    assert run.result is not None
    return run.result, events


def resend_reasons(events) -> list[str | None]:
    return [event.action.reason for event in events if event.type == "context_management"]


@EACH
async def test_every_answer_is_read_over_http_and_websocket(server, prompt):
    async with server.client() as client:
        whole = await client.create(model="gpt-4o", input=prompt, tools=TOOLS)
        streamed = await client.stream(model="gpt-4o", input=prompt, tools=TOOLS).final()
        async with client.connect() as session:
            turn = await session.stream(model="gpt-4o", input=prompt, tools=TOOLS).final()
    assert [summarize(response) for response in (whole, streamed, turn)] == [EXPECTED[prompt]] * 3


async def test_events_without_numbers_are_numbered(server):
    async with server.client() as client:
        events = [event async for event in client.stream(model="gpt-4o", input="Say it")]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == TEXT


@EACH
async def test_a_strict_client_rejects_streams_without_numbers(server, prompt):
    """The specification requires a number; OpenAI's own server gives one."""
    async with server.client(strict=True) as client:
        with pytest.raises(RemoteProtocolError, match=MISSING_NUMBER):
            await client.stream(model="gpt-4o", input=prompt, tools=TOOLS).final()
        async with client.connect() as session:
            for _ in range(2):  # the rest of the first turn is not taken for the second
                with pytest.raises(RemoteProtocolError, match=MISSING_NUMBER):
                    await session.stream(model="gpt-4o", input=prompt, tools=TOOLS).final()


@pytest.mark.parametrize(
    ("prompt", "status", "code", "retryable"),
    [
        ("Key?", 401, None, False),
        ("Hurry", 429, None, True),
        ("Break", 500, None, True),
        ("Nothing is known of this", 404, "no_fixture_match", False),
        ("Chaos: dropped", 500, "chaos_drop", True),
        ("Chaos: gone", 502, "upstream_cut", True),
    ],
)
async def test_an_error_response_is_raised(server, prompt, status, code, retryable):
    async with server.client() as client:
        for ask in (client.create, lambda **fields: client.stream(**fields).final()):
            with pytest.raises(UpstreamError) as caught:
                await ask(model="gpt-4o", input=prompt)
            error = caught.value
            assert (error.status, error.payload.code) == (status, code)
            assert error.retryable is retryable


async def test_an_error_on_a_websocket_leaves_it_open(server):
    """aimock's WebSocket sends the type and message of an error, but no status."""
    async with server.client() as client, client.connect() as session:
        with pytest.raises(UpstreamError, match="Slow down"):
            await session.stream(model="gpt-4o", input="Hurry").final()
        with pytest.raises(UpstreamError, match="No fixture matched") as caught:
            await session.stream(model="gpt-4o", input="Nothing is known of this").final()
        assert (caught.value.status, caught.value.payload.code) == (400, "no_fixture_match")
        assert (await session.stream(model="gpt-4o", input="Say it").final()).output_text == TEXT


@pytest.mark.parametrize("prompt", ["Cut the text", "Cut in time"])
async def test_the_text_before_a_cut_can_be_read(server, prompt):
    async with server.client() as client:
        stream = client.stream(model="gpt-4o", input=prompt)
        with pytest.raises(UpstreamError) as caught:
            await stream.final()
        assert (caught.value.status, caught.value.payload.code) == (502, "upstream_cut")
        text = stream.response.output_text
        assert TEXT.startswith(text)
        assert 0 < len(text) < len(TEXT)
        async with client.connect() as session:
            with pytest.raises(UpstreamError) as caught:
                await session.stream(model="gpt-4o", input=prompt).final()
            assert caught.value.payload.code == "websocket_closed"
            assert session.closed


async def test_a_server_without_lanes_answers_in_order(server):
    """aimock has none, and answers in the order it is asked."""
    async with server.client() as client, client.connect() as session:
        first = session.stream(lane="a", model="gpt-4o", input="Say it")
        second = session.stream(lane="b", model="gpt-4o", input="Think")
        async with first, second:
            assert [(await s.final()).output_text for s in (first, second)] == [TEXT, "Four."]


def test_the_synchronous_client_reads_the_same(server):
    with Client(f"{server.url}/v1", api_key=KEY) as client:
        assert "".join(client.stream(model="gpt-4o", input="Say it").text) == TEXT
        assert client.create(model="gpt-4o", input="Say it").output_text == TEXT
        with client.connect() as session:
            assert session.stream(model="gpt-4o", input="Say it").final().output_text == TEXT
        result = client.run_agent("Weather?", model="gpt-4o", tools=[get_weather], options=HTTP)
        assert result.message == "It is sunny."


async def test_every_transport_gives_the_same_message(server):
    async with server.client() as client:
        runs = [await run_agent_events(client, "Weather?", way) for way in (CHAT, HTTP, SOCKET, ANY_TRANSPORT)]
    assert [result.message for result, _ in runs] == ["It is sunny."] * 4
    kinds = [event_types(e for e in events if e.type != "context_management") for _, events in runs]
    assert kinds[1:] == kinds[:1] * 3
    assert [[call.status for call in result.tool_calls] for result, _ in runs] == [["completed"]] * 4


@STATEFUL_TRANSPORTS
async def test_a_server_that_cannot_continue_is_sent_the_whole_conversation(server, options):
    """aimock does not find the question in the new items, and answers that no fixture matches."""
    async with server.client() as client:
        result, events = await run_agent_events(client, "Weather?", options)
    assert result.message == "It is sunny."
    assert resend_reasons(events) == ["no_fixture_match"]
    where = "WS /v1/responses" if options is SOCKET else "POST /v1/responses"
    assert server.requests() == [
        (where, ["user"]),
        (where, ["assistant", "tool"]),
        (where, ["user", "assistant", "tool"]),
    ]


@STATEFUL_TRANSPORTS
async def test_a_server_that_ignores_the_previous_response_is_detected(server, options):
    """What a response continues, it names; this one has begun from nothing."""
    async with server.client() as client:
        result, events = await run_agent_events(client, "Anything?", options)
    assert result.message == "You asked: sunny."
    assert resend_reasons(events) == ["previous_response_not_found"]
    assert "".join(event.token for event in events if event.type == "token") == result.message


async def test_an_unrelated_error_does_not_change_the_transport(server):
    async with server.client() as client:
        with pytest.raises(UpstreamError, match="No fixture matched"):
            await run_agent_events(client, "Nothing is known of this", ANY_TRANSPORT)
        await run_agent_events(client, "Say it", ANY_TRANSPORT)
    assert [where for where, _ in server.requests()] == [
        "POST /v1/responses",
        "POST /v1/chat/completions",
        "POST /v1/responses",
    ]


@ALL_TRANSPORTS
async def test_a_temporary_error_is_retried(server, options, request):
    async with server.client(headers={"x-test-id": request.node.name}) as client:
        result, _ = await run_agent_events(client, "At last", options)
    assert (result.message, len(server.requests())) == ("Well.", 2)


@ALL_TRANSPORTS
async def test_an_answer_that_is_cut_every_time_ends_the_run(server, options):
    async with server.client() as client:
        with pytest.raises(UpstreamError):
            await run_agent_events(client, "Cut the text", replace(options, max_retries=2))
    assert len(server.requests()) == 3


async def test_a_strict_client_accepts_a_legal_server(llmock_server: LLMockServer, llmock):
    async with AsyncClient(llmock_server.base_url("openai"), api_key="k", strict=True) as client:
        llmock.reply(TEXT)
        response = await client.stream(model="m", input="Hi!").final()
        assert summarize(response) == ResponseSummary([message_summary(TEXT)])
        llmock.call_tool("get_weather", PARIS, text="Let me look.")
        response = await client.stream(model="m", input="Hi!", tools=TOOLS).final()
        assert summarize(response) == EXPECTED["Words and a call"]
        assert "gpt-4o" in await client.models()
    llmock.assert_resilient(strict=True)


@ALL_TRANSPORTS
async def test_a_server_that_continues_is_sent_only_new_items(
    llmock_server: LLMockServer, llmock: LLMock, options: AgentOptions
):
    llmock.call_tool("get_weather", PARIS).reply("It is sunny.")
    async with AsyncClient(llmock_server.base_url("openai"), api_key="k") as client:
        result, events = await run_agent_events(client, "Weather?", options)
    assert result.message == "It is sunny."
    assert resend_reasons(events) == []
    assert [e.transport for e in events if e.type == "connection_update"] == (
        ["http"] if options is SOCKET else []  # it has no socket
    )
    shown = [len(r.body.get("input") or r.body["messages"]) for r in llmock.requests]
    assert shown == ([1, 3] if options is CHAT else [1, 1])
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("options", [CHAT, HTTP], ids=["chat", "http"])
async def test_the_loop_retries_as_llmock_expects(llmock_server: LLMockServer, llmock: LLMock, options: AgentOptions):
    llmock.rate_limit(retry_after=0.2).fail(500).reply(TEXT).truncate(after_chunks=4)
    async with AsyncClient(llmock_server.base_url("openai"), api_key="k") as client:
        llmock.reply(TEXT)
        result, _ = await run_agent_events(client, "Hi!", replace(options, retry_delay=50))
    assert (result.message, len(llmock.requests)) == (TEXT, 4)
    llmock.assert_resilient()
