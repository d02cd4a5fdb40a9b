"""Anthropic's responses, decoded by the adapter and by the SDK from the same bytes."""

import json

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import features
from antiphon.adapters.anthropic.adapter import Anthropic
from antiphon.adapters.anthropic.decode import REASONS
from antiphon.protocol import parts
from antiphon.protocol.items import (
    ExtensionAnnotation,
    ExtensionItem,
    FunctionCall,
    Message,
    OutputText,
    UrlCitation,
    content_text,
)
from antiphon.protocol.response import IncompleteDetails, Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.anthropic.builders import ANTHROPIC, error_body, sdk_client
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, synthesize
from tests.adapters.scenes import NAMES, TOOL, Summary
from tests.adapters.scenes.anthropic import (
    MODEL,
    OSLO_CALL,
    OSLO_JSON,
    SCENES,
    block_delta,
    call_deltas,
    event,
    message,
    start_block,
    stop_block,
    stream,
    text_block,
    text_deltas,
    usage,
)
from tests.scripted_upstream import ScriptedAnswer, scripted_upstream, sse_answer


def ask(**fields: object):
    """Encode a streaming request."""
    return encode_request(ANTHROPIC, upstream_model=MODEL, **{"stream": True} | fields)  # type: ignore[arg-type]


def summarize_sdk_message(answer: anthropic.types.Message, expected: Summary) -> Summary:
    """Summarize a message of the SDK."""
    counts = answer.usage
    created, cached = counts.cache_creation_input_tokens, counts.cache_read_input_tokens
    spent = counts.output_tokens_details
    return Summary(
        text="".join(block.text for block in answer.content if block.type == "text"),
        calls=[(b.id, b.name, dict(b.input)) for b in answer.content if b.type == "tool_use"],
        reasoning="".join(b.thinking for b in answer.content if b.type == "thinking"),
        refusal=(answer.stop_details.explanation or "") if answer.stop_details else "",
        input_tokens=counts.input_tokens + (created or 0) + (cached or 0),
        output_tokens=counts.output_tokens,
        cached_tokens=cached or 0,
        reasoning_tokens=spent.thinking_tokens if spent else 0,
        status=expected.status,  # the SDK has no status
        reason=expected.reason,
        stop=answer.stop_reason or "",
    )


def items_without_ids(response: Response) -> list[object]:
    """Return the output without its ids."""
    found = [dict(to_builtins(item)) for item in response.output]  # type: ignore[call-overload]
    return [{name: item[name] for name in item if name != "id"} for item in found]


def finish(decoded: list[parts.Part]) -> list[parts.Part]:
    """Return the finish parts."""
    return [part for part in decoded if isinstance(part, parts.Finish)]


def test_every_scene_exists():
    assert list(SCENES) == NAMES


@pytest.mark.parametrize("name", SCENES)
def test_the_raw_stop_reason_is_kept(name: str):
    scene = SCENES[name]
    [end] = finish(decode_parts(ask(**scene.request), scene.stream))
    assert isinstance(end, parts.Finish)
    assert end.raw == scene.expected.stop


@pytest.mark.parametrize("name", SCENES)
def test_the_sdk_reads_the_same_stream(name: str):
    scene = SCENES[name]
    with scripted_upstream(sse_answer(scene.stream)) as provider, sdk_client(provider.url) as sdk:
        request = {"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": "?"}]}
        with sdk.messages.stream(**request) as answer:  # type: ignore[arg-type]
            final = answer.get_final_message()
    assert summarize_sdk_message(final, scene.expected) == scene.expected


@pytest.mark.parametrize("name", SCENES)
def test_the_sdk_reads_the_same_complete_message(name: str):
    scene = SCENES[name]
    answer = ScriptedAnswer(scene.whole, headers={"content-type": "application/json"})
    with scripted_upstream(answer) as provider, sdk_client(provider.url) as sdk:
        final = sdk.messages.create(model=MODEL, max_tokens=16, messages=[{"role": "user", "content": "?"}])
    assert summarize_sdk_message(final, scene.expected) == scene.expected


