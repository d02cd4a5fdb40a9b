"""Resolving the `tools` argument, and calling handlers."""

import asyncio
from typing import Any

import pytest

from antiphon.client.tools.signature import ToolContext
from antiphon.client.tools.tool import AnyTool, Tool, ToolError, resolve_tools, tool
from antiphon.protocol.errors import RequestError
from antiphon.protocol.tools import FunctionTool

ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Add.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"],
    },
}


def call(made: Tool, arguments: str) -> object:
    return asyncio.run(made.call(arguments, ToolContext("call_1", made.name)))


@tool
def typed(a: int) -> int:
    return a


def plain(a: int) -> int:
    """Return it."""
    return -a


def test_every_form_of_tool_is_accepted():
    chat = {"type": "function", "function": {"name": "chat", "parameters": None}}
    declared = FunctionTool(name="declared")
    tools = resolve_tools([typed, plain, ADD, chat, declared], {"add": lambda a, b=0: a + b})
    assert [t.name for t in tools] == ["typed", "plain", "add", "chat", "declared"]
    assert [t.description for t in tools] == [None, "Return it.", "Add.", None, None]
    assert [t.function is None for t in tools] == [False, False, False, True, True]
    assert call(tools[1], '{"a": 1}') == -1
    assert call(tools[2], '{"a": 1, "b": 2}') == 3


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (lambda a, b=5: (a, b), (1, 5)),
        (lambda arguments: arguments, {"a": 1}),
        (lambda arguments, /: arguments, {"a": 1}),
        (lambda a: a, 1),
        (lambda **named: named, {"a": 1}),
        (dict, {"a": 1}),
        (tool(name="other")(lambda a: a), 1),
    ],
)
def test_a_handler_gets_arguments_by_name_or_as_one_dict(handler: Any, expected: object):
    [made] = resolve_tools([ADD], {"add": handler})
    assert call(made, '{"a": 1, "b": null}') == expected


def test_a_handler_can_take_the_context():
    def by_name(a: int, context: ToolContext) -> tuple[int, str]:
        return a, context.call_id

    def in_one(arguments: dict[str, Any], context: ToolContext) -> tuple[Any, str]:
        return arguments, context.call_id

    expected = {by_name: (1, "call_1"), in_one: ({"a": 1}, "call_1")}
    for handler, result in expected.items():
        [made] = resolve_tools([ADD], {"add": handler})
        assert call(made, '{"a": 1}') == result


def test_the_arguments_of_a_handler_are_validated():
    [made] = resolve_tools([ADD], {"add": lambda a: a})
    assert made.validate('{"a": 1}') == {"a": 1}
    with pytest.raises(ToolError) as caught:
        made.validate('{"a": "one"}')
    expected = 'Tool add failed: Invalid arguments: a: "one" is not of type "integer"'
    assert str(caught.value) == expected


def test_a_tool_without_a_handler_raises_when_called():
    [made] = resolve_tools([ADD])
    with pytest.raises(ToolError, match=r"^No handler for tool: add$"):
        call(made, '{"a": 1}')
    with pytest.raises(TypeError, match="the tool 'add' has no function"):
        made(a=1)


def test_a_tool_without_parameters_has_both_forms():
    [made] = resolve_tools([{"name": "now"}])
    nothing = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert made.definition(True) == FunctionTool(name="now", parameters=nothing, strict=True)
    assert made.definition(False) == FunctionTool(name="now", strict=False)


class Counter:
    @tool
    def add(self, by: int) -> int:
        return by


@pytest.mark.parametrize(
    ("tools", "handlers", "message"),
    [
        ([ADD, ADD], {}, "Two tools are called 'add'. Give one `@tool(name=...)`."),
        ([ADD], {"sub": print}, "`tool_handlers` has 'sub', which is the name of no tool."),
        (
            [typed],
            {"typed": print},
            "`tool_handlers` has 'typed', which is the name of a tool that has a function already.",
        ),
        ([Counter.add], {}, "The tool 'add' is an unbound method. Pass the method of an instance."),
        ([5], {}, "'int' is not a tool. Pass a function or a dict."),
        ([{"type": "function"}], {}, "Invalid 'tools.name': this field is required."),
        (
            [{"type": "web_search", "name": "web"}],
            {},
            "Invalid 'tools.type': expected one of 'function', got 'web_search'.",
        ),
    ],
)
def test_invalid_tools_and_handlers_are_rejected(tools: list[AnyTool], handlers: Any, message: str):
    with pytest.raises(RequestError) as caught:
        resolve_tools(tools, handlers)
    assert str(caught.value) == message


def test_a_declared_name_is_checked():
    with pytest.raises(RequestError, match=r"tools.name|cannot be a tool's name"):
        resolve_tools([{"name": "a b"}])
    with pytest.raises(RequestError, match="'a b' cannot be a tool's name"):
        resolve_tools([FunctionTool(name="a b")])
