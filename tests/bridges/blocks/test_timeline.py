"""Functions are called per kind of event, with a scope per block; whole blocks are rebuilt."""

from collections.abc import Iterable

import pytest

from antiphon.bridges.blocks.events import (
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    Error,
    Ping,
    RefusalBlock,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.bridges.blocks.timeline import BlockCollector, CollectedBlock, StepOfBlock, Timeline, collect_blocks
from tests.bridges.blocks.runs import SCHEMES, WEATHER, block, text_delta


def dispatch(timeline: Timeline, run: Iterable[BlockEvent]) -> None:
    """Dispatch a run."""
    for event in run:
        timeline.dispatch(event)


def test_usage_pings_statuses_and_errors_reach_their_functions_in_the_order_of_registration():
    timeline, calls = Timeline(), list[tuple[str, object]]()
    timeline.on_usage(lambda _, usage: calls.append(("usage", usage)))
    timeline.on_ping(lambda _, ping: calls.append(("ping", ping)))
    timeline.on_status(lambda _, status: calls.append(("first", status)))
    timeline.on_status(lambda _, status: calls.append(("second", status)))
    timeline.on_error(lambda _, error: calls.append(("error", error)))
    started, error = Status("Started"), Error("It broke.")
    dispatch(timeline, [started, Usage(1), Ping(2), error, UnknownEvent("x", {})])
    assert calls == [("first", started), ("second", started), ("usage", Usage(1)), ("ping", Ping(2)), ("error", error)]


def test_a_function_of_usage_has_one_scope_for_the_whole_run():
    scopes: list[list[int | None]] = []

    def remember(scope: list[int | None], usage: Usage) -> None:
        scope.append(usage.input_tokens)
        scopes.append(scope)

    timeline = Timeline()
    timeline.on_usage(remember, scope=list)
    dispatch(timeline, [Usage(1), Usage(2)])
    assert scopes == [[1, 2], [1, 2]]


def test_each_block_has_a_scope_of_its_own_for_each_function():
    texts: list[str] = []

    def join(scope: list[str], event: StepOfBlock) -> None:
        if isinstance(event, BlockDelta):
            scope.append(event.text)
        elif isinstance(event, BlockStop):
            texts.append("".join(scope))

    timeline = Timeline()
    timeline.on_text_block(join, scope=list)
    timeline.on_text_block(join, scope=list)
    dispatch(timeline, [*block(0, TextBlock(), "a", "b"), *block(1, TextBlock(), "c")])
    assert texts == ["ab", "ab", "c", "c"]


@pytest.mark.parametrize("kind", [TextBlock(), ThinkingBlock(), RefusalBlock(), WEATHER])
def test_a_block_reaches_the_functions_of_its_kind_only(kind: TextBlock | ThinkingBlock | RefusalBlock | ToolUseBlock):
    seen: dict[str, list[BlockEvent]] = {"Text": [], "Thinking": [], "Refusal": [], "ToolUse": []}
    timeline = Timeline()
    timeline.on_text_block(lambda _, event: seen["Text"].append(event))
    timeline.on_thinking_block(lambda _, event: seen["Thinking"].append(event))
    timeline.on_refusal_block(lambda _, event: seen["Refusal"].append(event))
    timeline.on_tool_use_block(lambda _, event: seen["ToolUse"].append(event))
    run = block(0, kind, "a")
    dispatch(timeline, run)
    assert {name: events for name, events in seen.items() if events} == {kind.block_type: run}


def test_a_tool_result_reaches_the_functions_of_text():
    seen: list[BlockEvent] = []
    timeline = Timeline()
    timeline.on_text_block(lambda _, event: seen.append(event))
    run = block(3, ToolResultBlock("call_1"), "12 degrees")
    dispatch(timeline, run)
    assert seen == run


def test_a_delta_without_a_start_opens_its_scopes():
    assert collect_blocks([text_delta("a"), text_delta("b"), BlockStop(0, "Text", "EndTurn")]) == [
        CollectedBlock(TextBlock(), "ab", "EndTurn")
    ]


def test_a_stop_of_the_wrong_type_names_the_type_of_the_block_that_it_stops():
    seen: list[BlockEvent] = []
    timeline = Timeline()
    timeline.on_tool_use_block(lambda _, event: seen.append(event))
    dispatch(timeline, [BlockStart(1, WEATHER), BlockStop(1, "Text"), BlockStop(1, "Text")])
    assert seen == [BlockStart(1, WEATHER), BlockStop(1, "ToolUse")]


def test_the_current_block_can_be_aborted_once():
    timeline = Timeline()
    collector = BlockCollector(timeline)
    timeline.abort_current_block()
    dispatch(timeline, [*block(0, TextBlock(), "a"), BlockStart(1, WEATHER)])
    timeline.abort_current_block()
    timeline.abort_current_block("again")
    assert collector.blocks == [CollectedBlock(TextBlock(), "a"), CollectedBlock(WEATHER, "", None, "Cancelled")]


def test_an_abort_closes_the_scope_of_its_block():
    run = [text_delta("a"), BlockAbort(0, "Text", "Cancelled"), text_delta("b")]
    assert collect_blocks(run) == [
        CollectedBlock(TextBlock(), "a", None, "Cancelled"),
        CollectedBlock(TextBlock(), "b"),
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_blocks_are_rebuilt_from_the_events_of_any_provider(scheme: str):
    blocks = collect_blocks(SCHEMES[scheme])
    texts = [one.text for one in blocks if isinstance(one.block, TextBlock)]
    calls = [one.text.replace(" ", "") for one in blocks if isinstance(one.block, ToolUseBlock)]
    assert texts == ([] if scheme == "ollama" else ["I'll look it up."])
    assert calls == (['{"city":"Oslo"}', '{"city":"Rome"}'] if scheme == "gemini" else ['{"city":"Oslo"}'])
