import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from antiphon.protocol.content import ExtensionAnnotation, LogProb
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import Event, OutputTextDelta, ResponseFailed
from antiphon.protocol.foreign.openai_types import add_slugs
from antiphon.protocol.items import ExtensionItem
from antiphon.protocol.parts import (
    Annotation,
    Call,
    Extension,
    Failure,
    Reasoning,
    Refusal,
    Text,
    Usage,
    Whole,
)
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING
from antiphon.protocol.response import Response
from antiphon.protocol.response import ResponseUsage as Counted
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire import sse
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.hashbrown.frames import HashbrownDialect
from antiphon.wire.openai import OpenAIDialect
from antiphon.wire.openresponses import Dialect, decode_request, failure_payload
from tests.protocol.builders import (
    NOW,
    final_response,
    make_response,
    synthesize,
    to_json,
)
from tests.spec.schema_checks import check_event, check_response

SPECIFICATION, OPENAI = Dialect(), OpenAIDialect()
DOORS = [SPECIFICATION, OPENAI]
EACH_DOOR = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)

SCHEMA = {"type": "object", "properties": {}}
MISHAP = ErrorPayload(message="It broke.", type="model_error", code="overloaded")
CHANCE = LogProb(token="Hi", logprob=-0.1, bytes=[72, 105], top_logprobs=[])
CITED = ExtensionAnnotation(
    type="openai:file_citation", extra={"file_id": "f", "filename": "f.txt", "index": 0}
)
SEARCHED = ExtensionItem(
    type="openai:web_search_call", extra={"action": {"type": "search", "query": "q"}}
)


def frames(door: Dialect, events: list[Event]) -> list[tuple[str, Any]]:
    """Return a stream as a door writes it, read again."""
    return [(name, json.loads(data)) for event in events for name, data in door.encode_event(event)]


def written(door: Dialect, response: Response) -> dict[str, Any]:
    """Return a response as a door writes it, read again."""
    return json.loads(door.encode_response(response))


def asked(**fields: object) -> Response:
    """Return the response that answers a request."""
    return Response.new(decode_request({"model": "m", **fields}), id="r", created_at=NOW)


def everything(**fields: object) -> list[Event]:
    """Return a stream with every kind of event in it."""
    return synthesize(
        Reasoning("Hmm", summary="So.", encrypted_content="sealed"),
        Whole(SEARCHED),
        Text("Hi", logprobs=[CHANCE]),
        Text("!"),
        Annotation(CITED),
        Refusal("No."),
        Call(0, "f", "{}", "x"),
        Usage(1, 2),
        response=asked(**fields),
    )


# --- reasoning events ---


def test_reasoning_events_have_another_name_at_each_door():
    events = synthesize(Reasoning("Hmm"))
    place = {"item_id": "rs_0", "output_index": 0, "content_index": 0}
    delta, done = {**place, "delta": "Hmm"}, {**place, "text": "Hmm"}
    assert frames(SPECIFICATION, events[4:6]) == [
        (name, {"type": name, "sequence_number": number, **fields})
        for name, number, fields in [
            ("response.reasoning.delta", 4, delta),
            ("response.reasoning.done", 5, done),
        ]
    ]
    assert frames(OPENAI, events[4:6]) == [
        (name, {"type": name, "sequence_number": number, **fields})
        for name, number, fields in [
            ("response.reasoning_text.delta", 4, delta),
            ("response.reasoning_text.done", 5, done),
        ]
    ]


def test_reasoning_that_speaks_of_its_own_event_is_not_rewritten():
    [_, *_, (_, delta)] = frames(OPENAI, synthesize(Reasoning("response.reasoning.delta"))[:5])
    assert delta["delta"] == "response.reasoning.delta"


def test_summary_events_are_the_same_at_both_doors():
    events = synthesize(Reasoning(summary="So."))[3:7]
    assert frames(SPECIFICATION, events) == frames(OPENAI, events)


# --- echoes ---


def test_a_schema_is_echoed_as_null_or_as_itself():
    response = asked(text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}})
    format = {"type": "json_schema", "name": "n", "description": None, "strict": False}
    assert written(SPECIFICATION, response)["text"] == {"format": {**format, "schema": None}}
    assert written(OPENAI, response)["text"] == {"format": {**format, "schema": SCHEMA}}
    check_response(written(SPECIFICATION, response))


@pytest.mark.parametrize(("effort", "nearest"), [("minimal", "low"), ("max", "xhigh")])
def test_an_effort_that_only_openai_has_is_echoed_as_the_nearest(effort: str, nearest: str):
    response = asked(reasoning={"effort": effort})
    assert written(SPECIFICATION, response)["reasoning"] == {"effort": nearest, "summary": None}
    assert written(OPENAI, response)["reasoning"] == {"effort": effort, "summary": None}
    check_response(written(SPECIFICATION, response))


