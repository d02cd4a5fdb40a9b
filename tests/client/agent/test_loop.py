"""The agent loop against scripted servers."""

import inspect
import json

import pytest
from msgspec.structs import replace

from antiphon import stream_agent as public
from antiphon.client.agent.run import AgentOptions, run_agent, stream_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.tools.tool import tool
from antiphon.protocol.errors import RemoteProtocolError, UpstreamError
from antiphon.protocol.request import ReasoningConfig
from antiphon.protocol.tools import FunctionToolChoice
from antiphon.transport.connection import Timeouts
from tests.client.agent.faulty_server import HTTP
from tests.http_client import WAIT
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer

pytestmark = pytest.mark.anyio


@tool(strict=False)
def look(city: str = "", n: int = 0) -> str:
    """Look."""
    return f"{city}{n}"


def response(status: str = "completed", id: str = "resp_1", **fields: object) -> dict:
    base = {"id": id, "object": "response", "created_at": 1, "model": "m", "output": []}
    return base | {"status": status} | fields


def call(id: str, arguments: str, **fields: object) -> dict:
    base = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "look"}
    return base | {"arguments": arguments, "status": "completed"} | fields


def stream_answer(*events: dict) -> ScriptedAnswer:
    lines = []
    for number, event in enumerate(events):
        event = {"sequence_number": number} | event
        lines.append(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")
    return sse_answer("".join(lines).encode() + b"data: [DONE]\n\n")


CREATED = {"type": "response.created", "response": response("in_progress")}
IN_PROGRESS = {"type": "response.in_progress", "response": response("in_progress")}


def text(words: str) -> ScriptedAnswer:
    """An answer with text only."""
    message = {
        "type": "message",
        "id": "msg_9",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": words, "annotations": []}],
    }
    return stream_answer(
        CREATED,
        IN_PROGRESS,
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": message | {"content": [], "status": "in_progress"},
        },
        {
            "type": "response.content_part.added",
            "output_index": 0,
            "content_index": 0,
            "item_id": "msg_9",
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "item_id": "msg_9",
            "delta": words,
        },
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "item_id": "msg_9", "text": words},
        {
            "type": "response.content_part.done",
            "output_index": 0,
            "content_index": 0,
            "item_id": "msg_9",
            "part": message["content"][0],
        },
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {
            "type": "response.completed",
            "response": response(output=[message], usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}),
        },
    )


async def run(provider, prompt: str = "go", **params):
    events: list = []
    async with AsyncClient(f"{provider.url}/v1", strict=params.pop("strict", False)) as client:
        result = await run_agent(
            prompt,
            model="m",
            tools=[look],
            options=params.pop("options", HTTP),
            client=client,
            on_event=events.append,
            **params,
        )
    return result, events


def test_the_signature_follows_graphlits():
    names = list(inspect.signature(public).parameters)
    assert names[:8] == [
        "prompt",
        "model",
        "tools",
        "tool_handlers",
        "on_event",
        "conversation",
        "instructions",
        "options",
    ]


async def test_interleaved_calls_are_distinguished():
    a, b = call("a", '{"n": 1}'), call("b", '{"n": 2}')

    def added(index: int, item: dict) -> dict:
        started_item = item | {"arguments": "", "status": "in_progress"}
        return {"type": "response.output_item.added", "output_index": index, "item": started_item}

    def delta(index: int, piece: str) -> dict:
        return {
            "type": "response.function_call_arguments.delta",
            "output_index": index,
            "item_id": ["fc_a", "fc_b"][index],
            "delta": piece,
        }

    def done(index: int, item: dict) -> list[dict]:
        end = {
            "type": "response.function_call_arguments.done",
            "output_index": index,
            "item_id": item["id"],
            "arguments": item["arguments"],
        }
        return [end, {"type": "response.output_item.done", "output_index": index, "item": item}]

    first = stream_answer(
        CREATED,
        IN_PROGRESS,
        added(0, a),
        added(1, b),
        delta(0, '{"n":'),
        delta(1, '{"n": '),
        delta(0, " 1}"),
        delta(1, "2}"),
        *done(0, a),
        *done(1, b),
        {"type": "response.completed", "response": response(output=[a, b])},
    )
    with scripted_upstream(first, text("fine")) as provider:
        result, events = await run(provider, strict=True)
    assert result.message == "fine"
    sent = provider.requests[1].json
    assert sent["previous_response_id"] == "resp_1"
    assert [(i["call_id"], i["output"]) for i in sent["input"]] == [("a", "1"), ("b", "2")]
    parsed = [(e.id, e.arguments) for e in events if e.type == "tool_call_parsed"]
    assert parsed == [("a", '{"n": 1}'), ("b", '{"n": 2}')]


