"""Bedrock's responses, decoded by the adapter and by AWS's SDK from the same bytes."""

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.adapters.bedrock.decode import REASONS
from antiphon.protocol import parts
from antiphon.protocol.items import ExtensionAnnotation, Message, OutputText, Reasoning, UrlCitation
from antiphon.protocol.struct import to_builtins
from tests.adapters.bedrock.builders import (
    BEDROCK,
    CLAUDE,
    HELLO,
    NEW_CLAUDE,
    aws_client,
    build_answer,
    items_without_ids,
)
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request
from tests.adapters.scenes import NAMES, TOOL, Summary
from tests.adapters.scenes.bedrock import EVENTS, SCENES, block_stop, call, delta, event, stream, text, thought, whole
from tests.scripted_upstream import scripted_upstream
from tests.wire.eventstream_encoder import encode


def test_every_scene_exists():
    assert list(SCENES) == NAMES


@pytest.mark.parametrize("name", SCENES)
def test_the_raw_stop_reason_is_kept(name: str):
    scene = SCENES[name]
    decoded = decode_parts(encode_request(BEDROCK, stream=True, **scene.request), scene.stream)
    ends = [part.raw for part in decoded if isinstance(part, parts.Finish)]
    assert ends == [scene.expected.stop]


@pytest.mark.parametrize("name", SCENES)
def test_the_sdk_reads_the_same_stream(name: str):
    scene = SCENES[name]
    with scripted_upstream(build_answer(scene.stream)) as provider, aws_client(provider) as client:
        events = list(client.converse_stream(modelId=CLAUDE, messages=HELLO)["stream"])
    blocks: dict[int, dict] = {}
    reason, usage = "", {}
    for one in events:
        match one:
            case {"contentBlockStart": {"contentBlockIndex": index, "start": {"toolUse": head}}}:
                blocks[index] = {"toolUse": {**head, "input": ""}}
            case {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": more}}}:
                block = blocks.setdefault(index, {"text": ""})
                block["text"] += more
            case {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"toolUse": more}}}:
                blocks[index]["toolUse"]["input"] += more["input"]
            case {"contentBlockDelta": {"delta": {"reasoningContent": {"text": more}}}}:
                block = blocks.setdefault(-1, {"thinking": ""})
                block["thinking"] += more
            case {"messageStop": {"stopReason": reason}}:
                pass
            case {"metadata": {"usage": usage}}:
                pass
            case _:
                pass
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    assert summarize_sdk_message(list(blocks.values()), reason, usage) == scene.expected


@pytest.mark.parametrize("name", SCENES)
def test_the_sdk_reads_the_same_complete_response(name: str):
    scene = SCENES[name]
    with scripted_upstream(build_answer(scene.whole, "application/json")) as provider, aws_client(provider) as client:
        answer = client.converse(modelId=CLAUDE, messages=HELLO)
    blocks = [
        {"thinking": block["reasoningContent"].get("reasoningText", {}).get("text", "")}
        if "reasoningContent" in block
        else block
        for block in answer["output"]["message"]["content"]
    ]
    assert summarize_sdk_message(blocks, answer["stopReason"], answer["usage"]) == scene.expected


def summarize_sdk_message(blocks: list[dict], reason: str, usage: dict) -> Summary:
    ended_early = {"max_tokens": "max_output_tokens", "guardrail_intervened": "content_filter"}
    read = usage.get("cacheReadInputTokens", 0)
    return Summary(
        text="".join(block.get("text", "") for block in blocks),
        calls=[(use["toolUseId"], use["name"], use["input"]) for block in blocks if (use := block.get("toolUse"))],
        reasoning="".join(block.get("thinking", "") for block in blocks),
        input_tokens=usage["inputTokens"] + read + usage.get("cacheWriteInputTokens", 0),
        output_tokens=usage["outputTokens"],
        cached_tokens=read,
        status="incomplete" if reason in ended_early else "completed",
        reason=ended_early.get(reason),
        stop=reason,
    )


@settings(max_examples=30)
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 3000), max_size=8))
def test_any_chunking_gives_the_same_parts(name: str, cuts: list[int]):
    scene = SCENES[name]
    expected = decode_parts(encode_request(BEDROCK, stream=True, **scene.request), scene.stream)
    decoder = encode_request(BEDROCK, stream=True, **scene.request).decoder
    edges = [0, *sorted(cuts), len(scene.stream)]
    got = []
    for begin, end in pairwise(edges):
        got += decoder.feed(scene.stream[begin:end])
    assert got + decoder.close() == expected


