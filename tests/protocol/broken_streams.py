"""Legal streams, and streams that break exactly one rule or repeat a mistake of other servers."""

import json
from collections.abc import Callable
from typing import Any

from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event
from antiphon.protocol.items import ExtensionItem
from antiphon.protocol.parts import Annotation, Call, Extension, Failure, Finish, Reasoning, Refusal, Text, Usage, Whole
from antiphon.protocol.struct import encode
from tests.protocol.builders import CITATION, synthesize

Json = dict[str, Any]
Stream = list[Json]
Change = Callable[[Stream], object]

LEGAL = synthesize(
    Reasoning("Hmm", summary="So."),
    Extension("acme:tick", {}),
    Text("Hel"),
    Text("lo"),
    Annotation(CITATION),
    Refusal("No."),
    Call(0, "f", '{"a":', "x"),
    Call(0, arguments="1}"),
    Whole(ExtensionItem(type="acme:search", extra={"query": "q"})),
    Usage(1, 2),
)
PARALLEL_CALLS = synthesize(Call(0, "f", "{", "x"), Call(1, "f", "{", "y"))
NO_OUTPUT = synthesize()
TRUNCATED = synthesize(Text("Hi"), Finish("length"))
FAILED = synthesize(Text("Hi"), Failure(ErrorPayload(message="m", type="server_error")))


def to_raw(events: list[Event]) -> Stream:
    """Return a stream as JSON, to be events."""
    return json.loads(encode(events))


def alter(*changes: Change, events: list[Event] = LEGAL) -> Stream:
    """Return a legal stream with some changes, numbered anew where events were added or removed."""
    altered = to_raw(events)
    count = len(altered)
    for change in changes:
        change(altered)
    if len(altered) != count or any(change.__name__ == "move" for change in changes):
        for number, event in enumerate(altered):
            event["sequence_number"] = number
    return altered


def find_event(events: Stream, type: str, nth: int = 0) -> int:
    """Return where the nth event of a type is; -1 is the last one."""
    places = [at for at, event in enumerate(events) if event["type"].endswith(type)]
    return places[nth]


def set_field(type: str, path: str, value: object, nth: int = 0) -> Change:
    """Put a value somewhere into an event."""
    *steps, name = path.split(".")

    def change(events: Stream) -> None:
        target: Any = events[find_event(events, type, nth)]
        for step in steps:
            target = target[int(step) if step.isdigit() else step]
        target[name] = value

    return change


def remove_event(type: str, nth: int = 0) -> Change:
    """Take an event away."""
    return lambda events: events.pop(find_event(events, type, nth))


def insert_copy(type: str, before: str, /, *, nth: int = 0, to: int = 0, **fields: object) -> Change:
    """Say an event again, changed, before another one; before nothing is at the end."""

    def change(events: Stream) -> None:
        event = events[find_event(events, type, nth)] | fields
        events.insert(find_event(events, before, to) if before else len(events), event)

    return change


def move_event(type: str, before: str, nth: int = 0, to: int = 0) -> Change:
    """Move an event before another one."""

    def move(events: Stream) -> None:
        event = events.pop(find_event(events, type, nth))
        events.insert(find_event(events, before, to), event)

    return move


def replace_word(old: str, new: str) -> Change:
    """Write another word wherever one is written."""

    def change(events: Stream) -> None:
        events[:] = json.loads(json.dumps(events).replace(f'"{old}"', f'"{new}"'))

    return change


def set_final(name: str, value: object) -> Change:
    """Put a value into the response that the stream ends with."""

    def change(events: Stream) -> None:
        events[-1]["response"][name] = value

    return change


def set_in_item_and_output(index: int, path: str, value: object) -> list[Change]:
    """Put a value into a finished item, both when it is done and in the final output."""
    return [
        set_field("output_item.done", f"item.{path}", value, nth=index),
        lambda events: set_field("", f"response.output.{index}.{path}", value, nth=-1)(events),
    ]


