import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import Event, OutputTextDelta, ResponseFailed
from antiphon.protocol.foreign.lenient import add_slugs
from antiphon.protocol.items import ExtensionAnnotation, ExtensionItem, LogProb
from antiphon.protocol.parts import Annotation, Call, Extension, Failure, Reasoning, Refusal, Text, Usage, Whole
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING
from antiphon.protocol.response import Response
from antiphon.protocol.response import ResponseUsage as Counted
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire import sse
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.hashbrown.frames import HashbrownDialect
from antiphon.wire.openresponses import Dialect, OpenAIDialect, decode_request, failure_payload
from tests.protocol.builders import NOW, final_response, make_response, synthesize, to_json
from tests.spec.schema_checks import check_event, check_response

SPECIFICATION, OPENAI = Dialect(), OpenAIDialect()
DOORS = [SPECIFICATION, OPENAI]
EACH_DOOR = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)

SCHEMA = {"type": "object", "properties": {}}
ERROR = ErrorPayload(message="It broke.", type="model_error", code="overloaded")
LOGPROB = LogProb(token="Hi", logprob=-0.1, bytes=[72, 105], top_logprobs=[])
CITATION = ExtensionAnnotation(type="openai:file_citation", extra={"file_id": "f", "filename": "f.txt", "index": 0})
SEARCH_CALL = ExtensionItem(type="openai:web_search_call", extra={"action": {"type": "search", "query": "q"}})


def decode_events(door: Dialect, events: list[Event]) -> list[tuple[str, Any]]:
    """Return events as a dialect encodes them, decoded."""
    return [(name, json.loads(data)) for event in events for name, data in door.encode_event(event)]


def decode_response(door: Dialect, response: Response) -> dict[str, Any]:
    """Return a response as a dialect encodes it, decoded."""
    return json.loads(door.encode_response(response))


def respond_to(**fields: object) -> Response:
    """Return the response to a request."""
    return Response.new(decode_request({"model": "m", **fields}), id="r", created_at=NOW)


def everything(**fields: object) -> list[Event]:
    """Return a stream with every kind of event."""
    return synthesize(
        Reasoning("Hmm", summary="So.", encrypted_content="sealed"),
        Whole(SEARCH_CALL),
        Text("Hi", logprobs=[LOGPROB]),
        Text("!"),
        Annotation(CITATION),
        Refusal("No."),
        Call(0, "f", "{}", "x"),
        Usage(1, 2),
        response=respond_to(**fields),
    )


def test_reasoning_events_have_each_doors_name():
    events = synthesize(Reasoning("Hmm"))
    place = {"item_id": "rs_0", "output_index": 0, "content_index": 0}
    delta, done = {**place, "delta": "Hmm"}, {**place, "text": "Hmm"}
    assert decode_events(SPECIFICATION, events[4:6]) == [
        (name, {"type": name, "sequence_number": number, **fields})
        for name, number, fields in [("response.reasoning.delta", 4, delta), ("response.reasoning.done", 5, done)]
    ]
    assert decode_events(OPENAI, events[4:6]) == [
        (name, {"type": name, "sequence_number": number, **fields})
        for name, number, fields in [
            ("response.reasoning_text.delta", 4, delta),
            ("response.reasoning_text.done", 5, done),
        ]
    ]


def test_reasoning_text_with_an_event_name_is_not_changed():
    [_, *_, (_, delta)] = decode_events(OPENAI, synthesize(Reasoning("response.reasoning.delta"))[:5])
    assert delta["delta"] == "response.reasoning.delta"


def test_summary_events_are_the_same_at_both_doors():
    events = synthesize(Reasoning(summary="So."))[3:7]
    assert decode_events(SPECIFICATION, events) == decode_events(OPENAI, events)


def test_a_schema_is_echoed_as_null_or_as_itself():
    response = respond_to(text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}})
    format = {"type": "json_schema", "name": "n", "description": None, "strict": False}
    assert decode_response(SPECIFICATION, response)["text"] == {"format": {**format, "schema": None}}
    assert decode_response(OPENAI, response)["text"] == {"format": {**format, "schema": SCHEMA}}
    check_response(decode_response(SPECIFICATION, response))


