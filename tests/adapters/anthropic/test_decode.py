"""What Anthropic answers: heard by us, and by its own client from the same bytes."""

import json

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters import features
from antiphon.adapters.anthropic.adapter import REASONS, Anthropic
from antiphon.protocol import parts
from antiphon.protocol.content import (
    ExtensionAnnotation,
    OutputText,
    RefusalContent,
    UrlCitation,
    content_text,
)
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    Message,
    Reasoning,
)
from antiphon.protocol.response import IncompleteDetails, Response
from antiphon.protocol.struct import to_builtins
from antiphon.transport.request import Key
from tests.adapters.run_adapter import (
    decode_parts,
    decode_response,
    encode_request,
    make_adapter,
    synthesize,
)
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

ANTHROPIC = make_adapter(Anthropic)


def ask(**fields: object):
    """Ask a model of Anthropic's."""
    return encode_request(ANTHROPIC, upstream_model=MODEL, **{"stream": True} | fields)  # type: ignore[arg-type]


def summarize(response: Response, stop: str) -> Summary:
    """Return what a response means."""
    usage, details = response.usage, response.incomplete_details
    assert usage
    messages = [item for item in response.output if isinstance(item, Message)]
    thoughts = [item for item in response.output if isinstance(item, Reasoning)]
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    pieces = [part for item in messages for part in item.content]
    return Summary(
        text="".join(part.text for part in pieces if isinstance(part, OutputText)),
        calls=[(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
        reasoning="".join(content_text(part) for item in thoughts for part in item.content or []),
        refusal="".join(part.refusal for part in pieces if isinstance(part, RefusalContent)),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        status=response.status,
        reason=details.reason if details else None,
        stop=stop,
    )


def summarize_sdk_message(answer: anthropic.types.Message, named: Summary) -> Summary:
    """Return what an answer means to Anthropic's own client."""
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
        status=named.status,  # the client has no such words
        reason=named.reason,
        stop=answer.stop_reason or "",
    )


def items_without_ids(response: Response) -> list[object]:
    """Return the output without its ids."""
    found = [dict(to_builtins(item)) for item in response.output]  # type: ignore[call-overload]
    return [{name: item[name] for name in item if name != "id"} for item in found]


def finish(heard: list[parts.Part]) -> list[parts.Part]:
    """Return how it was said to have ended."""
    return [part for part in heard if isinstance(part, parts.Finish)]


# --- scenes ---------------------------------------------------------------------------------------


def test_every_scene_is_played():
    assert list(SCENES) == NAMES


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_a_stream_means_what_it_should(name: str, pieces: int):
    scene = SCENES[name]
    question = ask(**scene.request)
    parts_heard = decode_parts(question, scene.stream, pieces=pieces)
    [ended] = finish(parts_heard)
    assert isinstance(ended, parts.Finish)
    assert summarize(synthesize(question, parts_heard)[1], ended.raw or "") == scene.expected
    assert question.warnings == []


@pytest.mark.parametrize("name", SCENES)
def test_a_whole_answer_is_the_same_as_the_stream(name: str):
    scene = SCENES[name]
    once = decode_response(ask(stream=False, **scene.request), scene.whole, stream=False)
    streamed = decode_response(ask(**scene.request), scene.stream)
    assert items_without_ids(once) == items_without_ids(streamed)
    assert summarize(once, scene.expected.stop) == scene.expected


@pytest.mark.parametrize("name", SCENES)
def test_anthropics_own_client_reads_the_same_stream(name: str):
    scene = SCENES[name]
    with scripted_upstream(sse_answer(scene.stream)) as provider, client(provider.url) as theirs:
        asked_for = {
            "model": MODEL,
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "?"}],
        }
        with theirs.messages.stream(**asked_for) as answer:  # type: ignore[arg-type]
            final = answer.get_final_message()
    assert summarize_sdk_message(final, scene.expected) == scene.expected