def test_a_stream_is_recognized_by_its_content_type():
    decoder = encode_request(BEDROCK).decoder
    assert decoder.is_stream(EVENTS)
    assert not decoder.is_stream("application/json")


@pytest.mark.parametrize(("reason", "ours"), REASONS.items())
def test_every_stop_reason_is_mapped(reason: str, ours: str):
    calls = call(0, "tooluse_1", "weather", "{}") if ours == "tool_calls" else b""
    decoded = decode_parts(encode_request(BEDROCK, tools=[TOOL], stream=True), stream(calls, reason=reason))
    assert decoded[-2:] == [parts.Finish(ours, reason), parts.Usage(26, 5, 0)]  # type: ignore[arg-type]


def test_an_unknown_stop_reason_means_stop_or_tool_calls():
    calls = call(0, "tooluse_1", "weather", "{}")
    request = encode_request(BEDROCK, tools=[TOOL], stream=True)
    assert decode_parts(request, stream(calls, reason="new"))[-2] == parts.Finish("tool_calls", "new")
    assert decode_parts(encode_request(BEDROCK), stream(reason="new"))[-2] == parts.Finish("stop", "new")


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
@pytest.mark.parametrize("streamed", [True, False])
def test_malformed_output_is_a_failure(reason: str, streamed: bool):
    body = stream(text(0, "Hm"), reason=reason) if streamed else whole({"text": "Hm"}, reason=reason)
    response = decode_response(encode_request(BEDROCK, stream=streamed), body, stream=streamed)
    assert response.status == "failed"
    assert response.error
    assert (response.error.type, response.error.code) == ("model_error", reason)
    assert response.output_text == "Hm"


def test_cached_tokens_of_openais_models_are_counted_once():
    counted = stream(read=4995, cacheWriteInputTokens=4993)
    decoded = decode_parts(encode_request(BEDROCK, upstream_model="openai.gpt-5.6", stream=True), counted)
    assert decoded[-1] == parts.Usage(4995, 5, 0)
    apart = stream(read=2, cacheWriteInputTokens=4993)
    decoded = decode_parts(encode_request(BEDROCK, upstream_model="openai.gpt-5.6", stream=True), apart)
    assert decoded[-1] == parts.Usage(4995, 5, 0)


def test_a_split_signature_is_stored_with_its_text():
    decoded = decode_parts(
        encode_request(BEDROCK, stream=True),
        stream(
            delta(0, reasoningContent={"text": "Well, "}),
            delta(0, reasoningContent={"text": "🎵"}),
            delta(0, reasoningContent={"signature": "ab"}),
            delta(0, reasoningContent={"signature": "cd"}),
            block_stop(0),
            delta(1, reasoningContent={"redactedContent": base64.b64encode(b"one").decode()}),
            delta(1, reasoningContent={"redactedContent": base64.b64encode(b"two").decode()}),
        ),
    )
    encrypted = [
        json.loads(part.encrypted_content)
        for part in decoded
        if isinstance(part, parts.Reasoning) and part.encrypted_content
    ]
    assert encrypted == [
        {"text": "Well, 🎵", "signature": "ab"},
        {"text": "Well, 🎵", "signature": "abcd"},
        {"redacted": base64.b64encode(b"one").decode()},
        {"redacted": base64.b64encode(b"onetwo").decode()},
    ]


def test_claudes_thinking_is_a_summary_if_one_was_requested():
    request = encode_request(
        BEDROCK, upstream_model=NEW_CLAUDE, stream=True, reasoning={"effort": "high", "summary": "auto"}
    )
    assert request.body["additionalModelRequestFields"] == {"thinking": {"type": "adaptive", "display": "summarized"}}
    response = decode_response(request, stream(thought(0, "Short."), text(1, "Yes.")))
    item = response.output[0]
    assert isinstance(item, Reasoning)
    assert [part.text for part in item.summary] == ["Short."]  # type: ignore[union-attr]


