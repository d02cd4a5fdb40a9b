"""Which item an event is about, and the opening events that are made."""

from typing import Any

from antiphon.protocol.events import (
    ContentPartAdded,
    FunctionCallArgumentsDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
)
from antiphon.protocol.fold import fold
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.items import FunctionCall, Message, OutputText
from tests.protocol.broken_streams import KNOWN_MISTAKES, LEGAL
from tests.protocol.foreign.read_stream import make_reader


def test_events_with_a_wrong_index_are_assigned_by_their_id():
    invalid, _ = KNOWN_MISTAKES["events of two items under one index"]
    reader = make_reader()
    for event in invalid[:-1]:
        reader.feed(event)
    assert reader.response is not None
    assert reader.response.output == fold(LEGAL).output


def test_a_delta_without_openings_gets_an_item_and_a_part():
    delta = {
        "type": "response.output_text.delta",
        "sequence_number": 7,
        "item_id": "msg_0",
        "output_index": 0,
        "content_index": 0,
        "delta": "Hi",
    }
    place: Any = {"sequence_number": 7, "item_id": "msg_0", "output_index": 0, "content_index": 0}
    item = Message(id="msg_0", role="assistant", content=[], status="in_progress")
    reader = make_reader()
    assert reader.feed(delta) == [
        OutputItemAdded(sequence_number=7, output_index=0, item=item),
        ContentPartAdded(**place, part=OutputText(text="")),
        OutputTextDelta(**place, delta="Hi"),
    ]
    assert reader.response is not None
    assert reader.response.output_text == "Hi"


def test_an_item_that_is_only_done_is_added_first():
    call = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "f", "arguments": "{}"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    added, _ = make_reader().feed(done)
    assert added == OutputItemAdded(
        sequence_number=0,
        output_index=0,
        item=FunctionCall(id="fc_0", call_id="c", name="f", arguments="", status="in_progress"),
    )


def item_event(type: str, item: dict[str, Any], index: int | None) -> dict[str, Any]:
    """Return an event that adds or ends an item."""
    place = {} if index is None else {"output_index": index}
    return {"type": f"response.output_item.{type}", "item": item, **place}


CALL: dict[str, Any] = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "f", "arguments": "{}"}


def test_an_item_that_is_added_again_after_it_was_done_stays_one_item():
    reader = make_reader()
    for event in (item_event("added", CALL, 0), item_event("done", CALL, 0)):
        reader.feed(event)
    reader.feed(item_event("added", CALL, 0))
    assert reader.response is not None
    assert reader.response.output == [LENIENT.read_item(CALL)]


def test_items_that_share_an_index_get_one_each():
    reader = make_reader()
    other = CALL | {"id": "fc_1", "call_id": "d"}
    for call in (CALL, other):
        reader.feed(item_event("added", call, 0))
    (done,) = reader.feed(item_event("done", other, 0))
    assert isinstance(done, OutputItemDone)
    assert (done.output_index, done.item.id) == (1, "fc_1")


def test_an_event_without_id_and_index_is_about_the_open_item_of_its_kind():
    reader = make_reader()
    reader.feed(item_event("added", CALL | {"arguments": ""}, None))
    delta = {"type": "response.function_call_arguments.delta", "delta": "{}"}
    assert reader.feed(delta) == [
        FunctionCallArgumentsDelta(sequence_number=1, item_id="fc_0", output_index=0, delta="{}")
    ]


def test_an_item_of_the_final_output_is_found_by_its_id_before_its_likeness():
    tracker = make_reader().items
    first, second = (
        tracker.locate(LENIENT.read_event(item_event("added", CALL | {"id": id}, None), 0), {})
        for id in ("fc_0", "fc_1")
    )
    output = [LENIENT.read_item(CALL | {"id": id}) for id in ("other", "fc_0")]
    assert tracker.match_output(list(output)) == [second, first]