@pytest.mark.parametrize(("effort", "nearest"), [("minimal", "low"), ("max", "xhigh")])
def test_an_effort_of_openai_is_echoed_as_the_nearest(effort: str, nearest: str):
    response = respond_to(reasoning={"effort": effort})
    assert decode_response(SPECIFICATION, response)["reasoning"] == {"effort": nearest, "summary": None}
    assert decode_response(OPENAI, response)["reasoning"] == {"effort": effort, "summary": None}
    check_response(decode_response(SPECIFICATION, response))


def test_openais_responses_always_have_a_user():
    assert "user" not in decode_response(SPECIFICATION, make_response())
    assert decode_response(OPENAI, make_response())["user"] is None
    for door in DOORS:
        assert decode_response(door, respond_to(user="u"))["user"] == "u"


def test_openais_usage_always_has_cache_write_tokens():
    response = make_response(usage=Counted.of(3, 4, cached=2))
    spec, openai = (decode_response(door, response)["usage"]["input_tokens_details"] for door in DOORS)
    assert spec == {"cached_tokens": 2}
    assert openai == {"cached_tokens": 2, "cache_write_tokens": 0}


def test_openais_text_events_always_have_logprobs():
    events = synthesize(Text("Hi"))
    delta, done = (event for event in events if "output_text" in event.type)
    for event in (delta, done):
        plain = to_json(event)
        assert isinstance(plain, dict)
        assert decode_events(SPECIFICATION, [event]) == [(event.type, plain)]
        assert decode_events(OPENAI, [event]) == [(event.type, plain | {"logprobs": []})]


def test_existing_logprobs_are_encoded_once_at_both_doors():
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    for logprobs in ([LOGPROB], []):
        event = OutputTextDelta(sequence_number=0, **place, delta="Hi", logprobs=logprobs)
        for door in DOORS:
            [(_, data)] = door.encode_event(event)
            assert data.count(b'"logprobs"') == 1
            assert door.encode_sse(event).count(b'"logprobs"') == 1
            assert json.loads(data) == to_json(event)


TOOLS = [
    {"type": "web_search", "search_context_size": "low"},
    {"type": "custom", "name": "apply", "format": {"type": "text"}},
    {"type": "mcp", "server_label": "s"},
]
ITEM = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
ASSISTANT_MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "output_text", "text": "Hi", "annotations": [{"type": "file_citation", "file_id": "f", "index": 0}]}
    ],
}
AUDIO_MESSAGE = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}],
}
SCREENSHOT = {
    "type": "computer_call_output",
    "call_id": "c",
    "output": [{"type": "computer_screenshot", "image_url": "u"}],
}


def add_slug(raw: dict[str, Any]) -> dict[str, Any]:
    """Return an object of OpenAI with the slug."""
    return raw | {"type": "openai:" + raw["type"]}


@EACH_DOOR
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["type"])
@pytest.mark.parametrize("spelling", [dict, add_slug])
def test_an_openai_tool_is_accepted_with_or_without_slug(door: Dialect, tool: dict[str, Any], spelling: Any):
    own = tool if door is OPENAI else add_slug(tool)
    assert decode_response(door, respond_to(tools=[spelling(tool)]))["tools"] == [own]