@given(cuts=st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=60))
def test_any_chunking_gives_the_same_parts(cuts: list[int]):
    body = SCENES["thinking_and_call"].stream
    decoder = ask().decoder
    decoded: list[parts.Part] = []
    rest, turn = body, 0
    while rest:
        size = cuts[turn % len(cuts)]
        decoded += decoder.feed(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert decoded + decoder.close() == decode_parts(ask(), body)


def test_thinking_is_content_unless_a_summary_was_requested():
    body = SCENES["thinking_and_call"].stream
    plain_thought = decode_parts(ask(), body)[1]
    summary = decode_parts(ask(reasoning={"effort": "low", "summary": "auto"}), body)[1]
    assert plain_thought == parts.Reasoning("Where is Oslo? ", key=0)
    assert summary == parts.Reasoning(key=0, summary="Where is Oslo? ")


def test_the_last_signature_of_a_thinking_block_is_kept():
    blocks = (
        start_block(0, {"type": "thinking", "thinking": "", "signature": ""})
        + block_delta(0, "thinking_delta", thinking="Hm.")
        + block_delta(0, "signature_delta", signature="one")
        + block_delta(0, "signature_delta", signature="two")
        + stop_block(0)
    )
    decoded = decode_parts(ask(), stream(blocks, "end_turn", usage(1, 1)))
    encrypted = [p.encrypted_content for p in decoded if isinstance(p, parts.Reasoning)]
    assert encrypted == [None, '{"signature":"two","thinking":"Hm."}']


def test_truncated_thinking_has_no_encrypted_content():
    blocks = start_block(0, {"type": "thinking", "thinking": "", "signature": ""})
    blocks += block_delta(0, "thinking_delta", thinking="Hm") + stop_block(0)
    response = decode_response(ask(), stream(blocks, "max_tokens", usage(1, 1)))
    assert [item.get("encrypted_content") for item in items_without_ids(response)] == [None]  # type: ignore[union-attr]


def test_consecutive_text_blocks_are_one_message():
    blocks = (
        text_deltas(0, "One. ")
        + text_deltas(1, "Two.")
        + call_deltas(2, *OSLO_CALL[:2], *OSLO_JSON)
        + text_deltas(3, "Three.")
    )
    response = decode_response(ask(), stream(blocks, "end_turn", usage(1, 1)))
    messages = [item for item in response.output if isinstance(item, Message)]
    assert [[content_text(p) for p in m.content] for m in messages] == [["One. ", "Two."], ["Three."]]


def test_openais_web_search_becomes_openais_item_and_citations_annotate_their_block():
    found = {"type": "web_search_result", "url": "https://oslo.no", "title": "Oslo", "encrypted_content": "x"}
    cited = {
        "type": "web_search_result_location",
        "url": "https://oslo.no",
        "title": "Oslo",
        "cited_text": "4 degrees",
        "encrypted_index": "y",
    }
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}
    blocks = (
        start_block(0, search | {"input": {}})
        + block_delta(0, "input_json_delta", partial_json='{"query": "os')
        + block_delta(0, "input_json_delta", partial_json='lo"}')
        + stop_block(0)
        + start_block(1, result)
        + stop_block(1)
        + text_deltas(2, "It is ")
        + start_block(3, {"type": "text", "text": "", "citations": []})
        + block_delta(3, "citations_delta", citation=cited)
        + block_delta(3, "text_delta", text="four degrees")
        + stop_block(3)
    )
    whole = message(
        [
            search | {"input": {"query": "oslo"}},
            result,
            text_block("It is "),
            text_block("four degrees") | {"citations": [cited]},
        ],
        "end_turn",
        usage(1, 1),
    )
    sources = {"include": ["web_search_call.action.sources"], "tools": [{"type": "web_search"}]}
    streamed = decode_response(ask(**sources), stream(blocks, "end_turn", usage(1, 1)))
    once = decode_response(ask(**sources), json.dumps(whole).encode(), stream=False)
    assert items_without_ids(once) == items_without_ids(streamed)
    searched, answer = streamed.output
    assert isinstance(searched, ExtensionItem)
    assert (searched.type, searched.status) == ("openai:web_search_call", "completed")
    assert searched.extra == {
        "action": {"type": "search", "query": "oslo", "sources": [{"type": "url", "url": "https://oslo.no"}]}
    }
    note = UrlCitation(url="https://oslo.no", start_index=0, end_index=12, title="Oslo")
    assert isinstance(answer, Message)
    assert answer.content == [OutputText(text="It is "), OutputText(text="four degrees", annotations=[note])]


