import pytest

from antiphon.protocol.items import ExtensionItem, FunctionCallOutput
from antiphon.protocol.request import Request
from antiphon.protocol.struct import InvalidValueError, decode
from antiphon.protocol.tools import (
    CUSTOM_TOOL,
    AllowedTools,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
    Tool,
    ToolChoice,
    callable_names,
    callable_tools,
    check_custom_item,
    decode_custom_call,
    decode_custom_output,
    decode_custom_tool,
    must_call,
)

C = ExtensionTool(type=CUSTOM_TOOL, extra={"name": "c"})
F, G, H = FunctionTool(name="f"), FunctionTool(name="g"), FunctionTool(name="h")
OFFERED: list[Tool] = [F, ExtensionTool(type="acme:search"), G, H]
CHOOSE_F, CHOOSE_G = FunctionToolChoice(name="f"), FunctionToolChoice(name="g")
SEARCH = ExtensionToolChoice(type="acme:search")


@pytest.mark.parametrize(
    ("choice", "allowed", "forced"),
    [
        ("auto", [F, G, H], False),
        ("required", [F, G, H], True),
        ("none", [], False),
        (CHOOSE_G, [G], True),
        (FunctionToolChoice(name="missing"), [], True),
        (SEARCH, [], True),
        (AllowedTools(tools=[CHOOSE_G, CHOOSE_F]), [F, G], False),
        (AllowedTools(tools=[CHOOSE_G], mode="required"), [G], True),
        (AllowedTools(tools=[CHOOSE_G], mode="none"), [], False),
        (AllowedTools(tools=[SEARCH]), [], False),
    ],
)
def test_a_tool_choice_decides_what_may_and_must_be_called(
    choice: ToolChoice, allowed: list[FunctionTool], forced: bool
):
    assert callable_tools(OFFERED, choice) == allowed
    assert must_call(choice) is forced


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", {"c", "f", "g", "h"}),
        ("none", set[str]()),
        (CHOOSE_F, {"f"}),
        (ExtensionToolChoice(type=CUSTOM_TOOL, extra={"name": "c"}), {"c"}),
        (ExtensionToolChoice(type=CUSTOM_TOOL, extra={"name": "f"}), set[str]()),
        (AllowedTools(tools=[CHOOSE_F, SEARCH]), {"f"}),
    ],
)
def test_a_custom_tool_is_called_by_its_name(choice: ToolChoice, names: set[str]):
    assert callable_names([*OFFERED, C], choice) == names


CUSTOM_CALL = {"type": "openai:custom_tool_call", "call_id": "c", "name": "grep", "input": "a b"}
CUSTOM_OUTPUT = {"type": "openai:custom_tool_call_output", "call_id": "c", "output": "done"}


def test_the_items_of_a_custom_tool_are_decoded():
    tool = ExtensionTool(type=CUSTOM_TOOL, extra={"name": "grep"})
    assert decode_custom_tool(tool).name == "grep"
    call, output = (decode(ExtensionItem, item) for item in (CUSTOM_CALL, CUSTOM_OUTPUT))
    assert decode_custom_call(call).input == "a b"
    assert decode_custom_output(output) == FunctionCallOutput(call_id="c", output="done")


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (CUSTOM_CALL | {"name": ""}, "input[0].name"),
        (CUSTOM_CALL | {"input": 1}, "input[0].input"),
        (CUSTOM_OUTPUT | {"call_id": None}, "input[0].call_id"),
    ],
)
def test_an_invalid_item_of_a_custom_tool_is_rejected(item: dict[str, object], path: str):
    check_custom_item(CUSTOM_CALL, "input[0]")
    check_custom_item({"type": "message"}, "input[0]")
    with pytest.raises(InvalidValueError) as caught:
        check_custom_item(item, "input[0]")
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools[0].name"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.name"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "function": {"name": "f"}}]}},
            "tool_choice.tools[0].name",
        ),
    ],
)
def test_the_shape_of_chat_completions_has_its_own_message(body: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        decode(Request, body)
    assert caught.value.path == path
    assert caught.value.reason == (
        "this field is required; move the fields of 'function' up, beside 'type': only chat nests them"
    )