def test_openais_responses_always_have_a_user():
    assert "user" not in written(SPECIFICATION, make_response())
    assert written(OPENAI, make_response())["user"] is None
    for door in DOORS:
        assert written(door, asked(user="u"))["user"] == "u"


def test_openais_usage_always_counts_what_was_written_to_the_cache():
    response = make_response(usage=Counted.of(3, 4, cached=2))
    spec, openai = (written(door, response)["usage"]["input_tokens_details"] for door in DOORS)
    assert spec == {"cached_tokens": 2}
    assert openai == {"cached_tokens": 2, "cache_write_tokens": 0}


def test_openais_text_events_always_have_logprobs():
    events = synthesize(Text("Hi"))
    delta, done = (event for event in events if "output_text" in event.type)
    for event in (delta, done):
        plain = to_json(event)
        assert isinstance(plain, dict)
        assert frames(SPECIFICATION, [event]) == [(event.type, plain)]
        assert frames(OPENAI, [event]) == [(event.type, plain | {"logprobs": []})]


def test_logprobs_that_are_there_are_written_once_at_both_doors():
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    for logprobs in ([CHANCE], []):
        event = OutputTextDelta(sequence_number=0, **place, delta="Hi", logprobs=logprobs)
        for door in DOORS:
            [(_, data)] = door.encode_event(event)
            assert data.count(b'"logprobs"') == 1
            assert door.encode_sse(event).count(b'"logprobs"') == 1
            assert json.loads(data) == to_json(event)


# --- what only OpenAI knows ---

TOOLS = [
    {"type": "web_search", "search_context_size": "low"},
    {"type": "custom", "name": "apply", "format": {"type": "text"}},
    {"type": "mcp", "server_label": "s"},
]
ITEM = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
SAID = {
    "type": "message",
    "role": "assistant",
    "content": [
        {
            "type": "output_text",
            "text": "Hi",
            "annotations": [{"type": "file_citation", "file_id": "f", "index": 0}],
        }
    ],
}
HEARD = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}],
}
SHOWN = {
    "type": "computer_call_output",
    "call_id": "c",
    "output": [{"type": "computer_screenshot", "image_url": "u"}],
}


def slugged(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a foreign thing under OpenAI's slug."""
    return raw | {"type": "openai:" + raw["type"]}


@EACH_DOOR
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["type"])
@pytest.mark.parametrize("spelling", [dict, slugged])
def test_a_foreign_tool_is_taken_in_either_spelling_and_echoed_in_the_doors_own(
    door: Dialect, tool: dict[str, Any], spelling: Any
):
    own = tool if door is OPENAI else slugged(tool)
    assert written(door, asked(tools=[spelling(tool)]))["tools"] == [own]