def drop_last_item_done(events: Stream) -> None:
    """Leave the last item as it was added."""
    events[-1]["response"]["output"][-1]["status"] = "in_progress"
    events.pop(find_event(events, "output_item.done", -1))


RULE_BREAKS: dict[str, Stream] = {
    "created-first": alter(remove_event("response.created")),
    "response-order": alter(insert_copy("response.in_progress", "output_item.added")),
    "nothing-after-end": alter(insert_copy("acme:tick", "")),
    "response-status": alter(set_field("response.in_progress", "response.status", "queued")),
    "response-id": alter(set_field("response.in_progress", "response.id", "resp_9")),
    "sequence-increases": alter(set_field("response.completed", "sequence_number", len(LEGAL) - 2)),
    "sequence-gapless": alter(set_field("response.completed", "sequence_number", len(LEGAL))),
    "error-then-failed": alter(
        insert_copy("acme:tick", "completed", type="error", error={"type": "t", "message": "m"})
    ),
    "in-progress-first": alter(move_event("output_item.added", "response.in_progress")),
    "index-gapless": alter(set_field("output_item.added", "output_index", 7, nth=-1)),
    "item-id": alter(replace_word("fc_0", "msg_0")),
    "item-added": alter(insert_copy("output_text.delta", "completed", output_index=7)),
    "item-open": alter(insert_copy("output_text.delta", "completed")),
    "item-identity": alter(*set_in_item_and_output(2, "name", "g")),
    "item-status": alter(set_field("output_item.added", "item.status", "completed", nth=1)),
    "item-done": alter(drop_last_item_done),
    "done-in-order": alter(move_event("output_item.done", "response.completed"), events=PARALLEL_CALLS),
    "item-content": alter(*set_in_item_and_output(1, "content.0.text", "Other")),
    "id-stable": alter(set_field("output_text.delta", "item_id", "msg_9", nth=1)),
    "part-index": alter(set_field("content_part.added", "content_index", 7, nth=-1)),
    "part-kind": alter(replace_word("summary_text", "reasoning_text")),
    "part-added": alter(insert_copy("output_text.delta", "output_text.done", content_index=7)),
    "part-order": alter(insert_copy("output_text.delta", "content_part.done", to=1)),
    "part-done": alter(remove_event("content_part.done"), events=NO_OUTPUT),
    "deltas-add-up": alter(remove_event("output_text.delta")),
    "annotation-index": alter(set_field("annotation.added", "annotation_index", 3)),
    "arguments-done": alter(remove_event("arguments.done")),
    "no-incomplete-in-completed": alter(*set_in_item_and_output(1, "status", "incomplete")),
    "output-matches": alter(set_final("output", [])),
    "error-told": alter(set_final("error", None), events=FAILED),
    "reason-told": alter(set_final("incomplete_details", None), events=TRUNCATED),
    "usage-adds-up": alter(set_field("response.completed", "response.usage.total_tokens", 4)),
}

