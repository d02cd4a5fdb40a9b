"""VT Code's nine conformance tests (mission rows K-T1 to K-T9), ported and made exact."""

import json
from typing import Any, cast

import pytest

from antiphon.core.content import OutputText
from antiphon.core.errors import ErrorPayload, RemoteProtocolError
from antiphon.core.items import ExtensionItem, FunctionCall, Message
from antiphon.core.parts import Call, Finish, Reasoning, Text
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.rules import advance, is_success, is_terminal
from antiphon.core.value import ShapeError, is_extension_type
from tests.core.making import LATER, NOW, ending, jsoned, stream, types
from tests.spec.oracle import check_event, check_item, check_response


def read(value: object) -> dict[str, Any]:
    """Return a value as a client reads it."""
    return cast("dict[str, Any]", jsoned(value))


def test_k_t1_a_response_object() -> None:
    new = Response.new(Request.from_message("gpt-5", "Hi"), id="resp_1", created_at=NOW)
    assert (new.object, new.model, new.status) == ("response", "gpt-5", "in_progress")
    assert new.created_at > 0
    assert (new.output, new.completed_at) == ([], None)
    whole = ending(stream(Text("Hello"), response=new))
    assert (whole.status, whole.completed_at) == ("completed", LATER)
    assert read(whole).items() >= {"object": "response", "status": "completed"}.items()
    assert [item["type"] for item in read(whole)["output"]] == ["message"]
    check_response(read(new))
    check_response(read(whole))


def test_k_t2_the_states_of_an_item() -> None:
    message = Message(
        id="msg_1", role="assistant", status="in_progress", content=[OutputText(text="Hello")]
    )
    assert not is_terminal(str(message.status))
    assert is_terminal("completed")
    assert is_success("completed")
    assert advance("in_progress", "completed") == "completed"
    for ended in ("incomplete", "failed"):
        assert is_terminal(ended)
        assert not is_success(ended)
    with pytest.raises(RemoteProtocolError):
        advance("completed", "in_progress")
    call = FunctionCall.of("shell", {"cmd": "ls"}, call_id="call_1", id="fc_1")
    assert call.status == "in_progress"
    check_item(read(message))
    check_item(read(call))


def test_k_t3_a_stream_in_its_exact_order() -> None:
    events = stream(Text("Hello"), Text(", world"))
    assert types(events) == [
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
        check_event(read(event))


def test_k_t4_a_request_object() -> None:
    request = read(Request.from_message("gpt-5", "Hi", temperature=0.7, stream=True))
    assert request["model"] == "gpt-5"
    assert request["temperature"] == 0.7
    assert request["stream"] is True
    assert request["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    ]


def test_k_t5_an_incomplete_response() -> None:
    response = read(ending(stream(Text("Hel"), Finish("length"))))
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    check_response(response)


def test_k_t6_the_names_of_extensions() -> None:
    assert is_extension_type("vtcode:file_change")
    assert is_extension_type("acme:search_result")
    assert not is_extension_type("file_change")
    change = ExtensionItem.of("vtcode", "file_change", id="item_1", path="a.py")
    assert read(change) == {
        "type": "vtcode:file_change",
        "id": "item_1",
        "status": "in_progress",
        "path": "a.py",
    }
    with pytest.raises(ShapeError):
        ExtensionItem.of("vtcode", "", id="item_1")


def test_k_t7_an_error_object() -> None:
    error = ErrorPayload.invalid_param("model", "There is no such model.")
    assert read(error.with_code("model_not_found")) == {
        "type": "invalid_request",
        "code": "model_not_found",
        "param": "model",
        "message": "There is no such model.",
    }


def test_k_t8_a_reasoning_item() -> None:
    events = stream(Reasoning("Let me think."))
    (item,) = read(ending(events))["output"]
    assert (item["type"], item["content"]) == (
        "reasoning",
        [{"type": "reasoning_text", "text": "Let me think."}],
    )
    assert "response.reasoning.done" in types(events)
    check_item(item)


def test_k_t9_a_tool_call() -> None:
    arguments = json.dumps({"path": "README.md"})
    (item,) = ending(stream(Call(name="read_file", arguments=arguments))).output
    assert isinstance(item, FunctionCall)
    assert item.name == "read_file"
    assert json.loads(item.arguments) == {"path": "README.md"}
    check_item(read(item))