async def test_calls_without_deltas_are_executed():
    first = stream_answer(CREATED, {"type": "response.completed", "response": response(output=[call("a", "{}")])})
    with scripted_upstream(first, text("fine")) as provider:
        result, events = await run(provider)
    assert result.message == "fine"
    assert [e.status for e in events if e.type == "tool_update"] == ["preparing", "ready", "executing", "completed"]


async def test_text_without_deltas_is_emitted():
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "all at once", "annotations": []}],
    }
    only = stream_answer(CREATED, {"type": "response.completed", "response": response(output=[message])})
    with scripted_upstream(only) as provider:
        result, events = await run(provider)
    assert result.message == "all at once"
    assert [e.message.message for e in events if e.type == "message_update"][-1] == "all at once"


async def test_the_name_in_the_final_call_is_used():
    late = call("a", "{}")
    started_item = late | {"name": "", "arguments": "", "status": "in_progress"}
    first = stream_answer(
        CREATED,
        IN_PROGRESS,
        {"type": "response.output_item.added", "output_index": 0, "item": started_item},
        {"type": "response.output_item.done", "output_index": 0, "item": late},
        {"type": "response.completed", "response": response(output=[late])},
    )
    with scripted_upstream(first, text("fine")) as provider:
        result, _ = await run(provider)
    assert [(c.name, c.status) for c in result.tool_calls] == [("look", "completed")]


async def test_a_json_response_to_a_streaming_request_is_accepted():
    with scripted_upstream(json_answer(response(output=[call("a", "{}")])), text("fine")) as provider:
        result, _ = await run(provider)
    assert result.message == "fine"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "invalid_prompt", "message": "No.", "param": None},
        {"type": "error", "error": {"type": "x", "code": "invalid_prompt", "message": "No."}},
        {"type": "response.failed", "response": response("failed", error={"code": "invalid_prompt", "message": "No."})},
    ],
    ids=["flat", "nested", "failed"],
)
async def test_an_error_in_a_stream_ends_the_run(event):
    with scripted_upstream(stream_answer(CREATED, IN_PROGRESS, event)) as provider:
        with pytest.raises(UpstreamError, match=r"No\.") as caught:
            await run(provider)
        assert caught.value.payload.code == "invalid_prompt"
        assert len(provider.requests) == 1


async def test_a_failed_response_is_retried():
    broken = stream_answer(
        CREATED,
        IN_PROGRESS,
        {"type": "response.failed", "response": response("failed", error={"code": "server_error", "message": "Oops."})},
    )
    with scripted_upstream(broken, text("fine")) as provider:
        result, _ = await run(provider)
    assert result.message == "fine"


async def test_a_strict_client_ends_a_run_at_the_first_violation():
    first = stream_answer({"type": "response.completed", "response": response(output=[call("a", "{}")])})
    with scripted_upstream(first, text("fine")) as provider, pytest.raises(RemoteProtocolError):
        await run(provider, strict=True)


async def test_an_incomplete_call_is_not_executed():
    cut = call("a", '{"ci', status="incomplete")
    only = stream_answer(
        CREATED,
        IN_PROGRESS,
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": cut | {"arguments": "", "status": "in_progress"},
        },
        {"type": "response.output_item.done", "output_index": 0, "item": cut},
        {
            "type": "response.incomplete",
            "response": response("incomplete", output=[cut], incomplete_details={"reason": "max_output_tokens"}),
        },
    )
    with scripted_upstream(only) as provider:
        result, events = await run(provider)
        assert len(provider.requests) == 1
    assert (result.status, result.reason) == ("incomplete", "max_output_tokens")
    assert not [e for e in events if e.type == "tool_update" and e.status == "executing"]


