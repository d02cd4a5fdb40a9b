import pytest

from antiphon.bridges.threads import OutputItem
from antiphon.protocol.items import ExtensionItem, FunctionCall, FunctionCallOutput, Message, OutputText, Reasoning
from antiphon.protocol.struct import InvalidValueError, encode
from tests.protocol.builders import to_json
from tests.spec.schema_checks import check_item


def test_a_constructed_message_is_in_progress():
    message = OutputItem.message("msg_1", "assistant", [OutputText(text="Hello, world!")])
    assert message == Message(
        id="msg_1", status="in_progress", role="assistant", content=[OutputText(text="Hello, world!")]
    )
    check_item(to_json(message))


def test_a_constructed_function_call_is_in_progress_with_its_arguments_as_a_string():
    call = OutputItem.function_call("fc_1", "read_file", {"path": "/etc/passwd"})
    assert call == FunctionCall(
        id="fc_1", status="in_progress", name="read_file", arguments='{"path":"/etc/passwd"}', call_id="fc_1"
    )
    assert OutputItem.function_call("fc_1", "f", "{}", call_id="call_1").call_id == "call_1"
    check_item(to_json(call))


def test_the_other_constructed_items_are_in_progress():
    assert OutputItem.reasoning("rs_1") == Reasoning(id="rs_1", status="in_progress")
    output = OutputItem.function_call_output("fco_1", "call_1", "ok")
    assert output == FunctionCallOutput(id="fco_1", status="in_progress", call_id="call_1", output="ok")
    check_item(to_json(output))


def test_a_custom_item_has_the_slug_of_vtcode_and_its_data():
    custom = OutputItem.vtcode("custom_1", "file_change", {"path": "src/main.rs", "kind": "update"})
    assert custom == ExtensionItem(
        type="vtcode:file_change",
        id="custom_1",
        status="in_progress",
        extra={"data": {"path": "src/main.rs", "kind": "update"}},
    )
    assert encode(custom) == (
        b'{"type":"vtcode:file_change","id":"custom_1","status":"in_progress",'
        b'"data":{"path":"src/main.rs","kind":"update"}}'
    )
    with pytest.raises(InvalidValueError):
        OutputItem.vtcode("custom_1", "file-change", {})