KNOWN_MISTAKES: dict[str, tuple[Stream, set[str]]] = {
    "one index for several items": (alter(set_field("output_item.added", "output_index", 0, nth=1)), {"index-gapless"}),
    "events of two items under one index": (
        alter(*[set_field("output_text.delta", "output_index", 0, nth=n) for n in (0, 1)]),
        {"item-open", "deltas-add-up"},
    ),
    "an item that was never opened": (
        alter(remove_event("output_item.added", nth=-1)),
        {"item-added", "output-matches"},
    ),
    "an item that was never closed": (alter(remove_event("output_item.done", nth=-1)), {"item-done", "output-matches"}),
    "another reasoning id in every delta": (alter(set_field("reasoning.delta", "item_id", "rs_7")), {"id-stable"}),
    "an item done with another id than it was added with": (
        alter(set_field("output_item.done", "item.id", "msg_7", nth=1)),
        {"item-identity", "output-matches"},
    ),
    "two identities, one in the stream and one in the final response": (
        alter(set_field("response.completed", "response.output.1.id", "msg_7")),
        {"output-matches"},
    ),
    "another response id in created and completed": (
        alter(set_field("response.completed", "response.id", "resp_7")),
        {"response-id"},
    ),
    "an empty output at the end": (alter(set_final("output", [])), {"output-matches"}),
    "a refusal that is lost at the end": (
        alter(lambda events: events[-1]["response"]["output"][1]["content"].pop()),
        {"output-matches"},
    ),
    "a call done before the message that came first": (
        alter(move_event("output_item.done", "response.completed", nth=1)),
        {"done-in-order"},
    ),
    "an output in another order than the stream": (
        alter(lambda events: events[-1]["response"]["output"].reverse()),
        {"output-matches"},
    ),
    "a reasoning item that is missing at the end": (
        alter(lambda events: events[-1]["response"]["output"].pop(0)),
        {"output-matches"},
    ),
    "a text that is never done": (alter(remove_event("output_text.done")), {"part-order", "part-done", "item-content"}),
    "deltas before the item is added": (
        alter(move_event("output_text.delta", "output_item.added", to=1)),
        {"item-added", "deltas-add-up"},
    ),
    "deltas before the part is added": (
        alter(move_event("output_text.delta", "content_part.added", to=1)),
        {"part-added", "deltas-add-up"},
    ),
    "a part done before its text": (
        alter(move_event("content_part.done", "output_text.done", nth=1)),
        {"part-order", "part-done", "item-content"},
    ),
    "an index that starts at one": (
        alter(*[set_field("output_item.added", "output_index", n + 1, nth=n) for n in range(4)]),
        {"index-gapless"},
    ),
    "a truncated answer that is called completed": (
        alter(
            set_field("response.incomplete", "type", "response.completed"),
            set_final("status", "completed"),
            set_final("incomplete_details", None),
            events=TRUNCATED,
        ),
        {"no-incomplete-in-completed"},
    ),
    "a failure that is called completed": (
        alter(
            set_field("response.failed", "type", "response.completed"), set_final("status", "completed"), events=FAILED
        ),
        {"no-incomplete-in-completed", "error-told"},
    ),
    "a stream that just stops": (alter(remove_event("response.completed")), {"response-order"}),
    "two endings": (alter(insert_copy("response.completed", "")), {"nothing-after-end"}),
    "numbers that repeat": (
        alter(set_field("output_text.delta", "sequence_number", 3)),
        {"sequence-increases", "sequence-gapless"},
    ),
    "numbers that start at one": (
        [event | {"sequence_number": event["sequence_number"] + 1} for event in to_raw(LEGAL)],
        {"sequence-gapless"},
    ),
    "arguments that go on after they were done": (
        alter(insert_copy("arguments.delta", "output_item.done", to=2)),
        {"arguments-done"},
    ),
    "arguments of a message": (
        alter(insert_copy("arguments.delta", "output_text.done", item_id="msg_0", output_index=1, delta="{")),
        {"part-kind"},
    ),
    "refusal deltas in a text": (
        alter(insert_copy("refusal.delta", "output_text.done", content_index=0)),
        {"part-kind"},
    ),
    "a call whose arguments are not what was streamed": (
        alter(set_field("arguments.done", "arguments", "{}")),
        {"deltas-add-up", "item-content"},
    ),
    "an item that is added as done": (
        alter(set_field("output_item.added", "item.status", "completed", nth=1)),
        {"item-status"},
    ),
    "an item that is done as in progress": (
        alter(*set_in_item_and_output(1, "status", "in_progress")),
        {"item-status"},
    ),
    "an item without an id": (alter(replace_word("fc_0", "")), {"item-id"}),
}
"""Mistakes that other servers make, each with the rules it breaks."""