def test_a_failed_web_search_is_a_failed_item():
    content = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": content}
    request = ask(tools=[{"type": "web_search"}])
    response = decode_response(request, stream(start_block(0, block) + stop_block(0), "end_turn", usage(1, 1)))
    assert [item.status for item in response.output] == ["failed"]  # type: ignore[union-attr]


def test_anthropics_own_web_search_becomes_anthropics_item():
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    request = ask(tools=[{"type": "anthropic:web_search_20260318", "name": "web_search"}])
    response = decode_response(request, stream(start_block(0, block) + stop_block(0), "end_turn", usage(1, 1)))
    [item] = response.output
    assert isinstance(item, ExtensionItem)
    assert (item.type, item.extra) == ("anthropic:web_search_tool_result", {"block": block})


def test_a_citation_of_a_document_keeps_its_fields():
    cited = {
        "type": "char_location",
        "cited_text": "Oslo",
        "document_index": 0,
        "start_char_index": 3,
        "end_char_index": 7,
    }
    blocks = start_block(0, text_block("")) + block_delta(0, "text_delta", text="Oslo.")
    blocks += block_delta(0, "citations_delta", citation=cited) + stop_block(0)
    [answer] = decode_response(ask(), stream(blocks, "end_turn", usage(1, 1))).output
    fields = {name: cited[name] for name in cited if name != "type"}
    note = ExtensionAnnotation(type="anthropic:char_location", extra=fields)
    assert isinstance(answer, Message)
    assert answer.content == [OutputText(text="Oslo.", annotations=[note])]


@pytest.mark.parametrize("citation", [5, None, {"type": "not a type!"}])
def test_an_unreadable_citation_is_ignored(citation: object):
    blocks = start_block(0, text_block("")) + block_delta(0, "text_delta", text="Oslo.")
    blocks += block_delta(0, "citations_delta", citation=citation) + stop_block(0)
    [answer] = decode_response(ask(), stream(blocks, "end_turn", usage(1, 1))).output
    assert isinstance(answer, Message)
    assert answer.content == [OutputText(text="Oslo.")]


def test_done_ends_the_stream():
    body = stream(text_deltas(0, "x"), "end_turn", usage(1, 1))
    body = body.replace(event({"type": "message_stop"}), b"data: [DONE]\n\n")
    assert decode_response(ask(), body + text_deltas(1, "y")).output_text == "x"


