"""The `@tool` decorator: declaration and call."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from threading import get_ident
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from antiphon.client.tools.signature import ToolContext
from antiphon.client.tools.tool import Tool, tool
from antiphon.protocol.errors import RequestError
from antiphon.protocol.tools import FunctionTool
from tests.client.tools.sample_types import INTEGER, Family, Home, Options, Person, Span, Unit, weather


def test_the_function_can_still_be_called():
    assert weather("Oslo", days=2) == "Oslo 2 CELSIUS"
    assert (weather.__name__, repr(weather)) == ("weather", "<Tool weather>")


def test_name_description_and_strict_can_be_set():
    @tool(name="get-weather", description="Ask.", strict=False)
    def function(city: str):
        """Something else."""

    assert (function.name, function.description, function.strict) == ("get-weather", "Ask.", False)


@pytest.mark.parametrize("name", ["<lambda>", "", "a b", "x" * 65])
def test_an_invalid_name_is_rejected(name: str):
    def function(): ...

    function.__name__ = name
    with pytest.raises(RequestError, match="cannot be a tool's name"):
        tool(function)


def test_strict_mode_requires_all_and_makes_optional_ones_nullable():
    assert weather.definition(strict=True) == FunctionTool(
        name="weather",
        description="Look up the weather.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": ["integer", "null"], "description": "how many days ahead"},
                "unit": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]},
            },
            "required": ["city", "days", "unit"],
            "additionalProperties": False,
            "$defs": {"Unit": {"title": "Unit", "enum": ["c", "f"]}},
        },
        strict=True,
    )


def test_without_strict_mode_the_schema_is_unchanged():
    expected = msgspec.structs.replace(weather.declaration, strict=False)
    assert weather.definition(strict=False) == expected


@pytest.mark.parametrize("wish", [True, False])
def test_a_tools_own_strict_takes_precedence(wish: bool):
    def function(a: int): ...

    made = tool(strict=wish)(function)
    assert (made.definition(True).strict, made.definition(False).strict) == (wish, wish)


def test_an_unsupported_schema_is_rejected_with_path_and_advice():
    @tool
    def count(words: dict[str, int], other: Any = None): ...

    with pytest.raises(RequestError) as caught:
        count.definition(strict=True)
    assert str(caught.value) == (
        "The tool 'count' cannot use strict mode: properties.words.additionalProperties: a strict "
        "object is closed; use an array of objects with a name and a value (and 1 more). Change "
        "the annotation, or disable strict mode: `@tool(strict=False)` for this tool or "
        "`strict_tools=False` for all of them."
    )
    assert (caught.value.payload.param, caught.value.status) == ("tools", 400)


@pytest.mark.parametrize("annotation", [Home, Options, Span, Person, Family, Unit, list[Person]])
def test_every_sample_class_can_be_strict(annotation: Any):
    def function(a): ...

    function.__annotations__ = {"a": annotation}
    made = tool(function).definition(strict=True)
    Draft202012Validator.check_schema(made.parameters or {})
    assert made.strict is True


async def call_tool(made: Tool, arguments: str = "{}") -> tuple[object, list[object]]:
    """Return a tool's result and its progress."""
    reported: list[object] = []
    context = ToolContext("call_1", made.name, reported.append)
    return await made.call(arguments, context), reported


@pytest.mark.anyio
async def test_a_sync_function_runs_in_a_thread():
    result, _ = await call_tool(tool(name="f")(get_ident_of_thread))
    assert result != get_ident()


def get_ident_of_thread() -> int:
    return get_ident()


@pytest.mark.anyio
async def test_an_async_function_runs_in_the_loop():
    @tool
    async def function(a: int) -> tuple[int, bool]:
        return a, get_ident() == loop

    loop = get_ident()
    assert await call_tool(function, '{"a": 1}') == ((1, True), [])


@pytest.mark.anyio
async def test_a_generators_last_value_is_its_result():
    @tool
    async def slow(steps: int) -> AsyncIterator[int]:
        for step in range(steps):
            yield step

    @tool
    def blocking(steps: int) -> Iterator[int]:
        yield from range(steps)

    for function in (slow, blocking):
        assert await call_tool(function, '{"steps": 3}') == (2, [0, 1, 2])
        assert await call_tool(function, '{"steps": 0}') == (None, [])


@pytest.mark.anyio
async def test_a_function_can_take_the_context():
    @tool
    def function(a: int, call: ToolContext) -> tuple[str, str, int]:
        call.progress("half")
        return call.call_id, call.name, a

    assert await call_tool(function, '{"a": 1}') == (("call_1", "function", 1), ["half"])


@pytest.mark.anyio
async def test_a_method_is_bound_to_its_instance():
    class Counter:
        def __init__(self, start: int) -> None:
            self.count = start

        @tool
        def add(self, by: int = 1) -> int:
            """Count on."""
            self.count += by
            return self.count

        @tool(name="named", strict=False)
        async def other(self) -> int:
            return self.count

    counter = Counter(5)
    assert counter.add.parameters["properties"] == {"by": {**INTEGER, "default": 1}}
    assert counter.add.description == "Count on."
    assert await call_tool(counter.add, '{"by": 2}') == (7, [])
    assert counter.add(3) == 10
    assert (counter.other.name, counter.other.strict) == ("named", False)
    assert await call_tool(counter.other) == (10, [])


@pytest.mark.anyio
async def test_partials_and_callable_objects_are_tools():
    class Adder:
        def __call__(self, a: int, b: int) -> int:
            return a + b

    assert await call_tool(tool(name="f")(Adder()), '{"a": 1, "b": 2}') == (3, [])
    add: Callable[..., int] = partial(Adder().__call__, b=2)
    made = tool(name="f")(add)
    assert made.parameters["properties"] == {"a": INTEGER, "b": {**INTEGER, "default": 2}}
    assert await call_tool(made, '{"a": 1}') == (3, [])


@pytest.mark.anyio
async def test_a_stop_iteration_becomes_a_runtime_error():
    @tool
    def function() -> object:
        return next(iter([]))

    with pytest.raises(RuntimeError, match="the tool raised StopIteration"):
        await call_tool(function)


def test_a_tool_loads_neither_pydantic_nor_jsonschema():
    program = """
import sys
from dataclasses import dataclass
from antiphon.client.tools.execute import execute_calls
from antiphon.client.tools.tool import resolve_tools, tool

@dataclass
class Home:
    street: str

@tool
def function(a: Home): ...

assert function.definition(True).strict
print([name for name in ("pydantic", "jsonschema_rs") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("[]\n", "")