@pytest.mark.parametrize("name", SCENES)
def test_anthropics_own_client_reads_the_same_answer(name: str):
    scene = SCENES[name]
    played = ScriptedAnswer(scene.whole, headers={"content-type": "application/json"})
    with scripted_upstream(played) as provider, client(provider.url) as theirs:
        final = theirs.messages.create(
            model=MODEL, max_tokens=16, messages=[{"role": "user", "content": "?"}]
        )
    assert summarize_sdk_message(final, scene.expected) == scene.expected


def client(url: str) -> anthropic.Anthropic:
    """Return Anthropic's own client."""
    return anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)


@given(cuts=st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=60))
def test_any_cutting_of_the_bytes_means_the_same(cuts: list[int]):
    body = SCENES["thinking_and_call"].stream
    decoder = ask().decoder
    parts_heard: list[parts.Part] = []
    rest, turn = body, 0
    while rest:
        size = cuts[turn % len(cuts)]
        parts_heard += decoder.feed(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert parts_heard + decoder.close() == decode_parts(ask(), body)


# --- the dialect ----------------------------------------------------------------------------------


def test_thinking_is_raw_unless_a_summary_was_asked_for():
    body = SCENES["thinking_and_call"].stream
    plain_thought = decode_parts(ask(), body)[1]
    summary = decode_parts(ask(reasoning={"effort": "low", "summary": "auto"}), body)[1]
    assert plain_thought == parts.Reasoning("Where is Oslo? ", key=0)
    assert summary == parts.Reasoning(key=0, summary="Where is Oslo? ")


def test_the_last_signature_of_a_thought_counts():
    said = (
        start_block(0, {"type": "thinking", "thinking": "", "signature": ""})
        + block_delta(0, "thinking_delta", thinking="Hm.")
        + block_delta(0, "signature_delta", signature="one")
        + block_delta(0, "signature_delta", signature="two")
        + stop_block(0)
    )
    parts_heard = decode_parts(ask(), stream(said, "end_turn", usage(1, 1)))
    sealed = [p.encrypted_content for p in parts_heard if isinstance(p, parts.Reasoning)]
    assert sealed == [None, '{"signature":"two","thinking":"Hm."}']


def test_a_thought_that_was_cut_off_has_no_seal():
    said = start_block(0, {"type": "thinking", "thinking": "", "signature": ""})
    said += block_delta(0, "thinking_delta", thinking="Hm") + stop_block(0)
    response = decode_response(ask(), stream(said, "max_tokens", usage(1, 1)))
    assert [item.get("encrypted_content") for item in items_without_ids(response)] == [None]  # type: ignore[union-attr]


def test_blocks_of_text_in_a_row_are_one_message():
    said = (
        text_deltas(0, "One. ")
        + text_deltas(1, "Two.")
        + call_deltas(2, *OSLO_CALL[:2], *OSLO_JSON)
        + text_deltas(3, "Three.")
    )
    response = decode_response(ask(), stream(said, "end_turn", usage(1, 1)))
    messages = [item for item in response.output if isinstance(item, Message)]
    assert [[content_text(p) for p in m.content] for m in messages] == [
        ["One. ", "Two."],
        ["Three."],
    ]


def test_a_search_is_told_as_openai_tells_it_and_its_citations_note_their_block():
    found = {
        "type": "web_search_result",
        "url": "https://oslo.no",
        "title": "Oslo",
        "encrypted_content": "x",
    }
    cited = {
        "type": "web_search_result_location",
        "url": "https://oslo.no",
        "title": "Oslo",
        "cited_text": "4 degrees",
        "encrypted_index": "y",
    }
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}
    said = (
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
    streamed = decode_response(ask(**sources), stream(said, "end_turn", usage(1, 1)))
    once = decode_response(ask(**sources), json.dumps(whole).encode(), stream=False)
    assert items_without_ids(once) == items_without_ids(streamed)
    searched, answer = streamed.output
    assert isinstance(searched, ExtensionItem)
    assert (searched.type, searched.status) == ("openai:web_search_call", "completed")
    assert searched.extra == {
        "action": {
            "type": "search",
            "query": "oslo",
            "sources": [{"type": "url", "url": "https://oslo.no"}],
        }
    }
    note = UrlCitation(url="https://oslo.no", start_index=0, end_index=12, title="Oslo")
    assert isinstance(answer, Message)
    assert answer.content == [
        OutputText(text="It is "),
        OutputText(text="four degrees", annotations=[note]),
    ]


def test_a_search_that_failed_is_a_failed_call():
    content = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": content}
    question = ask(tools=[{"type": "web_search"}])
    response = decode_response(
        question, stream(start_block(0, block) + stop_block(0), "end_turn", usage(1, 1))
    )
    assert [item.status for item in response.output] == ["failed"]  # type: ignore[union-attr]


def test_a_search_that_was_asked_for_in_anthropics_words_is_told_in_them():
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    question = ask(tools=[{"type": "anthropic:web_search_20260318", "name": "web_search"}])
    response = decode_response(
        question, stream(start_block(0, block) + stop_block(0), "end_turn", usage(1, 1))
    )
    [item] = response.output
    assert isinstance(item, ExtensionItem)
    assert (item.type, item.extra) == ("anthropic:web_search_tool_result", {"block": block})


def test_a_citation_of_a_document_keeps_its_own_shape():
    cited = {
        "type": "char_location",
        "cited_text": "Oslo",
        "document_index": 0,
        "start_char_index": 3,
        "end_char_index": 7,
    }
    said = start_block(0, text_block("")) + block_delta(0, "text_delta", text="Oslo.")
    said += block_delta(0, "citations_delta", citation=cited) + stop_block(0)
    [answer] = decode_response(ask(), stream(said, "end_turn", usage(1, 1))).output
    fields = {name: cited[name] for name in cited if name != "type"}
    note = ExtensionAnnotation(type="anthropic:char_location", extra=fields)
    assert isinstance(answer, Message)
    assert answer.content == [OutputText(text="Oslo.", annotations=[note])]


def test_other_tools_that_the_provider_runs_are_items_that_go_back_as_they_came():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution"}
    result = {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "bash_code_execution_result", "stdout": "4", "return_code": 0},
    }
    said = start_block(0, use | {"input": {}, "caller": {"type": "direct"}})
    said += block_delta(0, "input_json_delta", partial_json='{"command": "x"}') + stop_block(0)
    said += start_block(1, result) + stop_block(1) + text_deltas(2, "Four.")
    response = decode_response(ask(), stream(said, "end_turn", usage(1, 1)))
    back = [{"role": "user", "content": "2+2?"}, *map(to_builtins, response.output)]
    again = ask(input=[*back, {"role": "user", "content": "And 3+3?"}])
    blocks = again.body["messages"][1]["content"]
    assert blocks == [
        use | {"input": {"command": "x"}, "caller": {"type": "direct"}},
        result,
        text_block("Four."),
    ]
    assert again.warnings == []


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("web_search", {"type": "web_search"}),
        ("code_execution", {"type": "anthropic:code_execution_20250825", "name": "code_execution"}),
    ],
)
def test_a_tool_that_the_provider_runs_is_left_out_if_its_input_was_cut(name: str, tool: dict):
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": {}}
    said = text_deltas(0, "Let me see.") + start_block(1, use)
    said += block_delta(1, "input_json_delta", partial_json='{"query": "os') + stop_block(1)
    response = decode_response(ask(tools=[tool]), stream(said, "max_tokens", usage(7, 100)))
    assert response.status == "incomplete"
    assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")
    assert [item.type for item in response.output] == ["message"]
    assert response.usage is not None
    assert response.usage.total_tokens == 107
    assert [warning.code for warning in response.warnings or []] == ["dropped_call"]