@pytest.mark.parametrize("streamed", [True, False])
def test_reasoning_is_sent_back_unchanged_in_a_tool_loop(streamed: bool):
    scene = SCENES["thinking_and_call"]
    first = encode_request(BEDROCK, upstream_model=CLAUDE, stream=streamed, **scene.request)
    response = decode_response(first, scene.stream if streamed else scene.whole, stream=streamed)
    output = {"type": "function_call_output", "call_id": "tooluse_1", "output": "Sunny."}
    items = [to_builtins(item) for item in response.output]
    items[0].pop("content")  # type: ignore[attr-defined]
    second = encode_request(
        BEDROCK, upstream_model=CLAUDE, input=[{"role": "user", "content": "Hello"}, *items, output], **scene.request
    )
    assert second.body["messages"] == [
        *HELLO,
        json.loads(scene.whole)["output"]["message"],
        {"role": "user", "content": [{"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "Sunny."}]}}]},
    ]
    assert second.body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 16384}}
    assert second.warnings == []


def test_reasoning_without_known_encrypted_content_is_left_out():
    foreign = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "A"}]}
    odd = {"type": "reasoning", "summary": [], "encrypted_content": "not JSON"}
    unsigned = {"type": "reasoning", "summary": [], "encrypted_content": '{"text":"B"}'}
    reply = {"role": "assistant", "content": "Hi"}
    request = encode_request(BEDROCK, input=[{"role": "user", "content": "Hello"}, foreign, odd, unsigned, reply])
    assert request.body == {"messages": [*HELLO, {"role": "assistant", "content": [{"text": "Hi"}]}]}


def test_reasoning_without_a_signature_has_no_encrypted_content():
    response = decode_response(encode_request(BEDROCK, stream=True), stream(thought(0, "Hm."), text(1, "Yes.")))
    item = response.output[0]
    assert isinstance(item, Reasoning)
    assert not item.encrypted_content


WEB = {"title": "Paris", "location": {"web": {"url": "https://a.example/p", "domain": "a.example"}}}
PAGE = {"title": "report", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}


def test_citations_annotate_the_text_of_their_block():
    cited = {"citationsContent": {"content": [{"text": "It is big."}], "citations": [WEB, PAGE]}}
    complete = decode_response(encode_request(BEDROCK), whole({"text": "Yes. "}, cited), stream=False)
    streamed = decode_response(
        encode_request(BEDROCK, stream=True),
        stream(
            text(0, "Yes. "),
            delta(1, citation=WEB),
            delta(1, text="It is "),
            delta(1, text="big."),
            delta(1, citation=PAGE),
            block_stop(1),
        ),
    )
    assert items_without_ids(complete) == items_without_ids(streamed)
    message = streamed.output[1]
    assert isinstance(message, Message)
    assert message.content == [
        OutputText(
            text="It is big.",
            annotations=[
                UrlCitation(url="https://a.example/p", title="Paris", start_index=0, end_index=10),
                ExtensionAnnotation(type="bedrock:citation", extra={"title": "report", "location": PAGE["location"]}),
            ],
        )
    ]


def test_unknown_events_and_blocks_are_ignored():
    odd = (
        event("somethingNew", contentBlockIndex=0, delta={"text": "no"})
        + encode({}, b"")
        + encode({":message-type": "event"}, b"not JSON")
        + event(
            "contentBlockStart",
            contentBlockIndex=5,
            start={"toolUse": {"toolUseId": "s", "name": "grounding", "type": "server_tool_use"}},
        )
        + delta(5, toolUse={"input": '{"query":"x"}'})
        + block_stop(5)
        + event("contentBlockStart", contentBlockIndex=6, start={"toolResult": {"toolUseId": "s"}})
        + delta(6, toolResult=[{"text": "found"}])
        + delta(7, somethingNew={"a": 1})
        + delta(8, reasoningContent={})
        + event("metadata")
    )
    body = stream(odd, text(9, "Hello"))
    expected = decode_parts(encode_request(BEDROCK, tools=[TOOL], stream=True), stream(text(9, "Hello")))
    assert decode_parts(encode_request(BEDROCK, tools=[TOOL], stream=True), body) == expected
    body = whole({"guardContent": {}}, {"text": "Hello"})
    assert decode_response(encode_request(BEDROCK), body, stream=False).output_text == "Hello"


def test_images_are_left_out_with_one_warning():
    source = {"bytes": "AAAA"}
    image = event("contentBlockStart", contentBlockIndex=0, start={"image": {"format": "png"}})
    image += delta(0, image={"source": source}) * 2 + block_stop(0)
    block = {"image": {"format": "png", "source": source}}
    for response in (
        decode_response(encode_request(BEDROCK, stream=True), stream(image, text(1, "Hello"))),
        decode_response(encode_request(BEDROCK), whole(block, block, {"text": "Hello"}), stream=False),
    ):
        assert (response.status, response.output_text) == ("completed", "Hello")
        assert [warning.code for warning in response.warnings or []] == ["unsupported_output"]