def test_blocks_of_other_server_tools_are_sent_back_unchanged():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution"}
    result = {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "bash_code_execution_result", "stdout": "4", "return_code": 0},
    }
    blocks = start_block(0, use | {"input": {}, "caller": {"type": "direct"}})
    blocks += block_delta(0, "input_json_delta", partial_json='{"command": "x"}') + stop_block(0)
    blocks += start_block(1, result) + stop_block(1) + text_deltas(2, "Four.")
    response = decode_response(ask(), stream(blocks, "end_turn", usage(1, 1)))
    back = [{"role": "user", "content": "2+2?"}, *map(to_builtins, response.output)]
    again = ask(input=[*back, {"role": "user", "content": "And 3+3?"}])
    blocks = again.body["messages"][1]["content"]
    assert blocks == [use | {"input": {"command": "x"}, "caller": {"type": "direct"}}, result, text_block("Four.")]
    assert again.warnings == []


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("web_search", {"type": "web_search"}),
        ("code_execution", {"type": "anthropic:code_execution_20250825", "name": "code_execution"}),
    ],
)
def test_a_server_tool_call_with_truncated_input_is_dropped(name: str, tool: dict):
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": {}}
    blocks = text_deltas(0, "Let me see.") + start_block(1, use)
    blocks += block_delta(1, "input_json_delta", partial_json='{"query": "os') + stop_block(1)
    response = decode_response(ask(tools=[tool]), stream(blocks, "max_tokens", usage(7, 100)))
    assert response.status == "incomplete"
    assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")
    assert [item.type for item in response.output] == ["message"]
    assert response.usage is not None
    assert response.usage.total_tokens == 107
    assert [warning.code for warning in response.warnings or []] == ["dropped_call"]


def test_a_split_emoji_in_the_input_of_a_server_tool_is_joined():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution"}
    blocks = start_block(0, use | {"input": {}})
    blocks += block_delta(0, "input_json_delta", partial_json='{"code": "HIGH')
    blocks += block_delta(0, "input_json_delta", partial_json='LOW"}') + stop_block(0)
    blocks = blocks.replace(b"HIGH", rb"\ud83d").replace(b"LOW", rb"\ude00")
    [item] = decode_response(ask(), stream(blocks, "end_turn", usage(1, 1))).output
    assert isinstance(item, ExtensionItem)
    assert item.extra == {"block": use | {"input": {"code": "\U0001f600"}}}


def test_a_paused_turn_is_incomplete_with_a_warning():
    response = decode_response(ask(), stream(text_deltas(0, "Wait"), "pause_turn", usage(1, 1)))
    assert response.status == "incomplete"
    assert [warning.code for warning in response.warnings or []] == ["paused"]


@pytest.mark.parametrize(("raw", "reason"), REASONS.items())
def test_every_stop_reason_is_mapped(raw: str, reason: str):
    assert finish(decode_parts(ask(), stream(text_deltas(0, "x"), raw, usage(1, 1)))) == [
        parts.Finish(reason, raw)  # type: ignore[arg-type]
    ]


def test_an_unknown_stop_reason_means_stop_or_tool_calls():
    called = call_deltas(0, *OSLO_CALL[:2], *OSLO_JSON)
    assert finish(decode_parts(ask(), stream(text_deltas(0, "x"), "tired", usage(1, 1)))) == [
        parts.Finish("stop", "tired")
    ]
    assert finish(decode_parts(ask(), stream(called, "tired", usage(1, 1)))) == [parts.Finish("tool_calls", "tired")]


def test_the_stop_reasons_are_those_of_the_sdk():
    reasons = anthropic.types.StopReason
    assert set(REASONS) == set(reasons.__args__)  # type: ignore[attr-defined]


def test_unknown_events_blocks_and_deltas_are_ignored():
    blocks = (
        event({"type": "weather_report", "index": "north", "delta": 5})
        + event({"type": ["weather"], "delta": {"type": {}}})
        + event({"type": "content_block_start", "index": 8, "content_block": {"type": []}})
        + start_block(0, {"type": "hologram", "text": {"x": 1}, "id": 7})
        + block_delta(0, "text_delta", text="unseen")
        + block_delta(0, "hologram_delta", text={"y": 2})
        + stop_block(0)
        + start_block(1, text_block("") | {"colour": "red"})
        + block_delta(1, "text_delta", text="Seen.", size=3)
        + block_delta(1, "colour_delta", text=["red"])
        + stop_block(1)
        + stop_block(9)
        + block_delta(9, "text_delta", text="nowhere")
        + b': a comment\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    )
    decoded = decode_parts(ask(), stream(blocks, "end_turn", usage(3, 4)))
    assert [part for part in decoded if isinstance(part, parts.Text)] == [parts.Text("Seen.", key=1)]
    assert finish(decoded) == [parts.Finish("stop", "end_turn")]


def test_later_token_counts_replace_earlier_ones():
    first = usage(10, 1, cache_read_input_tokens=100)
    body = event({"type": "message_start", "message": message([], None, first)}) + text_deltas(0, "x")
    body += event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9, "input_tokens": 15},
        }
    )
    counted = decode_response(ask(), body + event({"type": "message_stop"})).usage
    assert counted
    assert (counted.input_tokens, counted.output_tokens) == (115, 9)
    assert counted.input_tokens_details.cached_tokens == 100