def test_an_emoji_that_is_cut_in_the_input_of_a_hosted_tool_is_joined():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution"}
    said = start_block(0, use | {"input": {}})
    said += block_delta(0, "input_json_delta", partial_json='{"code": "HIGH')
    said += block_delta(0, "input_json_delta", partial_json='LOW"}') + stop_block(0)
    said = said.replace(b"HIGH", rb"\ud83d").replace(b"LOW", rb"\ude00")
    [item] = decode_response(ask(), stream(said, "end_turn", usage(1, 1))).output
    assert isinstance(item, ExtensionItem)
    assert item.extra == {"block": use | {"input": {"code": "\U0001f600"}}}


def test_a_paused_turn_is_incomplete_and_says_so():
    response = decode_response(ask(), stream(text_deltas(0, "Wait"), "pause_turn", usage(1, 1)))
    assert response.status == "incomplete"
    assert [warning.code for warning in response.warnings or []] == ["paused"]


@pytest.mark.parametrize(("raw", "reason"), REASONS.items())
def test_every_reason_to_stop_has_a_meaning(raw: str, reason: str):
    assert finish(decode_parts(ask(), stream(text_deltas(0, "x"), raw, usage(1, 1)))) == [
        parts.Finish(reason, raw)  # type: ignore[arg-type]
    ]


