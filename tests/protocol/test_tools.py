import pytest

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
