"""Errors of servers that reject a tool's schema."""

from typing import Any

import pytest

from antiphon.client.tools.strict_schema import explain_schema_error
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.tools import FunctionTool

LOOSE = {
    "type": "object",
    "properties": {"words": {"type": "object", "additionalProperties": {"type": "integer"}}},
    "required": ["words"],
}
CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOLS = [
    FunctionTool(name="add", parameters=CLOSED, strict=True),
    FunctionTool(name="count", parameters=LOOSE, strict=False),
]

COUNT = (
    "The server rejected the tool 'count'; strict mode rejects "
    "properties.words.additionalProperties: a strict object is closed; use an array of "
    "objects with a name and a value. Change its annotations or its schema."
)
ADD = (
    "Change its annotations, or disable strict mode: `@tool(strict=False)` for this tool or "
    "`strict_tools=False` for all of them."
)


def explain(message: str, param: str | None = None, **more: Any) -> str:
    error = UpstreamError(message, status=400, param=param, **more)
    return str(explain_schema_error(error, TOOLS))


@pytest.mark.parametrize("param", ["tools[1].parameters", "tools.1.function.parameters", "tools.1.custom.input_schema"])
def test_a_tool_is_found_by_its_index(param: str):
    assert explain("Invalid schema.", param) == f"Invalid schema. {COUNT}"


def test_a_tool_is_found_by_its_name_in_the_message():
    message = "Invalid schema for function 'count': 'additionalProperties' must be false."
    assert explain(message) == f"{message} {COUNT}"


def test_the_servers_path_is_used_if_strict_mode_finds_no_problem():
    message = "Invalid schema for function 'add': In context=('properties', 'a'), no."
    expected = f"{message} The server rejected the tool 'add' at properties.a. {ADD}"
    assert explain(message) == expected
    where = explain("Bad.", "tools[0].function.parameters.properties.b")
    assert where == f"Bad. The server rejected the tool 'add' at properties.b. {ADD}"
    assert explain("Bad.", "tools[0]") == f"Bad. The server rejected the tool 'add'. {ADD}"


def test_the_other_fields_of_the_error_are_kept():
    error = UpstreamError(
        "Bad.",
        status=422,
        type="invalid_request_error",
        code="invalid_function_parameters",
        param="tools[1].parameters",
        headers={"x-request-id": "1"},
    )
    made = explain_schema_error(error, TOOLS)
    assert (made.status, made.retryable, made.headers) == (422, False, {"x-request-id": "1"})
    assert (made.payload.type, made.payload.code, made.payload.param) == (
        "invalid_request_error",
        "invalid_function_parameters",
        "tools[1].parameters",
    )


@pytest.mark.parametrize(
    "error",
    [
        UpstreamError("Invalid schema for function 'count'.", status=500),
        UpstreamError("Bad.", status=400, param="tools[7].parameters"),
        UpstreamError("Bad.", status=400, param="input[0]"),
        UpstreamError("Invalid schema for function 'other'.", status=400),
        UpstreamError("The model 'count' does not exist.", status=400, param="model"),
    ],
)
def test_other_errors_are_unchanged(error: UpstreamError):
    assert explain_schema_error(error, TOOLS) is error
