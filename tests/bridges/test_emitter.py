import pytest

from antiphon.bridges.emitter import CollectingEmitter, Emitter
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseInProgress,
)
from antiphon.protocol.items import Message, OutputText
from antiphon.protocol.response import Response

BEGUN = Response(id="resp_1", created_at=1, model="m")
OPEN = Message(id="msg_1", status="in_progress", role="assistant", content=[])
HELLO = OutputText(text="Hello, world")
DONE = Message(id="msg_1", status="completed", role="assistant", content=[HELLO])
WHOLE = Response(id="resp_1", created_at=1, completed_at=2, status="completed", model="m", output=[DONE])


def test_the_example_of_vt_code_produces_three_events():
    emitter = CollectingEmitter()
    emitter.response_created(BEGUN)
    emitter.output_text_delta("msg_1", 0, 0, "Hello")
    emitter.output_text_delta("msg_1", 0, 0, ", world")
    assert emitter.events == [
        ResponseCreated(sequence_number=0, response=BEGUN),
        OutputTextDelta(sequence_number=1, item_id="msg_1", output_index=0, content_index=0, delta="Hello"),
        OutputTextDelta(sequence_number=2, item_id="msg_1", output_index=0, content_index=0, delta=", world"),
    ]


def test_every_call_emits_its_event_with_the_next_number():
    emitter = CollectingEmitter()
    emitter.response_created(BEGUN)
    emitter.response_in_progress(BEGUN)
    emitter.output_item_added(0, OPEN)
    emitter.reasoning_delta("rs_1", 1, 2, "Hmm")
    emitter.output_item_done(0, DONE)
    emitter.response_completed(WHOLE)
    emitter.response_failed(WHOLE)
    assert emitter.events == [
        ResponseCreated(sequence_number=0, response=BEGUN),
        ResponseInProgress(sequence_number=1, response=BEGUN),
        OutputItemAdded(sequence_number=2, output_index=0, item=OPEN),
        ReasoningDelta(sequence_number=3, item_id="rs_1", output_index=1, content_index=2, delta="Hmm"),
        OutputItemDone(sequence_number=4, output_index=0, item=DONE),
        ResponseCompleted(sequence_number=5, response=WHOLE),
        ResponseFailed(sequence_number=6, response=WHOLE),
    ]


def test_a_valid_stream_can_be_built_by_hand():
    emitter = CollectingEmitter()
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}

    def emit(kind: type[Event], **fields: object) -> None:
        emitter.emit(kind(sequence_number=emitter.next_number(), **place, **fields))  # pyright: ignore

    emitter.response_created(BEGUN)
    emitter.response_in_progress(BEGUN)
    emitter.output_item_added(0, OPEN)
    emit(ContentPartAdded, part=OutputText(text=""))
    emitter.output_text_delta("msg_1", 0, 0, "Hello")
    emitter.output_text_delta("msg_1", 0, 0, ", world")
    emit(OutputTextDone, text="Hello, world")
    emit(ContentPartDone, part=HELLO)
    emitter.output_item_done(0, DONE)
    emitter.response_completed(WHOLE)
    assert find_violations(emitter.events) == []


def test_the_checker_reports_a_missing_event():
    emitter = CollectingEmitter()
    emitter.response_created(BEGUN)
    emitter.output_text_delta("msg_1", 0, 0, "Hello")
    assert find_violations(emitter.events)


def test_a_subclass_decides_where_events_go():
    class Counter(Emitter):
        """Counts what it is given."""

        seen = 0

        def emit(self, event: Event) -> None:
            self.seen += 1

    counter = Counter()
    counter.response_created(BEGUN)
    counter.response_completed(WHOLE)
    assert counter.seen == 2
    with pytest.raises(TypeError):
        Emitter()  # pyright: ignore[reportAbstractUsage]