@EACH_DOOR
def test_a_foreign_tool_choice_is_taken_and_echoed(door: Dialect):
    own = (lambda name: name) if door is OPENAI else (lambda name: f"openai:{name}")
    chosen = asked(tool_choice={"type": "web_search"})
    assert written(door, chosen)["tool_choice"] == {"type": own("web_search")}
    tools = [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s"}]
    allowed = asked(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": tools})
    assert written(door, allowed)["tool_choice"] == {
        "type": "allowed_tools",
        "tools": [tools[0], {"type": own("mcp"), "server_label": "s"}],
        "mode": "auto",
    }


@EACH_DOOR
@pytest.mark.parametrize("spelling", [dict, slugged])
def test_a_foreign_item_makes_the_round_trip(door: Dialect, spelling: Any):
    request = decode_request({"input": [spelling(ITEM)]})
    own = ITEM if door is OPENAI else slugged(ITEM)
    assert written(door, make_response(output=request.input))["output"] == [own]


@EACH_DOOR
def test_foreign_content_and_annotations_make_the_round_trip(door: Dialect):
    request = decode_request({"input": [SAID, HEARD]})
    output = written(door, make_response(output=request.input))["output"]
    note, sound = output[0]["content"][0]["annotations"][0], output[1]["content"][0]
    slug = "" if door is OPENAI else "openai:"
    assert note == {"type": f"{slug}file_citation", "file_id": "f", "index": 0}
    assert sound == {
        "type": f"{slug}input_audio",
        "input_audio": {"data": "d", "format": "wav"},
    }


def test_everything_foreign_gets_its_slug_and_what_was_sent_is_not_changed():
    raw = {"input": [ITEM, SAID, HEARD, SHOWN], "tools": TOOLS, "tool_choice": {"type": "mcp"}}
    before = json.dumps(raw)
    text = json.dumps(add_slugs(raw))
    for name in (
        "web_search_call",
        "file_citation",
        "input_audio",
        "computer_call_output",
        "computer_screenshot",
        "web_search",
        "custom",
        "mcp",
    ):
        assert f'"type": "openai:{name}"' in text
        assert f'"type": "{name}"' not in text
    assert json.dumps(raw) == before


@pytest.mark.parametrize("raw", [None, 5, [], "Hi"])
def test_what_is_no_object_is_left_for_the_reader_to_refuse(raw: object):
    assert add_slugs(raw) == raw
    with pytest.raises(InvalidValueError):
        decode_request(raw)


@pytest.mark.parametrize(
    "raw", [{"input": [5]}, {"tools": [None]}, {"input": [{"type": "message", "content": 5}]}]
)
def test_what_is_not_understood_is_refused_as_a_shape(raw: object):
    with pytest.raises(InvalidValueError):
        decode_request(raw)


def test_a_type_of_neither_dialect_is_refused():
    with pytest.raises(InvalidValueError, match=r"^tools\[0\]\.type: unknown type 'nonsense'"):
        decode_request({"tools": [{"type": "nonsense"}]})


def test_an_unknown_include_is_refused_with_its_place():
    with pytest.raises(RequestError) as caught:
        decode_request({"include": [INCLUDE_ENCRYPTED_REASONING, "everything"]})
    payload = caught.value.payload
    assert (payload.param, payload.code) == ("include[1]", "invalid_value")
    assert payload.message.startswith("Unknown value 'everything' in include. Use one of '")


# --- a broken stream ---

FAILED = {"code": "overloaded", "message": "It broke.", "type": "model_error"}


def test_a_broken_stream_ends_with_two_frames_at_the_specifications_door():
    last = synthesize(Text("Hi"), Failure(MISHAP))[-1]
    number = last.sequence_number
    assert isinstance(last, ResponseFailed)
    assert frames(SPECIFICATION, [last]) == [
        (
            "error",
            {
                "type": "error",
                "sequence_number": number,
                "error": {
                    "message": "It broke.",
                    "type": "model_error",
                    "param": None,
                    "code": "overloaded",
                },
            },
        ),
        (
            "response.failed",
            {
                "type": "response.failed",
                "sequence_number": number + 1,
                "response": to_json(last.response),
            },
        ),
    ]


def test_a_broken_stream_ends_with_one_frame_at_openais_door():
    last = synthesize(Text("Hi"), Failure(MISHAP))[-1]
    [(name, frame)] = frames(OPENAI, [last])
    assert name == frame["type"] == "response.failed"
    assert frame["sequence_number"] == last.sequence_number
    assert frame["response"]["error"] == FAILED


@EACH_DOOR
def test_whoever_has_some_frames_of_an_event_gets_the_rest(door: Dialect):
    last = synthesize(Text("Hi"), Failure(MISHAP))[-1]
    written = [sse.encode(name, data) for name, data in door.encode_event(last)]
    number = last.sequence_number
    assert door.encode_after(last, number - 1) == b"".join(written) == door.encode_sse(last)
    assert door.encode_after(last, number) == b"".join(written[1:])
    assert door.encode_after(last, number + 1) == b""


@EACH_DOOR
def test_the_numbers_of_a_broken_stream_have_no_gap(door: Dialect):
    numbers = [
        frame["sequence_number"]
        for _, frame in frames(door, synthesize(Text("Hi"), Failure(MISHAP)))
    ]
    assert numbers == list(range(len(numbers)))


def test_a_failure_without_an_error_is_the_servers():
    assert failure_payload(make_response(status="failed")) == ErrorPayload(
        message="The response failed.", type="server_error", code="server_error"
    )


# --- encrypted reasoning ---


@pytest.mark.parametrize("kind", [Dialect, OpenAIDialect])
def test_encrypted_reasoning_is_shown_only_when_it_is_asked_for(kind: type[Dialect]):
    events = synthesize(Reasoning("Hmm", encrypted_content="sealed"), Text("Hi"))
    hidden, shown = kind(), kind(frozenset({INCLUDE_ENCRYPTED_REASONING}))
    assert "sealed" not in json.dumps(frames(hidden, events))
    assert b"sealed" not in hidden.encode_response(final_response(events))
    item = {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hmm"}],
    }
    assert written(hidden, final_response(events))["output"][0] == item
    assert written(shown, final_response(events))["output"][0] == item | {
        "encrypted_content": "sealed"
    }
    told = [frame["item"] for name, frame in frames(shown, events) if name.endswith("item.done")]
    assert told[0] == item | {"encrypted_content": "sealed"}


# --- errors ---


def test_an_error_body_has_the_specifications_names_or_openais_and_a_detail():
    error = ErrorPayload(message="No such model.", type="not_found", param="model", code="c")
    body = {"message": "No such model.", "type": "not_found", "param": "model", "code": "c"}
    assert json.loads(SPECIFICATION.encode_error(error, "detail")) == {"error": body}
    named = body | {"type": "invalid_request_error"}
    assert json.loads(OPENAI.encode_error(error)) == {"error": named, "detail": "No such model."}
    assert json.loads(OPENAI.encode_error(error, "Gone")) == {"error": named, "detail": "Gone"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("invalid_request", "invalid_request_error"),
        ("not_found", "invalid_request_error"),
        ("too_many_requests", "rate_limit_error"),
        ("model_error", "server_error"),
        ("server_error", "server_error"),
        ("authentication_error", "authentication_error"),
        ("permission_denied", "permission_error"),
    ],
)
def test_every_type_of_error_has_openais_name(ours: str, theirs: str):
    body = json.loads(OPENAI.encode_error(ErrorPayload(message="m", type=ours)))
    assert body["error"] == {"message": "m", "type": theirs, "param": None, "code": None}


def test_an_unknown_model_is_not_found_or_a_bad_request():
    error = RequestError("?", type="not_found", code="model_not_found", param="model")
    assert (SPECIFICATION.error_status(error), OPENAI.error_status(error)) == (404, 400)
    for other in (
        RequestError("No such response.", type="not_found"),
        RequestError("The upstream has none.", type="not_found", code="model_not_found"),
    ):
        assert (SPECIFICATION.error_status(other), OPENAI.error_status(other)) == (404, 404)


def test_an_error_names_foreign_things_as_the_door_does():
    error = ErrorPayload.invalid_param("tools[0]", "Cannot carry 'openai:mcp'.")
    assert json.loads(SPECIFICATION.encode_error(error))["error"]["message"] == error.message
    told = json.loads(OPENAI.encode_error(error))
    assert told["error"]["message"] == told["detail"] == "Cannot carry 'mcp'."


@pytest.mark.parametrize("words", ["openai: slow down.", "openai:mcpx", "'my_openai:mcp'"])
def test_an_error_keeps_the_name_of_a_provider(words: str):
    told = json.loads(OPENAI.encode_error(ErrorPayload(message=words, type="model_error")))
    assert told["error"]["message"] == words


# --- whole streams ---

ODD_REQUEST = {
    "tools": [*TOOLS, {"type": "function", "name": "f"}],
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    "reasoning": {"effort": "minimal"},
    "user": "u",
}


def test_everything_the_specifications_door_writes_is_the_specifications():
    for name, frame in frames(SPECIFICATION, everything(**ODD_REQUEST)):
        assert frame["type"] == name
        check_event(frame)


def test_everything_openais_door_writes_is_read_by_openais_sdk():
    reader: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for name, frame in frames(OPENAI, everything(**ODD_REQUEST)):
        assert frame["type"] == name
        assert reader.validate_json(json.dumps(frame)).type == name


@EACH_DOOR
def test_an_extension_event_passes_both_doors(door: Dialect):
    [event] = synthesize(Extension("acme:tick", {"n": 1}))[2:3]
    assert frames(door, [event]) == [
        ("acme:tick", {"type": "acme:tick", "sequence_number": 2, "n": 1})
    ]


# --- deltas ----------------------------------------------------------------------------------

PLAIN = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters='"\\'), min_size=1)


@EACH_DOOR
@given(number=st.integers(0, 2**40), words=PLAIN | st.just(" 100% sure, %d times "))
def test_the_form_of_a_text_writes_any_of_its_deltas(door: Dialect, number: int, words: str):
    place = {"item_id": "msg_100%d", "output_index": 1, "content_index": 2}
    form = door.text_fast_path(OutputTextDelta(sequence_number=0, delta="", **place))
    event = OutputTextDelta(sequence_number=number, delta=words, **place)
    assert form
    assert form % (number, words.encode()) == door.encode_sse(event)


@pytest.mark.parametrize("door", [ChatDialect(), HashbrownDialect()])
def test_doors_whose_deltas_have_no_form_say_so(door: Dialect):
    delta = OutputTextDelta(
        sequence_number=0, delta="a", item_id="msg_0", output_index=0, content_index=0
    )
    assert door.text_fast_path(delta) is None
