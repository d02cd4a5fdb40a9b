import pytest

from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputImage,
    InputText,
    Item,
    Message,
    OutputText,
    RefusalContent,
    user_message,
)
from antiphon.protocol.struct import InvalidValueError, decode_as
from tests.protocol.builders import to_json


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ({"path": "README.md"}, '{"path":"README.md"}'),
        ('{"path": "README.md"}', '{"path": "README.md"}'),
        ({}, "{}"),
        ([1, None], "[1,null]"),
        ("", ""),
    ],
)
def test_arguments_may_be_given_as_an_object_and_are_written_as_a_string(arguments: object, written: str):
    item = FunctionCall.of("read_file", arguments, call_id="call_1", id="fc_1")
    assert to_json(item) == {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "read_file",
        "arguments": written,
        "status": "in_progress",
    }


def test_an_extension_item_carries_its_slug_and_its_data():
    item = ExtensionItem.of("vtcode", "file_change", id="item_1", path="a.py")
    assert to_json(item) == {"type": "vtcode:file_change", "id": "item_1", "status": "in_progress", "path": "a.py"}
    assert decode_as(Item, to_json(item)) == item


def test_an_extension_item_without_data_survives_too():
    item = ExtensionItem.of("vtcode", "plan", id="item_1")
    assert decode_as(Item, to_json(item)) == item


@pytest.mark.parametrize(("slug", "name"), [("", "x"), ("vt-code", "x"), ("vtcode", "")])
def test_an_extension_item_needs_a_slug_and_a_name(slug: str, name: str):
    with pytest.raises(InvalidValueError, match=r"^type: '.*' is not of the form slug:name$"):
        ExtensionItem.of(slug, name, id="item_1")


def test_the_text_of_a_message_joins_its_parts():
    message = Message(
        role="assistant", content=[OutputText(text="Well, "), RefusalContent(refusal="no."), InputImage(image_url="u")]
    )
    assert message.text == "Well, no."
    assert user_message("Hi").text == "Hi"


def test_the_text_of_an_output_joins_its_parts():
    assert FunctionCallOutput(call_id="c", output="42").text == "42"
    parts = FunctionCallOutput(call_id="c", output=[InputText(text="4"), InputText(text="2")])
    assert parts.text == "42"


@pytest.mark.parametrize(
    ("role", "type"),
    [
        ("user", "output_text"),
        ("user", "refusal"),
        ("system", "summary_text"),
        ("developer", "reasoning_text"),
        ("assistant", "input_image"),
        ("assistant", "reasoning_text"),
    ],
)
def test_a_message_holds_only_the_parts_of_its_role(role: str, type: str):
    raw = {"type": "message", "role": role, "content": [{"type": type}]}
    with pytest.raises(InvalidValueError) as caught:
        decode_as(Item, raw, "input[3]")
    assert caught.value.path == "input[3].content[0].type"
    assert caught.value.reason.startswith(f"a message of role '{role}' cannot hold '{type}'; use ")


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_a_message_of_any_role_may_hold_an_extension_part(role: str):
    raw = {"type": "message", "role": role, "content": [{"type": "acme:chart", "data": 1}]}
    assert to_json(decode_as(Item, raw)) == raw


def test_a_call_may_have_a_name_that_no_tool_can_have():
    raw = {"type": "function_call", "call_id": "c", "name": "functions.f", "arguments": "{}"}
    assert to_json(decode_as(Item, raw)) == raw
