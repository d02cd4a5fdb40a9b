"""All methods of `AsyncClient`, against our server, at both doors."""

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from antiphon.client.async_client import AsyncClient
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import AntiphonError, RequestError, UpstreamError
from antiphon.protocol.events import OutputTextDelta, ResponseCreated
from antiphon.protocol.fold import fold
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, InputText, Message, Reasoning, user_message
from antiphon.protocol.tools import FunctionTool
from tests.scripted_upstream import json_answer, scripted_upstream

pytestmark = pytest.mark.anyio

HELLO = "Hello from Antiphon's demo model. You said: Hi!"
WEATHER = FunctionTool(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
NUMBERS = [{"role": "user", "content": f"Number {n}."} for n in range(7)]


@pytest.fixture(params=["/v1", "/openai/v1"])
async def client(request: pytest.FixtureRequest, server: str, anyio_backend: str) -> AsyncIterator[AsyncClient]:
    """A strict client, at each door."""
    async with AsyncClient(server + request.param, strict=True, retries=0) as client:
        yield client


async def test_create_returns_a_completed_response(client: AsyncClient):
    response = await client.create(model="demo", input="Hi!", metadata={"a": "b"})
    assert (response.status, response.output_text) == ("completed", HELLO)
    assert response.metadata == {"a": "b"}
    assert response.usage is not None


async def test_a_stream_is_valid_and_its_fold_equals_the_final_response(client: AsyncClient):
    async with client.stream(model="demo", input="Hi!", reasoning={"effort": "low"}) as stream:
        events = [event async for event in stream]
        assert isinstance(events[0], ResponseCreated)
        assert find_violations(events) == []
        assert stream.response == fold(events) == await stream.final()
    assert stream.response.output_text == HELLO
    assert isinstance(stream.response.output[0], Reasoning)


async def test_the_snapshot_grows_while_the_stream_is_read(client: AsyncClient):
    stream = client.stream(model="demo", input="Hi!")
    with pytest.raises(AntiphonError, match="has no response yet"):
        _ = stream.response
    joined = ""
    async for event in stream:
        if isinstance(event, OutputTextDelta):
            joined += event.delta
    assert stream.response.output_text == joined == HELLO


async def test_text_yields_the_deltas(client: AsyncClient):
    texts = [text async for text in client.stream(model="echo", input="one two").text]
    assert texts == ["one", " two"]


async def test_final_returns_the_response(client: AsyncClient):
    final = await client.stream(model="demo", input="story", max_output_tokens=16).final()
    assert (final.status, len(final.output_text.split())) == ("incomplete", 16)


async def test_batches_contain_every_event_once(client: AsyncClient):
    batches = [batch async for batch in client.stream(model="demo", input="Hi!").batches()]
    events = [event for batch in batches for event in batch]
    assert all(batches)
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_a_failure_during_generation_is_a_failed_response(client: AsyncClient):
    final = await client.stream(model="demo", input="FAIL").final()
    assert final.status == "failed"
    assert final.error is not None
    assert final.output_text


async def test_tool_calls_and_outputs_can_be_sent_back_as_structs(client: AsyncClient):
    asked = await client.create(model="demo", input="The weather, please.", tools=[WEATHER])
    (call,) = asked.output
    assert isinstance(call, FunctionCall)
    output = FunctionCallOutput(call_id=call.call_id, output="sunny")
    chained = await client.create(model="demo", input=[output], previous_response_id=asked.id, tools=[WEATHER])
    whole = await client.create(
        model="demo", input=[user_message("The weather, please."), *asked.output, output], tools=[WEATHER], store=False
    )
    assert "sunny" in chained.output_text
    assert chained.output_text == whole.output_text


async def test_structs_and_json_can_be_mixed(client: AsyncClient):
    mixed = [{"role": "user", "content": [InputText(text="one"), {"type": "input_text", "text": " two"}]}]
    assert (await client.create(model="echo", input=mixed)).output_text == "one two"


async def test_extra_body_and_extra_headers_are_sent(client: AsyncClient):
    response = await client.create(model="demo", input="Hi!", extra_body={"acme:hint": 1}, extra_headers={"X-A": "b"})
    assert response.output_text == HELLO


@pytest.mark.parametrize("fields", [{"stream": True}, {"wheels": 4}, {"input": {1j}}])
async def test_an_invalid_request_raises_before_anything_is_sent(fields: dict):
    client = AsyncClient("http://127.0.0.1:1/v1")
    with pytest.raises(RequestError) as caught:
        await client.create(**fields)
    assert caught.value.payload.code in ("unsupported_parameter", "unknown_parameter", "invalid_json")


async def test_a_stored_response_is_retrieved_and_deleted(client: AsyncClient):
    made = await client.create(model="demo", input="Hi!")
    assert await client.retrieve(made.id) == made
    await client.delete(made.id)
    with pytest.raises(UpstreamError) as caught:
        await client.retrieve(made.id)
    error = caught.value
    assert (error.status, error.payload.code, error.payload.param, error.retryable) == (
        404,
        "response_not_found",
        "response_id",
        False,
    )


async def test_input_items_reads_all_pages(client: AsyncClient, monkeypatch: pytest.MonkeyPatch):
    made = await client.create(model="demo", input=NUMBERS)
    expected = [f"Number {n}." for n in range(7)]
    for limit in (1, 3, 7, 100):
        monkeypatch.setattr("antiphon.client.conversations.PAGE_SIZE", limit)
        items = [item async for item in client.input_items(made.id)]
        assert [item.text for item in items if isinstance(item, Message)] == expected
    down = [item async for item in client.input_items(made.id, order="desc")]
    assert down == items[::-1]
    assert [item async for item in client.input_items(made.id, after=str(items[4].id))] == items[5:]


async def test_a_background_response_is_resumed(client: AsyncClient):
    created = await client.create(model="demo", input="Hi!", background=True)
    assert created.status in ("queued", "in_progress")
    events = [event async for event in client.resume(created.id)]
    assert find_violations(events) == []
    assert fold(events).output_text == HELLO
    rest = client.resume(created.id, starting_after=4)
    assert [event async for event in rest] == events[5:]
    assert rest.response == fold(events)


async def test_a_background_response_is_cancelled(client: AsyncClient):
    created = await client.create(model="demo", input="SLOW", background=True)
    assert (await client.cancel(created.id)).status == "cancelled"
    assert (await client.resume(created.id).final()).status == "cancelled"


async def test_ids_are_percent_encoded(client: AsyncClient):
    with pytest.raises(UpstreamError) as caught:
        await client.retrieve("../models")
    assert caught.value.status == 404
    with pytest.raises(RequestError):
        await client.retrieve("")


@pytest.mark.parametrize("id", [".", ".."])
async def test_an_id_of_dots_is_rejected(client: AsyncClient, id: str):
    with pytest.raises(RequestError, match="cannot be used as an id"):
        await client.conversations.delete_item("conv_1", id)


async def test_a_conversation_is_created_changed_and_deleted(client: AsyncClient):
    conversations = client.conversations
    made = await conversations.create(items="one", metadata={"topic": "a"})
    assert await conversations.retrieve(made.id) == made
    changed = await conversations.update(made.id, metadata={"topic": "b"})
    assert changed.metadata == {"topic": "b"}
    (added,) = await conversations.add(made.id, [user_message("two")])
    await client.create(model="echo", input="three", conversation=made.id)
    items = [item async for item in conversations.items(made.id)]
    assert [item.text for item in items if isinstance(item, Message)] == ["one", "two", "three", "three"]
    assert await conversations.delete_item(made.id, str(added.id)) == changed
    assert [item async for item in conversations.items(made.id)] == [items[0], *items[2:]]
    await conversations.delete(made.id)
    with pytest.raises(UpstreamError) as caught:
        await conversations.retrieve(made.id)
    assert caught.value.payload.code == "conversation_not_found"


async def test_a_conversation_is_compacted(client: AsyncClient):
    small = await client.compact(model="demo", input=NUMBERS)
    assert small.output[-1].type == "compaction"
    response = await client.create(model="demo", input=[*small.output, user_message("Hi!")])
    assert response.output_text == f"{HELLO} This conversation has 9 messages."


async def test_input_tokens_counts_without_generating(client: AsyncClient):
    assert (await client.input_tokens(model="demo", input="one two three")).input_tokens == 3


async def test_models_lists_the_names(client: AsyncClient):
    assert await client.models() == ["demo", "echo"]


async def test_connect_opens_a_websocket(client: AsyncClient):
    async with client.connect() as session:
        final = await session.stream(model="demo", input="Hi!", store=False).final()
    assert final.output_text == HELLO


async def test_base_url_and_key_come_from_the_environment(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTIPHON_BASE_URL", f"{server}/v1/")
    monkeypatch.setenv("ANTIPHON_API_KEY", "secret")
    async with AsyncClient() as client:
        assert client.base_url == f"{server}/v1"
        assert await client.models() == ["demo", "echo"]
        assert "secret" not in repr(client)
    monkeypatch.delenv("ANTIPHON_BASE_URL")
    assert AsyncClient().base_url == "http://127.0.0.1:8000/v1"


def test_importing_the_clients_loads_no_slow_modules():
    code = "import sys, antiphon.client.async_client, antiphon.client.sync_client; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "httptools", "openai", "pydantic", "ssl", "urllib.request", "websockets"}
    assert heavy & set(ran.stdout.split()) == set()


async def test_an_empty_page_ends_the_pagination():
    empty = json_answer({"object": "list", "data": [], "has_more": True, "last_id": "msg_1"})
    with scripted_upstream(empty) as server:
        async with AsyncClient(server.url) as client:
            assert [item async for item in client.input_items("resp_1")] == []
        assert len(server.requests) == 1
