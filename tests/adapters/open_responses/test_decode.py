"""Answers of Open Responses servers, decoded as OpenAI's own client reads them."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from openai.types.responses import Response as OpenAIResponse
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent

from antiphon.adapters.base import Provider
from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.adapters.open_responses.decode import REASONS
from antiphon.protocol import parts
from antiphon.protocol.events import Event, OutputItemAdded, OutputItemDone
from antiphon.protocol.items import ExtensionItem, FunctionCall, Message, Reasoning
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.server.settings import Settings
from antiphon.wire.openresponses import Dialect, OpenAIDialect
from tests.adapters.open_responses.builders import (
    ADAPTER,
    CITED_MESSAGE,
    INCLUDE,
    RAW_REASONING,
    SEARCH,
    STRICT_ADAPTER,
    decode_stream,
    items_without_ids,
    openai_client,
    warning_message,
)
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, synthesize
from tests.adapters.scenes import FORMAT, NAMES, TOOL, Summary
from tests.adapters.scenes.responses import SAID, SCENES, call, event, events_of, message, response, stream, usage
from tests.http_client import post_response, stream_events
from tests.protocol.builders import final_response
from tests.protocol.builders import synthesize as synthesize_stream
from tests.protocol.strategies import part_lists
from tests.run_server import run_server
from tests.scripted_upstream import json_answer, scripted_upstream, sse_answer


def summarize(response: Response, stop: str) -> Summary:
    """Return what a response means."""
    counts, details = response.usage, response.incomplete_details
    assert counts
    contents = [piece for i in response.output if isinstance(i, Message) for piece in i.content]
    return Summary(
        text=response.output_text,
        calls=[
            (item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if isinstance(item, FunctionCall)
        ],
        reasoning="".join(
            piece.text  # type: ignore[union-attr]
            for item in response.output
            if isinstance(item, Reasoning)
            for piece in [*(item.content or []), *item.summary]
        ),
        refusal="".join(getattr(piece, "refusal", "") for piece in contents),
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=counts.input_tokens_details.cached_tokens,
        reasoning_tokens=counts.output_tokens_details.reasoning_tokens,
        status=response.status,
        reason=details.reason if details else None,
        stop=stop,
    )


def test_there_is_a_scene_of_every_name():
    assert set(SCENES) == set(NAMES)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("pieces", [0, 1, 9])
@pytest.mark.parametrize("adapter", [ADAPTER, STRICT_ADAPTER])
def test_a_stream_decodes_to_the_expected_response(name: str, pieces: int, adapter: OpenResponses):
    scene = SCENES[name]
    asking = encode_request(adapter, stream=True, **scene.request)
    parts_heard = decode_parts(asking, scene.stream, pieces=pieces)
    finish = parts_heard[-1]
    assert isinstance(finish, parts.Finish)
    response = synthesize(asking, parts_heard)[1]
    assert summarize(response, finish.raw or "") == scene.expected
    assert not response.warnings


@pytest.mark.parametrize("name", SCENES)
def test_a_whole_response_decodes_to_the_same_as_the_stream(name: str):
    scene = SCENES[name]
    in_one = decode_response(encode_request(ADAPTER, **scene.request), scene.whole, stream=False)
    streamed = decode_response(encode_request(ADAPTER, stream=True, **scene.request), scene.stream)
    assert summarize(in_one, scene.expected.stop) == scene.expected
    assert items_without_ids(in_one) == items_without_ids(streamed)


@pytest.mark.parametrize("name", SCENES)
def test_openais_own_client_reads_the_same_stream(name: str):
    scene = SCENES[name]
    with scripted_upstream(sse_answer(scene.stream)) as provider, openai_client(provider.url) as client:
        events = list(client.responses.create(model="m", input="Hi", stream=True))
    texts = [e.delta for e in events if e.type == "response.output_text.delta"]
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent)
    assert summarize_openai(last.response) == scene.expected
    assert "".join(texts) == scene.expected.text


@pytest.mark.parametrize("name", SCENES)
def test_openais_own_client_reads_the_same_whole_response(name: str):
    scene = SCENES[name]
    playing = json_answer(json.loads(scene.whole))
    with scripted_upstream(playing) as provider, openai_client(provider.url) as client:
        answer = client.responses.create(model="m", input="Hi")
    assert summarize_openai(answer) == scene.expected


def summarize_openai(answer: OpenAIResponse) -> Summary:
    counts, details = answer.usage, answer.incomplete_details
    assert counts
    pieces = [c for item in answer.output if item.type == "message" for c in item.content]
    return Summary(
        text=answer.output_text,
        calls=[
            (item.call_id, item.name, json.loads(item.arguments))
            for item in answer.output
            if item.type == "function_call"
        ],
        reasoning="".join(piece.text for item in answer.output if item.type == "reasoning" for piece in item.summary),
        refusal="".join(c.refusal for c in pieces if c.type == "refusal"),
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=counts.input_tokens_details.cached_tokens,
        reasoning_tokens=counts.output_tokens_details.reasoning_tokens,
        status=answer.status or "",
        reason=details.reason if details else None,
        stop=(details.reason if details else answer.status) or "",
    )


@pytest.mark.parametrize(
    ("status", "reason", "finish"),
    [
        ("completed", None, parts.Finish("stop", "completed")),
        ("incomplete", "max_output_tokens", parts.Finish("length", "max_output_tokens")),
        ("incomplete", "content_filter", parts.Finish("content_filter", "content_filter")),
        ("incomplete", "something_new", parts.Finish("length", "something_new")),
        ("cancelled", None, parts.Finish("cancelled", "cancelled")),
    ],
)
def test_every_status_has_its_finish_reason(status: str, reason: str | None, finish: parts.Finish):
    details = {"reason": reason} if reason else None
    end = response(message("Hi"), status=status, incomplete_details=details)
    assert decode_parts(encode_request(ADAPTER), json.dumps(end).encode(), stream=False)[-1] == finish
    assert decode_parts(encode_request(ADAPTER, stream=True), stream([], end))[-1] == finish
    assert set(REASONS) >= {reason or status} - {"something_new"}


def test_a_message_keeps_its_phase():
    (decoded, _) = decode_response(encode_request(ADAPTER, tools=[TOOL]), SCENES["text_and_call"].stream).output
    assert isinstance(decoded, Message)
    assert decoded.phase == "commentary"


@pytest.mark.parametrize("streamed", [True, False])
def test_annotations_of_any_type_are_emitted_once(streamed: bool):
    item = message(content=[CITED_MESSAGE])
    events = events_of(item) if streamed else events_of(item)[-1:]
    (decoded,) = items_without_ids(decode_stream(stream(events, response(item))))
    types = [note["type"] for note in decoded["content"][0]["annotations"]]
    assert types == ["url_citation", "openai:file_citation", "responses:url_citation", "responses:odd_note"]


def test_log_probabilities_without_bytes_get_the_bytes_of_their_token():
    weighed = [{"token": "Hé", "logprob": -0.1, "top_logprobs": [{"token": "H", "logprob": -2}]}]
    events = events_of(message("Hé"))
    events[2] |= {"logprobs": weighed}
    (decoded,) = items_without_ids(decode_stream(stream(events, response(message("Hé")))))
    assert decoded["content"][0]["logprobs"] == [
        {
            "token": "Hé",
            "logprob": -0.1,
            "bytes": [72, 195, 169],
            "top_logprobs": [{"token": "H", "logprob": -2.0, "bytes": [72]}],
        }
    ]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_text", "reasoning_content"])
def test_raw_reasoning_is_read_in_every_spelling(name: str):
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [RAW_REASONING]}
    events = events_of(item, deltas=["Hm. ", "Well."])
    body = stream(events, response(item)).replace(b"reasoning_text.d", f"{name}.d".encode())
    result = decode_stream(body)
    assert not warning_message(result)
    (reasoning,) = items_without_ids(result)
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm. Well."}]


OTHER_ITEMS = [
    (SEARCH, "openai:web_search_call"),
    (SEARCH | {"type": "acme:search"}, "acme:search"),
    (SEARCH | {"type": "brand_new_call"}, "responses:brand_new_call"),
    (SEARCH | {"type": "odd type"}, "responses:odd_type"),
]


@pytest.mark.parametrize(("item", "type"), OTHER_ITEMS)
@pytest.mark.parametrize("streamed", [True, False])
def test_items_of_other_types_are_emitted_whole(item: dict, type: str, streamed: bool):
    end = response(item, message("Hi"))
    events = [*events_of(item), *events_of(message("Hi"), 1)]
    body = stream(events, end) if streamed else json.dumps(end).encode()
    result = decode_response(encode_request(ADAPTER, stream=streamed), body, stream=streamed)
    first, second = result.output
    assert isinstance(first, ExtensionItem)
    assert (first.type, first.extra) == (type, {"action": SEARCH["action"]})
    assert second.type == "message"
    assert not warning_message(result)


def test_what_follows_a_hosted_call_waits_for_it():
    hosted, decoded = events_of(SEARCH), events_of(message("Hi"), 1)
    events = [hosted[0], decoded[0], decoded[1], hosted[1], *decoded[2:]]
    result = decode_stream(stream(events, response(SEARCH, message("Hi"))))
    assert [item.type for item in result.output] == ["openai:web_search_call", "message"]


def test_a_hosted_call_that_never_ends_loses_nothing():
    body = stream([*events_of(SEARCH)[:1], *events_of(message("Hi"), 1)], response(message("Hi")))
    cut = body[: body.index(b"event: response.completed")]
    assert decode_stream(body).output_text == "Hi"
    assert (decode_stream(cut).output_text, decode_stream(cut).status) == ("Hi", "failed")


def test_a_compaction_is_emitted():
    item = {"id": "cmp_1", "type": "compaction", "encrypted_content": "sealed"}
    body = stream(events_of(item), response(item))
    assert items_without_ids(decode_stream(body)) == [{"type": "compaction", "encrypted_content": "sealed"}]


@pytest.mark.parametrize("streamed", [True, False])
def test_content_that_is_neither_text_nor_refusal_is_left_out_with_a_warning(streamed: bool):
    pieces = [*message("Hi")["content"], {"type": "output_audio", "data": "aGk="}]
    item = message(content=pieces)
    events = [*events_of(message("Hi"))[:-1], events_of(SEARCH)[-1] | {"item": item}]
    end = response(item)
    body = stream(events, end) if streamed else json.dumps(end).encode()
    result = decode_response(encode_request(ADAPTER, stream=streamed), body, stream=streamed)
    assert [content["text"] for content in items_without_ids(result)[0]["content"]] == ["Hi"]
    assert "unsupported_content" in {warning.code for warning in result.warnings or []}


@pytest.mark.parametrize("deltas", [["H", "i"], ["H"], []])
def test_string_content_is_one_text_part(deltas: list[str]):
    item = message("Hi") | {"content": "Hi"}
    decoded = [fields for fields in events_of(message("Hi"), deltas=deltas) if "delta" in fields]
    for result in (
        decode_stream(stream([*decoded, event("output_item.done", item=item, output_index=0)], response())),
        decode_stream(stream(decoded, response(item))),
        decode_response(encode_request(ADAPTER), json.dumps(response(item)).encode(), stream=False),
    ):
        assert [content["text"] for content in items_without_ids(result)[0]["content"]] == ["Hi"]
        assert not any(w.code == "unsupported_content" for w in result.warnings or [])


def test_events_with_a_slug_are_passed_on_and_unknown_ones_dropped():
    middle = [
        {"type": "acme:progress", "percent": 3},
        event("web_search_call.searching", item_id="ws_1", output_index=0),
        {"type": "keepalive"},
        *events_of(message("Hi")),
    ]
    parts_heard = decode_parts(encode_request(STRICT_ADAPTER, stream=True), stream(middle, response(message("Hi"))))
    assert parts_heard[:2] == [parts.Progress("in_progress"), parts.Extension("acme:progress", {"percent": 3})]
    assert [type(part) for part in parts_heard[2:]] == [parts.Text, parts.Usage, parts.Finish]


def test_warnings_of_another_antiphon_are_passed_on():
    end = response(message("Hi"), **{"antiphon:warnings": [{"code": "c", "message": "m", "param": "p"}]})
    parts_heard = decode_parts(encode_request(ADAPTER), json.dumps(end).encode(), stream=False)
    assert parts.Warn("c", "m", "p") in parts_heard


@given(cuts=st.lists(st.integers(1, 900), max_size=8))
@settings(deadline=None)
def test_any_chunking_gives_the_same_parts(cuts: list[int]):
    body = SCENES["thinking_and_call"].stream
    decoder = encode_request(ADAPTER, stream=True).decoder
    pieces: list[Part] = []
    rest = body
    for cut in cuts:
        pieces += decoder.feed(rest[:cut])
        rest = rest[cut:]
    pieces += decoder.feed(rest) + decoder.close()
    assert pieces == decode_parts(encode_request(ADAPTER, stream=True), body)


def comparable(response: Response) -> list[object]:
    """Return what a response and its decoded copy have in common.

    Ids differ, and errors get a prefix. The mark of raw reasoning is Antiphon's. Parts without text
    are not emitted again, a phase only with text. The status of items of a failed response may
    differ.
    """
    output = items_without_ids(response)
    for item in output:
        if item.get("encrypted_content") == '{"raw":true}':
            del item["encrypted_content"]
        if item["type"] == "message":
            if any(set(piece) & {"refusal"} or piece["annotations"] for piece in item["content"]):
                item.pop("phase", None)
            item["content"] = [
                piece
                for piece in item["content"]
                if piece.get("text") or piece.get("refusal") or piece.get("annotations")
            ]
        if response.status != "completed":
            item.pop("status", None)
    error = response.error and response.error.message.removeprefix("responses: ")
    return [output, response.status, response.usage, response.warnings, response.incomplete_details, error]


def has_no_overlap(events: list[Event]) -> bool:
    """Return whether every message and reasoning item is done before another item begins."""
    growing = False
    for one in events:
        if isinstance(one, OutputItemAdded):
            if growing:
                return False
            growing = one.item.type in ("message", "reasoning")
        elif isinstance(one, OutputItemDone) and one.item.type in ("message", "reasoning"):
            growing = False
    return True


@pytest.mark.parametrize("dialect", [Dialect, OpenAIDialect])
@given(source_parts=part_lists())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_our_own_streams_decode_to_the_same_response_in_either_dialect(
    dialect: type[Dialect], source_parts: list[Part]
):
    events = synthesize_stream(*source_parts)
    assume(has_no_overlap(events))
    door = dialect(frozenset(INCLUDE))
    body = b"".join(door.encode_sse(one) for one in events)
    again = decode_response(encode_request(STRICT_ADAPTER, stream=True), body)
    assert comparable(again) == comparable(final_response(events))
    in_one = decode_response(encode_request(STRICT_ADAPTER), door.encode_response(final_response(events)), stream=False)
    assert comparable(in_one) == comparable(final_response(events))


REQUESTS: list[dict[str, Any]] = [{}, {"tools": [TOOL], "tool_choice": "required"}, {"text": FORMAT}]


@pytest.mark.parametrize("door", ["/v1", "/openai/v1"])
def test_our_own_server_is_a_provider_at_either_door(door: str):
    with run_server() as behind:
        there = Provider(name="there", adapter="responses", base_url=behind + door, strict=True)
        with run_server(Settings(providers=[there])) as front:
            for fields in REQUESTS:
                direct = post_response(behind, model="demo", **fields).json()
                relayed = post_response(front, model="there/demo", **fields).json()
                assert without_ids(relayed["output"]) == without_ids(direct["output"])
                assert relayed["usage"] == direct["usage"]
                last = stream_events(front, model="there/demo", **fields)[-1]["response"]
                assert without_ids(last["output"]) == without_ids(direct["output"])
                assert "antiphon:warnings" not in last


def without_ids(output: list[dict]) -> list[dict]:
    """Return items without what each server makes up for itself."""
    made_up = ("id", "call_id")
    return [{name: item[name] for name in item if name not in made_up} for item in output]


INVALID_RESPONSES = {
    "a call without a name": (response(call("", "{}", "1")), "wrong shape"),
    "ids that are missing": (response(message("a", id="")), "[item-id]"),
    "ids that are shared": (response(message("a"), message("b")), "[item-id]"),
    "an item in progress": (response(message("a", status="in_progress")), "[item-status]"),
    "an incomplete item": (response(message("a", status="incomplete")), "[no-incomplete-in-"),
    "no reason": (response(message("a"), status="incomplete"), "[reason-told]"),
    "no status": ({"object": "response", "id": "r", "output": []}, "[response-status]"),
    "a wrong sum": (response(usage=usage(1, 2) | {"total_tokens": 4}), "[usage-adds-up]"),
}


@pytest.mark.parametrize("name", INVALID_RESPONSES)
def test_a_whole_response_that_breaks_rules_is_repaired_with_a_warning(name: str):
    body, rule = INVALID_RESPONSES[name]
    result = decode_response(encode_request(ADAPTER), json.dumps(body).encode(), stream=False)
    assert result.status == body.get("status", "completed")
    assert rule in warning_message(result)


@pytest.mark.parametrize("name", INVALID_RESPONSES)
def test_a_strict_decoder_rejects_a_whole_response_that_breaks_rules(name: str):
    body, rule = INVALID_RESPONSES[name]
    result = decode_response(encode_request(STRICT_ADAPTER), json.dumps(body).encode(), stream=False)
    assert (result.status, result.output) == ("failed", [])
    assert result.error
    assert result.error.code == "upstream_protocol"
    assert rule in result.error.message


@pytest.mark.parametrize("name", SCENES)
def test_a_legal_whole_response_has_no_warning(name: str):
    result = decode_response(encode_request(STRICT_ADAPTER), SCENES[name].whole, stream=False)
    assert result.status in ("completed", "incomplete")
    assert not warning_message(result)


def test_a_failed_whole_response_keeps_its_error_in_strict_mode():
    failure = {"code": "c", "message": "Oh."}
    body = response(message("a", status="in_progress"), status="failed", error=failure)
    result = decode_response(encode_request(STRICT_ADAPTER), json.dumps(body).encode(), stream=False)
    assert result.error
    assert result.error.code == "c"


def test_arguments_that_come_after_a_call_is_done_are_dropped():
    place = {"item_id": SAID["id"], "output_index": 0}
    late = [event("function_call_arguments.delta", **place, delta="x") for _ in range(3)]
    result = decode_stream(stream([*events_of(SAID), *late], response(SAID)))
    assert [item["arguments"] for item in items_without_ids(result)] == [SAID["arguments"]]


def test_an_empty_object_in_a_call_that_was_only_added_is_not_its_arguments():
    added, *rest = events_of(SAID, 0, ['{"city":', '"Paris"}'])
    added = added | {"item": added["item"] | {"arguments": "{}"}}
    result = decode_stream(stream([added, *rest], response(SAID)))
    assert [item["arguments"] for item in items_without_ids(result)] == [SAID["arguments"]]


def test_arguments_that_are_an_object_are_read_as_json():
    item = SAID | {"arguments": {"city": "Paris"}}
    result = decode_stream(stream([], response(item)))
    assert [item["arguments"] for item in items_without_ids(result)] == ['{"city":"Paris"}']


def test_text_and_refusal_of_unknown_content_types_are_read():
    content = [{"type": "odd", "text": "Hi."}, {"type": "odder", "refusal": "No."}]
    part = event("content_part.added", item_id="msg_1", output_index=0, content_index=0, part=content[0])
    for events in ([], [part]):
        result = decode_stream(stream(events, response(message(content=content))))
        (item,) = items_without_ids(result)
        assert [(part["type"], part.get("text")) for part in item["content"]] == [
            ("output_text", "Hi."),
            ("refusal", None),
        ]