def test_an_unknown_reason_is_a_stop_or_a_call_and_is_kept():
    called = call_deltas(0, *OSLO_CALL[:2], *OSLO_JSON)
    assert finish(decode_parts(ask(), stream(text_deltas(0, "x"), "tired", usage(1, 1)))) == [
        parts.Finish("stop", "tired")
    ]
    assert finish(decode_parts(ask(), stream(called, "tired", usage(1, 1)))) == [
        parts.Finish("tool_calls", "tired")
    ]


def test_reasons_are_those_of_the_client():
    theirs = anthropic.types.StopReason
    assert set(REASONS) == set(theirs.__args__)  # type: ignore[attr-defined]


def test_what_is_not_known_is_ignored():
    said = (
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
    parts_heard = decode_parts(ask(), stream(said, "end_turn", usage(3, 4)))
    assert [part for part in parts_heard if isinstance(part, parts.Text)] == [
        parts.Text("Seen.", key=1)
    ]
    assert finish(parts_heard) == [parts.Finish("stop", "end_turn")]


def test_counts_are_totals_and_later_ones_win():
    first = usage(10, 1, cache_read_input_tokens=100)
    body = event({"type": "message_start", "message": message([], None, first)}) + text_deltas(
        0, "x"
    )
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


def test_nothing_is_heard_after_the_end():
    body = stream(text_deltas(0, "x"), "end_turn", usage(1, 1))
    assert decode_parts(ask(), body + text_deltas(1, "y") + b"data: rubbish\n\n") == decode_parts(
        ask(), body
    )


def test_an_end_without_a_reason_is_an_end():
    body = event({"type": "message_start", "message": message([], None, usage(1, 1))})
    body += text_deltas(0, "x") + event({"type": "message_stop"})
    assert finish(decode_parts(ask(), body)) == [parts.Finish("stop")]


def test_a_call_whose_arguments_came_at_once_keeps_them():
    said = start_block(
        0, {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}}
    )
    response = decode_response(
        ask(tools=[TOOL]), stream(said + stop_block(0), "tool_use", usage(1, 1))
    )
    assert [item.arguments for item in response.output if isinstance(item, FunctionCall)] == [
        '{"city":"Oslo"}'
    ]


# --- what goes wrong ------------------------------------------------------------------------------


