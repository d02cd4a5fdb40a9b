"""Any block events become a legal stream; what both formats have survives the way there and back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.bridges.blocks.events import BlockEvent
from antiphon.bridges.blocks.from_responses import EventTranslator
from antiphon.bridges.blocks.jsonl import decode_block_event, encode_block_event
from antiphon.bridges.blocks.timeline import collect_blocks
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import Event
from antiphon.protocol.fold import fold
from antiphon.wire import json
from tests.bridges.blocks.runs import EVENTS, OPTIONS, RUNS, regular_runs, translate
from tests.protocol.builders import final_response, synthesize, to_json
from tests.protocol.strategies import part_lists
from tests.spec.schema_checks import check_event

quick = settings(deadline=None, max_examples=100)
slow = settings(deadline=None, max_examples=40)


def translate_back(events: list[Event]) -> list[BlockEvent]:
    """Return the block events of a stream."""
    translator = EventTranslator()
    return [back for event in events for back in translator.feed(event)] + translator.end()


@quick
@given(RUNS, OPTIONS)
def test_any_block_events_become_a_legal_stream_that_folds_to_its_response(
    run: list[BlockEvent], options: dict[str, object]
):
    events, response = translate(run, **options)
    assert find_violations(events) == []
    assert fold(events) == final_response(events) == response


@slow
@given(RUNS, OPTIONS)
def test_any_block_events_become_events_of_the_specification(run: list[BlockEvent], options: dict[str, object]):
    for event in translate(run, **options)[0]:
        check_event(to_json(event))


@quick
@given(RUNS, st.booleans())
def test_without_deltas_of_arguments_only_the_rule_about_deltas_is_broken(run: list[BlockEvent], parts: bool):
    events, response = translate(run, argument_deltas=False, content_parts=parts)
    allowed = {"deltas-add-up"} if parts else {"deltas-add-up", "part-added", "item-content"}
    assert {violation.rule for violation in find_violations(events)} <= allowed
    assert translate(run)[1] == response


@quick
@given(regular_runs(), st.sampled_from(["raw", "summary"]))
def test_blocks_come_back_from_their_events_as_they_were(run: list[BlockEvent], thinking: str):
    events, _ = translate(run, thinking=thinking)
    assert find_violations(events) == []
    assert translate_back(events) == run


@quick
@given(RUNS)
def test_blocks_of_any_run_have_the_text_of_its_response(run: list[BlockEvent]):
    events, response = translate(run)
    blocks = collect_blocks(translate_back(events))
    assert "".join(block.text for block in blocks if block.block.block_type == "Text") == response.output_text


@quick
@given(part_lists())
def test_any_stream_becomes_block_events_that_become_a_legal_stream(parts: list):
    events, response = translate(translate_back(synthesize(*parts)))
    assert find_violations(events) == []
    assert response.output_text == final_response(synthesize(*parts)).output_text


@quick
@given(EVENTS)
def test_any_event_survives_being_written_and_read(event: BlockEvent):
    try:
        line = encode_block_event(event)
    except json.JSONError:  # half of a surrogate pair
        return
    assert decode_block_event(json.decode(line)) == event