async def test_invalid_arguments_are_reported_to_the_model():
    wrong = call("a", '{"n": "many"}')
    first = stream_answer(CREATED, {"type": "response.completed", "response": response(output=[wrong])})
    with scripted_upstream(first, text("fine")) as provider:
        await run(provider)
        (output,) = provider.requests[1].json["input"]
    assert output["output"].startswith("Error: Tool look failed: ")
    assert "n" in output["output"]


async def test_invalid_arguments_are_wrapped_in_an_object_when_resent():
    broken = call("a", '{"n": ')
    first = stream_answer(CREATED, {"type": "response.completed", "response": response(output=[broken])})
    error = {"message": "Gone.", "code": "previous_response_not_found", "type": "x"}
    with scripted_upstream(first, json_answer({"error": error}, 400), text("fine")) as provider:
        await run(provider)
        _, streamed, _ = provider.requests[2].json["input"]
    assert json.loads(streamed["arguments"]) == {"arguments": '{"n": '}


async def test_another_404_does_not_mean_a_missing_endpoint():
    error = {"error": {"message": "No such model", "code": "model_not_found", "type": "x"}}
    with scripted_upstream(json_answer(error, 404)) as provider:
        async with AsyncClient(f"{provider.url}/v1") as client:
            with pytest.raises(UpstreamError):
                await run_agent("hi", model="m", client=client)
        assert [r.path for r in provider.requests] == ["/v1/responses"]


async def test_a_prompt_can_contain_an_image():
    prompt = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": "https://example.com/a.png"},
            ],
        }
    ]
    with scripted_upstream(text("fine")) as provider:
        async with AsyncClient(f"{provider.url}/v1") as client:
            await stream_agent(prompt, model="m", client=client)
        (item,) = provider.requests[0].json["input"]
    assert item["content"][1]["image_url"] == "https://example.com/a.png"


def item_events(index: int, item: dict) -> list[dict]:
    added = item | {"arguments": "", "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": added},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def completed_event(*items: dict, **fields: object) -> dict:
    return {"type": "response.completed", "response": response(output=list(items)) | fields}


A, B = call("a", '{"n":1}'), call("b", '{"n":2}')
AGAIN = B | {"call_id": "a"}


@pytest.mark.parametrize(
    ("streamed", "items", "ids"),
    [
        ([*item_events(1, A), *item_events(2, B)], [A, B], ["a", "b"]),
        ([*item_events(0, A), *item_events(1, B)], [B, A], ["b", "a"]),
        ([*item_events(0, A), *item_events(1, AGAIN)], [A, AGAIN], ["a", "a"]),
        ([*item_events(0, A)], [B], ["b"]),
    ],
    ids=["at other places", "in another order", "with one id", "as another"],
)
async def test_every_call_of_the_final_response_is_executed(streamed, items, ids):
    with scripted_upstream(stream_answer(CREATED, *streamed, completed_event(*items)), text("ok")) as provider:
        result, events = await run(provider)
    assert sorted(call.id for call in result.tool_calls) == sorted(ids)
    assert {call.status for call in result.tool_calls} == {"completed"}
    done = [(e.tool_call.arguments, e.result) for e in events if e.type == "tool_update" and e.result]
    assert sorted(done) == sorted((item["arguments"], item["arguments"][5:-1]) for item in items)
    sent = provider.requests[1].json["input"]
    assert [output["call_id"] for output in sent] == ids
    started = [event.id for event in events if event.type == "tool_call_start"]
    assert len(started) == len({item["id"] for item in [*items, *(e["item"] for e in streamed)]})


REFUSED = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": "I will not."}],
}


@pytest.mark.parametrize(
    "answer",
    [stream_answer(CREATED, completed_event(REFUSED)), json_answer(response(output=[REFUSED]))],
    ids=["sse", "json"],
)
async def test_a_refusal_without_deltas_is_emitted(answer):
    with scripted_upstream(answer) as provider:
        result, events = await run(provider)
    assert result.refusal == "I will not."
    assert [e.message.refusal for e in events if e.type == "message_update"] == ["I will not."]


