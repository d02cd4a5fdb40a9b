"""VT Code's nine conformance tests (mission rows K-T1 to K-T9), ported and made exact."""

import json
from typing import Any, cast

import pytest

from antiphon.protocol.content import OutputText
from antiphon.protocol.errors import ErrorPayload, RemoteProtocolError
from antiphon.protocol.items import ExtensionItem, FunctionCall, Message
from antiphon.protocol.parts import (
    Call,
    Finish,
    Reasoning,
    Text,
)
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.rules import advance_status, is_success_status, is_terminal_status
from antiphon.protocol.struct import InvalidValueError, is_extension_type
from tests.protocol.builders import (
    LATER,
    NOW,
    event_types,
    final_response,
    synthesize,
    to_json,
)
from tests.spec.schema_checks import check_event, check_item, check_response


def to_dict(value: object) -> dict[str, Any]:
    """Return a value as a client reads it."""
    return cast("dict[str, Any]", to_json(value))


def test_k_t1_a_response_object() -> None:
    new = Response.new(Request.from_message("gpt-5", "Hi"), id="resp_1", created_at=NOW)
    assert (new.object, new.model, new.status) == ("response", "gpt-5", "in_progress")
    assert new.created_at > 0
    assert (new.output, new.completed_at) == ([], None)
    whole = final_response(synthesize(Text("Hello"), response=new))
    assert (whole.status, whole.completed_at) == ("completed", LATER)
    assert to_dict(whole).items() >= {"object": "response", "status": "completed"}.items()
    assert [item["type"] for item in to_dict(whole)["output"]] == ["message"]
    check_response(to_dict(new))
    check_response(to_dict(whole))


def test_k_t2_the_states_of_an_item() -> None:
    message = Message(
        id="msg_1", role="assistant", status="in_progress", content=[OutputText(text="Hello")]
    )
    assert not is_terminal_status(str(message.status))
    assert is_terminal_status("completed")
    assert is_success_status("completed")
    assert advance_status("in_progress", "completed") == "completed"
    for ended in ("incomplete", "failed"):
        assert is_terminal_status(ended)
        assert not is_success_status(ended)
    with pytest.raises(RemoteProtocolError):
        advance_status("completed", "in_progress")
    call = FunctionCall.of("shell", {"cmd": "ls"}, call_id="call_1", id="fc_1")
    assert call.status == "in_progress"
    check_item(to_dict(message))
    check_item(to_dict(call))


def test_k_t3_a_stream_in_its_exact_order() -> None:
    events = synthesize(Text("Hello"), Text(", world"))
    assert event_types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    for event in events:
        check_event(to_dict(event))


def test_k_t4_a_request_object() -> None:
    request = to_dict(Request.from_message("gpt-5", "Hi", temperature=0.7, stream=True))
    assert request["model"] == "gpt-5"
    assert request["temperature"] == 0.7
    assert request["stream"] is True
    assert request["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    ]


def test_k_t5_an_incomplete_response() -> None:
    response = to_dict(final_response(synthesize(Text("Hel"), Finish("length"))))
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    check_response(response)


def test_k_t6_the_names_of_extensions() -> None:
    assert is_extension_type("vtcode:file_change")
    assert is_extension_type("acme:search_result")
    assert not is_extension_type("file_change")
    change = ExtensionItem.of("vtcode", "file_change", id="item_1", path="a.py")
    assert to_dict(change) == {
        "type": "vtcode:file_change",
        "id": "item_1",
        "status": "in_progress",
        "path": "a.py",
    }
    with pytest.raises(InvalidValueError):
        ExtensionItem.of("vtcode", "", id="item_1")


def test_k_t7_an_error_object() -> None:
    error = ErrorPayload.invalid_param("model", "There is no such model.")
    assert to_dict(error.with_code("model_not_found")) == {
        "type": "invalid_request",
        "code": "model_not_found",
        "param": "model",
        "message": "There is no such model.",
    }


def test_k_t8_a_reasoning_item() -> None:
    events = synthesize(Reasoning("Let me think."))
    (item,) = to_dict(final_response(events))["output"]
    assert (item["type"], item["content"]) == (
        "reasoning",
        [{"type": "reasoning_text", "text": "Let me think."}],
    )
    assert "response.reasoning.done" in event_types(events)
    check_item(item)


def test_k_t9_a_tool_call() -> None:
    arguments = json.dumps({"path": "README.md"})
    (item,) = final_response(synthesize(Call(name="read_file", arguments=arguments))).output
    assert isinstance(item, FunctionCall)
    assert item.name == "read_file"
    assert json.loads(item.arguments) == {"path": "README.md"}
    check_item(to_dict(item))