def test_bytes_after_the_end_are_ignored():
    body = stream(text_deltas(0, "x"), "end_turn", usage(1, 1))
    assert decode_parts(ask(), body + text_deltas(1, "y") + b"data: rubbish\n\n") == decode_parts(ask(), body)


def test_a_message_may_end_without_a_stop_reason():
    body = event({"type": "message_start", "message": message([], None, usage(1, 1))})
    body += text_deltas(0, "x") + event({"type": "message_stop"})
    assert finish(decode_parts(ask(), body)) == [parts.Finish("stop")]


def test_arguments_in_the_start_event_are_kept():
    blocks = start_block(0, {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}})
    response = decode_response(ask(tools=[TOOL]), stream(blocks + stop_block(0), "tool_use", usage(1, 1)))
    assert [item.arguments for item in response.output if isinstance(item, FunctionCall)] == ['{"city":"Oslo"}']


@pytest.mark.parametrize(
    ("type", "status"),
    [
        ("overloaded_error", 503),
        ("rate_limit_error", 429),
        ("api_error", 500),
        ("invalid_request_error", 400),
        ("new_error", 500),
    ],
)
@pytest.mark.parametrize("before", [b"", text_deltas(0, "Hel")])
def test_an_error_in_a_stream_fails_the_response(type: str, status: int, before: bytes):
    body = event({"type": "message_start", "message": message([], None, usage(1, 1))})
    body += before + event(error_body(type, "Too much."))
    request = ask()
    decoded = decode_parts(request, body + text_deltas(1, "more"))
    failure = decoded[-1]
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.type, failure.error.message) == (status, type, "anthropic: Too much.")
    response = synthesize(request, decoded)[1]
    assert (response.status, response.output_text) == ("failed", "Hel" if before else "")


def test_an_error_event_needs_no_type_in_its_data():
    body = b'event: error\ndata: {"error": {"type": "api_error", "message": "No."}}\n\n'
    [failure] = decode_parts(ask(), body)
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.type) == (500, "api_error")


def test_an_error_in_a_complete_message_fails_the_response():
    body = json.dumps(error_body("overloaded_error")).encode()
    assert decode_response(ask(), body, stream=False).status == "failed"


@pytest.mark.parametrize("name", ["text", "thinking_and_call"])
def test_a_truncated_stream_is_never_completed(name: str):
    body = SCENES[name].stream
    stop = body.index(b"event: message_delta")
    for cut in range(0, stop, 17):
        assert decode_response(ask(), body[:cut]).status == "failed"


@pytest.mark.parametrize(
    "body",
    [
        b"data: {not json}\n\n",
        b"data: \xff\xfe\n\n",
        b"data: 5\n\n",
        b'data: {"type": "content_block_delta", "index": "zero"}\n\n',
        b'data: {"type": "content_block_start", "content_block": {"type": "text", "text": 5}}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"\x00" * 99,
    ],
)
def test_an_unreadable_stream_fails_the_response(body: bytes):
    assert decode_response(ask(), body).status == "failed"


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b"[]", b'{"content": 5}', b"\xff"])
def test_an_unreadable_message_fails_the_response(body: bytes):
    assert decode_response(ask(), body, stream=False).status == "failed"


def test_the_adapter_lists_only_known_features():
    assert Anthropic.features <= features.ALL_FEATURES