async def test_the_refusal_of_a_failed_round_is_withdrawn():
    delta = {"type": "response.refusal.delta", "item_id": "m", "output_index": 0}
    shown = stream_answer(CREATED, delta | {"content_index": 0, "delta": "Never."})
    with scripted_upstream(shown, text("ok")) as provider:
        result, events = await run(provider)
    assert (result.message, result.refusal) == ("ok", None)
    updates = [(e.message.refusal, e.is_streaming) for e in events if e.type == "message_update"]
    assert updates == [("Never.", True), (None, False), (None, True)]


async def test_a_stateless_server_without_streaming_gets_the_whole_context():
    with scripted_upstream(json_answer(response(output=[A])), json_answer(response(output=[REFUSED]))) as provider:
        await run(provider)
    _, short, full = (request.json for request in provider.requests)
    assert (short["previous_response_id"], len(short["input"])) == ("resp_1", 1)
    assert ("previous_response_id" in full, len(full["input"])) == (False, 3)


async def test_a_response_without_an_id_is_not_continued():
    with scripted_upstream(json_answer({"output": [A]}), text("ok")) as provider:
        await run(provider)
    (_, full) = (request.json for request in provider.requests)
    assert ("previous_response_id" in full, len(full["input"])) == (False, 3)


async def test_every_form_of_forced_tool_choice_is_sent_once():
    choice = FunctionToolChoice(name="look")
    params = {"tool_choice": choice, "reasoning": ReasoningConfig(effort="low"), "temperature": 1}
    with scripted_upstream(stream_answer(CREATED, completed_event(A)), text("ok")) as provider:
        await run(provider, options=replace(HTTP, request=params))
    first, second, *_ = (request.json for request in provider.requests)
    assert first["tool_choice"] == {"type": "function", "name": "look"}
    assert "tool_choice" not in second
    assert "temperature" not in first


async def test_the_clients_timeout_applies_to_chat():
    options = AgentOptions(use_responses_api=False, max_retries=0)
    with scripted_upstream(ScriptedAnswer(delay=WAIT)) as provider:
        async with AsyncClient(f"{provider.url}/v1", timeout=Timeouts(first_byte=0.1)) as client:
            with pytest.raises(UpstreamError, match=r"sent nothing for 0\.1 seconds"):
                await run_agent("go", model="m", client=client, options=options)


async def test_a_failed_save_is_not_repeated():
    calls = [call(f"c{number}", "{}") for number in range(12)]
    nothing = json_answer({"data": [], "has_more": False})
    refusals = [json_answer({"error": {"message": word}}, 400) for word in ("First.", "Second.")]
    last = stream_answer(completed_event(REFUSED, previous_response_id="resp_1"))
    answers = [nothing, stream_answer(CREATED, completed_event(*calls)), last, nothing, *refusals]
    with scripted_upstream(*answers) as provider, pytest.raises(UpstreamError, match=r"First\."):
        await run(provider, conversation="conv_1")
    assert [len(r.json["items"]) for r in provider.requests if r.path.endswith("items")] == [20, 6]


async def test_the_usage_of_a_failed_attempt_is_counted():
    usage = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
    error = {"code": "server_error", "message": "Oops."}
    broken = response("failed", error=error, usage=usage)
    first = stream_answer(CREATED, IN_PROGRESS, {"type": "response.failed", "response": broken})
    with scripted_upstream(first, text("fine")) as provider:
        result, _ = await run(provider)
    assert [(r.round, r.total_tokens) for r in result.usage.rounds] == [(0, 8), (0, 5)]
    assert result.usage.total_tokens == 13


@pytest.mark.parametrize("way", [False, True], ids=["chat", "responses"])
async def test_a_key_repeated_by_the_server_is_redacted(way):
    error = {"error": {"message": "Bad key: my-own-secret-key", "code": "invalid_api_key"}}
    with scripted_upstream(json_answer(error, 401)) as provider:
        async with AsyncClient(f"{provider.url}/v1", api_key="my-own-secret-key") as client:
            options = replace(HTTP, use_responses_api=way)
            with pytest.raises(UpstreamError) as caught:
                await run_agent("hi", model="m", client=client, options=options)
        assert provider.requests[0].headers["authorization"] == "Bearer my-own-secret-key"
    assert "my-own-secret-key" not in str(caught.value)
    assert "Bad key: " in str(caught.value)