def error_body(type: str, message: str = "No.") -> dict:
    """Write an error as Anthropic does."""
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("status", "type", "ours", "retryable"),
    [
        (400, "invalid_request_error", 400, False),
        (401, "authentication_error", 401, False),
        (402, "billing_error", 402, False),
        (404, "not_found_error", 404, False),
        (429, "rate_limit_error", 429, True),
        (500, "api_error", 500, True),
        (529, "overloaded_error", 503, True),
    ],
)
def test_a_refused_request_keeps_the_providers_words(
    status: int, type: str, ours: int, retryable: bool
):
    headers = {"retry-after": "7", "request-id": "req_1"}
    error = ANTHROPIC.decode_error(status, headers, json.dumps(error_body(type)).encode())
    payload = error.payload
    assert (error.status, error.retryable, error.headers) == (ours, retryable, {"retry-after": "7"})
    assert (payload.type, payload.message) == (type, "anthropic: No.")


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[]", b'{"error": null}'])
def test_a_refusal_that_cannot_be_read_is_told_by_its_status(body: bytes):
    error = ANTHROPIC.decode_error(502, {}, body)
    assert (error.status, error.payload.type) == (502, "model_error")
    assert "502" in error.payload.message


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
    question = ask()
    parts_heard = decode_parts(question, body + text_deltas(1, "more"))
    failure = parts_heard[-1]
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.type, failure.error.message) == (
        status,
        type,
        "anthropic: Too much.",
    )
    response = synthesize(question, parts_heard)[1]
    assert (response.status, response.output_text) == ("failed", "Hel" if before else "")


def test_an_error_may_be_known_by_the_name_of_its_event():
    body = b'event: error\ndata: {"error": {"type": "api_error", "message": "No."}}\n\n'
    [failure] = decode_parts(ask(), body)
    assert isinstance(failure, parts.Failure)
    assert (failure.status, failure.error.type) == (500, "api_error")


def test_an_error_in_a_whole_answer_fails_the_response():
    body = json.dumps(error_body("overloaded_error")).encode()
    assert decode_response(ask(), body, stream=False).status == "failed"


@pytest.mark.parametrize("name", ["text", "thinking_and_call"])
def test_a_stream_that_is_cut_is_never_complete(name: str):
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
def test_rubbish_fails_the_response_and_nothing_else(body: bytes):
    assert decode_response(ask(), body).status == "failed"


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b"[]", b'{"content": 5}', b"\xff"])
def test_a_whole_answer_of_rubbish_fails_the_response(body: bytes):
    assert decode_response(ask(), body, stream=False).status == "failed"


# --- the adapter ----------------------------------------------------------------------------------


def test_the_adapter_says_only_what_carry_knows():
    assert Anthropic.features <= features.ALL_FEATURES


def test_the_key_has_a_header_of_its_own():
    assert ANTHROPIC.credential() == Key("x-api-key", "")


@pytest.mark.parametrize(
    "base", ["http://host:1", "http://host:1/", "http://host:1/v1", "http://host:1/v1/"]
)
def test_an_address_may_name_the_version_of_the_path_or_not(base: str):
    adapter = make_adapter(Anthropic, base_url=base)
    assert encode_request(adapter).sent.url == "http://host:1/v1/messages"
    listing = adapter.models_request()
    assert listing
    assert listing.url == "http://host:1/v1/models?limit=1000"


def test_the_models_are_those_that_the_client_lists():
    page = {
        "data": [
            {
                "type": "model",
                "id": id,
                "display_name": id,
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
            }
            for id in ("claude-opus-5", "claude-haiku-5-5")
        ],
        "has_more": False,
        "first_id": "claude-opus-5",
        "last_id": "claude-haiku-5-5",
    }
    played = ScriptedAnswer(json.dumps(page).encode(), headers={"content-type": "application/json"})
    with scripted_upstream(played) as provider, client(provider.url) as theirs:
        listed = [model.id for model in theirs.models.list(limit=1000)]
        sent = provider.requests[0]
    ours = make_adapter(Anthropic, base_url=provider.url).models_request()
    assert ours
    assert ours.url == f"{provider.url}{sent.path}"
    assert dict(ours.headers) == {"anthropic-version": sent.headers["anthropic-version"]}
    assert ANTHROPIC.decode_models(page) == listed