@EACH_DOOR
def test_an_openai_tool_choice_is_accepted_and_echoed(door: Dialect):
    own = (lambda name: name) if door is OPENAI else (lambda name: f"openai:{name}")
    chosen = respond_to(tool_choice={"type": "web_search"})
    assert decode_response(door, chosen)["tool_choice"] == {"type": own("web_search")}
    tools = [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s"}]
    allowed = respond_to(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": tools})
    assert decode_response(door, allowed)["tool_choice"] == {
        "type": "allowed_tools",
        "tools": [tools[0], {"type": own("mcp"), "server_label": "s"}],
        "mode": "auto",
    }


@EACH_DOOR
@pytest.mark.parametrize("spelling", [dict, add_slug])
def test_an_openai_item_makes_the_round_trip(door: Dialect, spelling: Any):
    request = decode_request({"input": [spelling(ITEM)]})
    own = ITEM if door is OPENAI else add_slug(ITEM)
    assert decode_response(door, make_response(output=request.input))["output"] == [own]


@EACH_DOOR
def test_openai_content_and_annotations_make_the_round_trip(door: Dialect):
    request = decode_request({"input": [ASSISTANT_MESSAGE, AUDIO_MESSAGE]})
    output = decode_response(door, make_response(output=request.input))["output"]
    note, sound = output[0]["content"][0]["annotations"][0], output[1]["content"][0]
    slug = "" if door is OPENAI else "openai:"
    assert note == {"type": f"{slug}file_citation", "file_id": "f", "index": 0}
    assert sound == {"type": f"{slug}input_audio", "input_audio": {"data": "d", "format": "wav"}}


def test_openai_types_get_a_slug_and_the_input_is_not_changed():
    raw = {
        "input": [ITEM, ASSISTANT_MESSAGE, AUDIO_MESSAGE, SCREENSHOT],
        "tools": TOOLS,
        "tool_choice": {"type": "mcp"},
    }
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
def test_a_request_that_is_not_an_object_is_rejected(raw: object):
    assert add_slugs(raw) == raw
    with pytest.raises(InvalidValueError):
        decode_request(raw)


@pytest.mark.parametrize("raw", [{"input": [5]}, {"tools": [None]}, {"input": [{"type": "message", "content": 5}]}])
def test_an_invalid_shape_is_rejected(raw: object):
    with pytest.raises(InvalidValueError):
        decode_request(raw)


def test_an_unknown_type_is_rejected():
    with pytest.raises(InvalidValueError, match=r"^tools\[0\]\.type: unknown type 'nonsense'"):
        decode_request({"tools": [{"type": "nonsense"}]})


def test_an_unknown_include_is_rejected_with_its_path():
    with pytest.raises(RequestError) as caught:
        decode_request({"include": [INCLUDE_ENCRYPTED_REASONING, "everything"]})
    payload = caught.value.payload
    assert (payload.param, payload.code) == ("include[1]", "invalid_value")
    assert payload.message.startswith("Unknown value 'everything' in include. Use one of '")


FAILED = {"code": "overloaded", "message": "It broke.", "type": "model_error"}


def test_a_failed_stream_ends_with_two_events_at_the_specifications_door():
    last = synthesize(Text("Hi"), Failure(ERROR))[-1]
    number = last.sequence_number
    assert isinstance(last, ResponseFailed)
    assert decode_events(SPECIFICATION, [last]) == [
        (
            "error",
            {
                "type": "error",
                "sequence_number": number,
                "error": {"message": "It broke.", "type": "model_error", "param": None, "code": "overloaded"},
            },
        ),
        (
            "response.failed",
            {"type": "response.failed", "sequence_number": number + 1, "response": to_json(last.response)},
        ),
    ]


def test_a_failed_stream_ends_with_one_event_at_openais_door():
    last = synthesize(Text("Hi"), Failure(ERROR))[-1]
    [(name, frame)] = decode_events(OPENAI, [last])
    assert name == frame["type"] == "response.failed"
    assert frame["sequence_number"] == last.sequence_number
    assert frame["response"]["error"] == FAILED


@EACH_DOOR
def test_resuming_within_an_event_gives_the_rest_of_it(door: Dialect):
    last = synthesize(Text("Hi"), Failure(ERROR))[-1]
    decode_response = [sse.encode(name, data) for name, data in door.encode_event(last)]
    number = last.sequence_number
    assert door.encode_after(last, number - 1) == b"".join(decode_response) == door.encode_sse(last)
    assert door.encode_after(last, number) == b"".join(decode_response[1:])
    assert door.encode_after(last, number + 1) == b""


@EACH_DOOR
def test_the_sequence_numbers_of_a_failed_stream_have_no_gap(door: Dialect):
    numbers = [frame["sequence_number"] for _, frame in decode_events(door, synthesize(Text("Hi"), Failure(ERROR)))]
    assert numbers == list(range(len(numbers)))


def test_a_failure_without_an_error_is_a_server_error():
    assert failure_payload(make_response(status="failed")) == ErrorPayload(
        message="The response failed.", type="server_error", code="server_error"
    )


@pytest.mark.parametrize("kind", [Dialect, OpenAIDialect])
def test_encrypted_reasoning_is_sent_only_if_included(kind: type[Dialect]):
    events = synthesize(Reasoning("Hmm", encrypted_content="sealed"), Text("Hi"))
    hidden, visible = kind(), kind(frozenset({INCLUDE_ENCRYPTED_REASONING}))
    assert "sealed" not in json.dumps(decode_events(hidden, events))
    assert b"sealed" not in hidden.encode_response(final_response(events))
    item = {"type": "reasoning", "id": "rs_0", "summary": [], "content": [{"type": "reasoning_text", "text": "Hmm"}]}
    assert decode_response(hidden, final_response(events))["output"][0] == item
    assert decode_response(visible, final_response(events))["output"][0] == item | {"encrypted_content": "sealed"}
    encoded = [frame["item"] for name, frame in decode_events(visible, events) if name.endswith("item.done")]
    assert encoded[0] == item | {"encrypted_content": "sealed"}


def test_an_error_body_has_each_doors_names():
    error = ErrorPayload(message="No such model.", type="not_found", param="model", code="c")
    body = {"message": "No such model.", "type": "not_found", "param": "model", "code": "c"}
    assert json.loads(SPECIFICATION.encode_error(error, "detail")) == {"error": body}
    named = body | {"type": "invalid_request_error"}
    assert json.loads(OPENAI.encode_error(error)) == {"error": named, "detail": "No such model."}
    assert json.loads(OPENAI.encode_error(error, "Gone")) == {"error": named, "detail": "Gone"}


@pytest.mark.parametrize(
    ("our_events", "openai_events"),
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
def test_every_error_type_has_openais_name(our_events: str, openai_events: str):
    body = json.loads(OPENAI.encode_error(ErrorPayload(message="m", type=our_events)))
    assert body["error"] == {"message": "m", "type": openai_events, "param": None, "code": None}


def test_an_unknown_model_is_404_or_400():
    error = RequestError("?", type="not_found", code="model_not_found", param="model")
    assert (SPECIFICATION.error_status(error), OPENAI.error_status(error)) == (404, 400)
    for other in (
        RequestError("No such response.", type="not_found"),
        RequestError("The upstream has none.", type="not_found", code="model_not_found"),
    ):
        assert (SPECIFICATION.error_status(other), OPENAI.error_status(other)) == (404, 404)


def test_error_messages_have_no_slug_at_openais_door():
    error = ErrorPayload(message="Cannot carry 'openai:mcp'.", type="invalid_request", param="tools[0]")
    assert json.loads(SPECIFICATION.encode_error(error))["error"]["message"] == error.message
    encoded = json.loads(OPENAI.encode_error(error))
    assert encoded["error"]["message"] == encoded["detail"] == "Cannot carry 'mcp'."


@pytest.mark.parametrize("plain_text", ["openai: slow down.", "openai:mcpx", "'my_openai:mcp'"])
def test_error_messages_keep_the_name_of_a_provider(plain_text: str):
    encoded = json.loads(OPENAI.encode_error(ErrorPayload(message=plain_text, type="model_error")))
    assert encoded["error"]["message"] == plain_text


ODD_REQUEST = {
    "tools": [*TOOLS, {"type": "function", "name": "f"}],
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    "reasoning": {"effort": "minimal"},
    "user": "u",
}


def test_the_specifications_door_matches_the_openapi_file():
    for name, frame in decode_events(SPECIFICATION, everything(**ODD_REQUEST)):
        assert frame["type"] == name
        check_event(frame)


def test_openais_sdk_reads_everything_of_its_door():
    reader: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for name, frame in decode_events(OPENAI, everything(**ODD_REQUEST)):
        assert frame["type"] == name
        assert reader.validate_json(json.dumps(frame)).type == name


@EACH_DOOR
def test_an_extension_event_is_encoded_at_both_doors(door: Dialect):
    [event] = synthesize(Extension("acme:tick", {"n": 1}))[2:3]
    assert decode_events(door, [event]) == [("acme:tick", {"type": "acme:tick", "sequence_number": 2, "n": 1})]


PLAIN = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters='"\\'), min_size=1)


@EACH_DOOR
@given(number=st.integers(0, 2**40), plain_text=PLAIN | st.just(" 100% sure, %d times "))
def test_the_text_template_encodes_any_delta(door: Dialect, number: int, plain_text: str):
    place = {"item_id": "msg_100%d", "output_index": 1, "content_index": 2}
    form = door.text_fast_path(OutputTextDelta(sequence_number=0, delta="", **place))
    event = OutputTextDelta(sequence_number=number, delta=plain_text, **place)
    assert form
    assert form % (number, plain_text.encode()) == door.encode_sse(event)


@pytest.mark.parametrize("door", [ChatDialect(), HashbrownDialect()])
def test_chat_and_hashbrown_have_no_text_template(door: Dialect):
    delta = OutputTextDelta(sequence_number=0, delta="a", item_id="msg_0", output_index=0, content_index=0)
    assert door.text_fast_path(delta) is None
