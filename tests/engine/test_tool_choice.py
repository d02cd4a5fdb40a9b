"""The filter for tool_choice and parallel_tool_calls."""

import pytest

from antiphon.engine import run
from antiphon.engine.run import ToolChoiceFilter
from antiphon.protocol import parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import CUSTOM_TOOL_CALL, ExtensionItem
from antiphon.protocol.parts import Part
from antiphon.wire.openresponses import decode_request

F = {"type": "function", "name": "f"}
C = {"type": "custom", "name": "c"}
SEARCH = {"type": "web_search"}
TEXT = parts.Text("Hi")
STOP = parts.Finish("stop")
SCHEMA = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}
SEARCHED = parts.Whole(ExtensionItem(type="openai:web_search_call", status="completed"))


def calls(name: str, call_id: str = "a") -> parts.Whole:
    """Make the call of a custom tool."""
    fields: dict[str, object] = {"call_id": call_id, "name": name, "input": "+1"}
    return parts.Whole(ExtensionItem(type=CUSTOM_TOOL_CALL, status="completed", extra=fields))


def make_filter(**options: object) -> ToolChoiceFilter | None:
    """Return the guard of a request with a function and a custom tool."""
    return ToolChoiceFilter.for_request(decode_request({"model": "m", "input": "Hi", "tools": [F, C]} | options))


def filter_one_by_one(*given: Part, **options: object) -> list[Part | str]:
    """Return what passes; of warnings only their codes."""
    watching = make_filter(**options)
    assert watching
    passed = [part for one in given for part in watching.filter([one])]
    assert passed == filter_at_once(*given, **options)
    return [part.code if isinstance(part, parts.Warn) else part for part in passed]


def filter_at_once(*given: Part, **options: object) -> list[Part]:
    """Return what passes of parts that come in a row."""
    watching = make_filter(**options)
    return list(watching.filter(given)) if watching else list(given)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tools": []},
        {"tools": [SEARCH], "tool_choice": "required"},
        {"tools": [F, SEARCH], "tool_choice": "required"},
        {"tools": [SEARCH], "tool_choice": SEARCH},
        {"tool_choice": "required", "text": SCHEMA},
    ],
)
def test_a_request_without_restrictions_has_no_filter(options: dict[str, object]) -> None:
    assert make_filter(**options) is None


@pytest.mark.parametrize("choice", ["none", F, {"type": "allowed_tools", "tools": [F]}, C | {"name": "d"}])
def test_a_call_of_a_custom_tool_that_is_not_allowed_is_removed(choice: object) -> None:
    end = parts.Finish("tool_calls")
    assert filter_one_by_one(TEXT, calls("c"), end, tool_choice=choice) == [TEXT, "tool_not_allowed", end]


@pytest.mark.parametrize("choice", [C, {"type": "allowed_tools", "tools": [F, C]}, "required"])
def test_a_call_of_an_allowed_custom_tool_passes(choice: object) -> None:
    given = [TEXT, calls("c"), calls("c", "b"), STOP]
    assert filter_one_by_one(*given, tool_choice=choice) == given


def test_a_function_call_is_removed_where_a_custom_tool_is_required() -> None:
    called = parts.Call(0, "f", "{}", "a")
    assert filter_one_by_one(called, STOP, tool_choice=C) == ["tool_not_allowed", STOP]


@pytest.mark.parametrize("options", [{"tool_choice": "none"}, {"parallel_tool_calls": False}])
def test_calls_that_are_removed_are_limited_too(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_PIECES", 50)
    watching = make_filter(**options)
    assert watching
    with pytest.raises(UpstreamError) as caught:
        list(watching.filter([parts.Call(index, "f") for index in range(100)]))
    assert caught.value.payload.code == "answer_too_large"


def test_without_parallel_calls_only_the_first_call_passes() -> None:
    function, custom = parts.Call(0, "f", "{}", "a"), calls("c", "b")
    options = {"parallel_tool_calls": False}
    assert filter_one_by_one(function, custom, **options) == [function, "parallel_call"]
    assert filter_one_by_one(custom, function, **options) == [custom, "parallel_call"]
    assert filter_one_by_one(custom, calls("c", "d"), **options) == [custom, "parallel_call"]


@pytest.mark.parametrize("choice", ["required", F, C, {"type": "allowed_tools", "tools": [F], "mode": "required"}])
def test_a_missing_required_call_gives_a_warning_before_the_end(choice: object) -> None:
    assert filter_one_by_one(TEXT, STOP, tool_choice=choice) == [TEXT, "tool_not_called", STOP]


@pytest.mark.parametrize("reason", ["length", "content_filter", "cancelled"])
def test_a_truncated_answer_without_the_required_call_gives_no_warning(reason: parts.Reason) -> None:
    end = parts.Finish(reason)
    assert filter_one_by_one(TEXT, end, tool_choice="required") == [TEXT, end]


@pytest.mark.parametrize("called", [parts.Call(0, "f", "{}", "a"), calls("c"), SEARCHED])
def test_a_required_call_gives_no_warning(called: Part) -> None:
    assert filter_one_by_one(TEXT, called, STOP, tool_choice="required") == [TEXT, called, STOP]
