"""Every rule of the book, each broken by a stream that is legal otherwise."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import ErrorPayload, RemoteProtocolError
from antiphon.core.events import Event, ExtensionEvent, decode_event
from antiphon.core.items import ExtensionItem
from antiphon.core.judge import Rulebook, check, judge
from antiphon.core.parts import (
    Annotation,
    Call,
    Extension,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Text,
    Usage,
    Whole,
)
from antiphon.core.rules import ITEM_STATUS, RULES, Violation, advance, is_success, is_terminal
from antiphon.core.value import encode
from tests.core.making import begun, jsoned, stream, synth
from tests.core.test_synth import NOTE

Json = dict[str, Any]
Stream = list[Json]
Change = Callable[[Stream], object]

LEGAL = stream(
    Reasoning("Hmm", summary="So."),
    Extension("acme:tick", {}),
    Text("Hel"),
    Text("lo"),
    Annotation(NOTE),
    Refusal("No."),
    Call(0, "f", '{"a":', "x"),
    Call(0, arguments="1}"),
    Whole(ExtensionItem(type="acme:search", extra={"query": "q"})),
    Usage(1, 2),
)
PARALLEL = stream(Call(0, "f", "{", "x"), Call(1, "f", "{", "y"))
SILENT = stream()
CUT = stream(Text("Hi"), Finish("length"))
BROKEN = stream(Text("Hi"), Failure(ErrorPayload(message="m", type="server_error")))


def raw(events: list[Event]) -> Stream:
    """Return a stream as JSON, to be spoilt."""
    return json.loads(encode(events))


def verdict(spoilt: Stream) -> list[str]:
    """Return the names of the rules that a stream breaks."""
    return [violation.rule for violation in judge([decode_event(event) for event in spoilt])]


def spoil(*changes: Change, events: list[Event] = LEGAL) -> Stream:
    """Return a legal stream with some changes, numbered anew where events came or went."""
    spoilt = raw(events)
    count = len(spoilt)
    for change in changes:
        change(spoilt)
    if len(spoilt) != count or any(change.__name__ == "move" for change in changes):
        for number, event in enumerate(spoilt):
            event["sequence_number"] = number
    return spoilt


# --- ways to spoil a stream ---


def place(spoilt: Stream, type: str, nth: int = 0) -> int:
    """Return where the nth event of a type is; -1 is the last one."""
    places = [at for at, event in enumerate(spoilt) if event["type"].endswith(type)]
    return places[nth]


def put(type: str, path: str, value: object, nth: int = 0) -> Change:
    """Put a value somewhere into an event."""
    *steps, name = path.split(".")

    def change(spoilt: Stream) -> None:
        target: Any = spoilt[place(spoilt, type, nth)]
        for step in steps:
            target = target[int(step) if step.isdigit() else step]
        target[name] = value

    return change


def drop(type: str, nth: int = 0) -> Change:
    """Take an event away."""
    return lambda spoilt: spoilt.pop(place(spoilt, type, nth))


def copy(type: str, before: str, /, *, nth: int = 0, to: int = 0, **fields: object) -> Change:
    """Say an event again, changed, before another one; before nothing is at the end."""

    def change(spoilt: Stream) -> None:
        event = spoilt[place(spoilt, type, nth)] | fields
        spoilt.insert(place(spoilt, before, to) if before else len(spoilt), event)

    return change


def shift(type: str, before: str, nth: int = 0, to: int = 0) -> Change:
    """Move an event before another one."""

    def move(spoilt: Stream) -> None:
        event = spoilt.pop(place(spoilt, type, nth))
        spoilt.insert(place(spoilt, before, to), event)

    return move


def rename(old: str, new: str) -> Change:
    """Write another word wherever one is written."""

    def change(spoilt: Stream) -> None:
        spoilt[:] = json.loads(json.dumps(spoilt).replace(f'"{old}"', f'"{new}"'))

    return change


def finally_(name: str, value: object) -> Change:
    """Put a value into the response that the stream ends with."""

    def change(spoilt: Stream) -> None:
        spoilt[-1]["response"][name] = value

    return change


def in_the_end(index: int, path: str, value: object) -> list[Change]:
    """Put a value into a finished item, both when it is done and in the final output."""
    return [
        put("output_item.done", f"item.{path}", value, nth=index),
        lambda spoilt: put("", f"response.output.{index}.{path}", value, nth=-1)(spoilt),
    ]


def never_done(spoilt: Stream) -> None:
    """Leave the last item as it was added."""
    spoilt[-1]["response"]["output"][-1]["status"] = "in_progress"
    spoilt.pop(place(spoilt, "output_item.done", -1))


WAYS: dict[str, Stream] = {
    "created-first": spoil(drop("response.created")),
    "response-order": spoil(copy("response.in_progress", "output_item.added")),
    "nothing-after-end": spoil(copy("acme:tick", "")),
    "response-status": spoil(put("response.in_progress", "response.status", "queued")),
    "response-id": spoil(put("response.in_progress", "response.id", "resp_9")),
    "sequence-increases": spoil(put("response.completed", "sequence_number", len(LEGAL) - 2)),
    "sequence-gapless": spoil(put("response.completed", "sequence_number", len(LEGAL))),
    "error-then-failed": spoil(
        copy("acme:tick", "completed", type="error", error={"type": "t", "message": "m"})
    ),
    "in-progress-first": spoil(shift("output_item.added", "response.in_progress")),
    "index-gapless": spoil(put("output_item.added", "output_index", 7, nth=-1)),
    "item-id": spoil(rename("fc_0", "msg_0")),
    "item-added": spoil(copy("output_text.delta", "completed", output_index=7)),
    "item-open": spoil(copy("output_text.delta", "completed")),
    "item-identity": spoil(*in_the_end(2, "name", "g")),
    "item-status": spoil(put("output_item.added", "item.status", "completed", nth=1)),
    "item-done": spoil(never_done),
    "done-in-order": spoil(shift("output_item.done", "response.completed"), events=PARALLEL),
    "item-content": spoil(*in_the_end(1, "content.0.text", "Other")),
    "id-stable": spoil(put("output_text.delta", "item_id", "msg_9", nth=1)),
    "part-index": spoil(put("content_part.added", "content_index", 7, nth=-1)),
    "part-kind": spoil(rename("summary_text", "reasoning_text")),
    "part-added": spoil(copy("output_text.delta", "output_text.done", content_index=7)),
    "part-order": spoil(copy("output_text.delta", "content_part.done", to=1)),
    "part-done": spoil(drop("content_part.done"), events=SILENT),
    "deltas-add-up": spoil(drop("output_text.delta")),
    "annotation-index": spoil(put("annotation.added", "annotation_index", 3)),
    "arguments-done": spoil(drop("arguments.done")),
    "no-incomplete-in-completed": spoil(*in_the_end(1, "status", "incomplete")),
    "output-matches": spoil(finally_("output", [])),
    "error-told": spoil(finally_("error", None), events=BROKEN),
    "reason-told": spoil(finally_("incomplete_details", None), events=CUT),
    "usage-adds-up": spoil(put("response.completed", "response.usage.total_tokens", 4)),
}


@pytest.mark.parametrize("events", [LEGAL, PARALLEL, SILENT, CUT, BROKEN])
def test_a_legal_stream_breaks_no_rule(events: list[Event]):
    assert judge(events) == []
    check(events)


def test_every_rule_is_tried():
    assert {*WAYS, "event-type"} == set(RULES)


@pytest.mark.parametrize("rule", WAYS)
def test_each_rule_can_be_broken_alone(rule: str):
    assert verdict(WAYS[rule]) == [rule]


def test_an_event_that_is_neither_known_nor_an_extensions_is_told():
    # such an event cannot be read from JSON, only be made
    book = Rulebook()
    made = synth()
    for event in [*made.start(), *made.feed(Extension("acme:tick", {}))]:
        book.feed(event)
    odd = ExtensionEvent(type="tick", sequence_number=3)
    assert book.feed(odd) == [Violation("event-type", "'tick' is neither.", 3)]


# --- mistakes that other servers make ---

PAINS: dict[str, tuple[Stream, set[str]]] = {
    "one index for several items": (
        spoil(put("output_item.added", "output_index", 0, nth=1)),
        {"index-gapless"},
    ),
    "events of two items under one index": (
        spoil(
            *[put("output_text.delta", "output_index", 0, nth=n) for n in (0, 1)],
        ),
        {"item-open", "deltas-add-up"},
    ),
    "an item that was never opened": (
        spoil(drop("output_item.added", nth=-1)),
        {"item-added", "output-matches"},
    ),
    "an item that was never closed": (
        spoil(drop("output_item.done", nth=-1)),
        {"item-done", "output-matches"},
    ),
    "another reasoning id in every delta": (
        spoil(put("reasoning.delta", "item_id", "rs_7")),
        {"id-stable"},
    ),
    "an item done with another id than it was added with": (
        spoil(put("output_item.done", "item.id", "msg_7", nth=1)),
        {"item-identity", "output-matches"},
    ),
    "two identities, one in the stream and one in the final response": (
        spoil(put("response.completed", "response.output.1.id", "msg_7")),
        {"output-matches"},
    ),
    "another response id in created and completed": (
        spoil(put("response.completed", "response.id", "resp_7")),
        {"response-id"},
    ),
    "an empty output at the end": (spoil(finally_("output", [])), {"output-matches"}),
    "a refusal that is lost at the end": (
        spoil(lambda spoilt: spoilt[-1]["response"]["output"][1]["content"].pop()),
        {"output-matches"},
    ),
    "a call done before the message that came first": (
        spoil(shift("output_item.done", "response.completed", nth=1)),
        {"done-in-order"},
    ),
    "an output in another order than the stream": (
        spoil(lambda spoilt: spoilt[-1]["response"]["output"].reverse()),
        {"output-matches"},
    ),
    "a reasoning item that is missing at the end": (
        spoil(lambda spoilt: spoilt[-1]["response"]["output"].pop(0)),
        {"output-matches"},
    ),
    "a text that is never done": (
        spoil(drop("output_text.done")),
        {"part-order", "part-done", "item-content"},
    ),
    "deltas before the item is added": (
        spoil(shift("output_text.delta", "output_item.added", to=1)),
        {"item-added", "deltas-add-up"},
    ),
    "deltas before the part is added": (
        spoil(shift("output_text.delta", "content_part.added", to=1)),
        {"part-added", "deltas-add-up"},
    ),
    "a part done before its text": (
        spoil(shift("content_part.done", "output_text.done", nth=1)),
        {"part-order", "part-done", "item-content"},
    ),
    "an index that starts at one": (
        spoil(*[put("output_item.added", "output_index", n + 1, nth=n) for n in range(4)]),
        {"index-gapless"},
    ),
    "a truncated answer that is called completed": (
        spoil(
            put("response.incomplete", "type", "response.completed"),
            finally_("status", "completed"),
            finally_("incomplete_details", None),
            events=CUT,
        ),
        {"no-incomplete-in-completed"},
    ),
    "a failure that is called completed": (
        spoil(
            put("response.failed", "type", "response.completed"),
            finally_("status", "completed"),
            events=BROKEN,
        ),
        {"no-incomplete-in-completed", "error-told"},
    ),
    "a stream that just stops": (spoil(drop("response.completed")), {"response-order"}),
    "two endings": (spoil(copy("response.completed", "")), {"nothing-after-end"}),
    "numbers that repeat": (
        spoil(put("output_text.delta", "sequence_number", 3)),
        {"sequence-increases", "sequence-gapless"},
    ),
    "numbers that start at one": (
        [event | {"sequence_number": event["sequence_number"] + 1} for event in raw(LEGAL)],
        {"sequence-gapless"},
    ),
    "arguments that go on after they were done": (
        spoil(copy("arguments.delta", "output_item.done", to=2)),
        {"arguments-done"},
    ),
    "arguments of a message": (
        spoil(
            copy("arguments.delta", "output_text.done", item_id="msg_0", output_index=1, delta="{")
        ),
        {"part-kind"},
    ),
    "refusal deltas in a text": (
        spoil(copy("refusal.delta", "output_text.done", content_index=0)),
        {"part-kind"},
    ),
    "a call whose arguments are not what was streamed": (
        spoil(put("arguments.done", "arguments", "{}")),
        {"deltas-add-up", "item-content"},
    ),
    "an item that is added as done": (
        spoil(put("output_item.added", "item.status", "completed", nth=1)),
        {"item-status"},
    ),
    "an item that is done as in progress": (
        spoil(*in_the_end(1, "status", "in_progress")),
        {"item-status"},
    ),
    "an item without an id": (spoil(rename("fc_0", "")), {"item-id"}),
}


@pytest.mark.parametrize("pain", PAINS)
def test_what_hurts_elsewhere_is_rejected_here(pain: str):
    spoilt, rules = PAINS[pain]
    assert set(verdict(spoilt)) == rules
    with pytest.raises(RemoteProtocolError):
        check([decode_event(event) for event in spoilt])


def test_a_failure_may_be_announced_by_an_error():
    announced = spoil(
        lambda spoilt: spoilt.insert(
            -1, {"type": "error", "sequence_number": 0, "error": {"type": "t", "message": "m"}}
        ),
        events=BROKEN,
    )
    assert verdict(announced) == []


def test_no_events_at_all_are_no_stream():
    assert [violation.rule for violation in judge([])] == ["response-order"]


def test_a_violation_says_where_and_what():
    assert str(Violation("item-id", "'' is missing or taken.", 3)) == (
        "event 3: An item has an id, and no two items share one. '' is missing or taken. [item-id]"
    )


def test_the_first_broken_rule_is_raised():
    events = [decode_event(event) for event in WAYS["id-stable"]]
    with pytest.raises(RemoteProtocolError, match=r"names the item's own id\. .* \[id-stable\]$"):
        check(events)


def test_a_cancelled_response_ends_as_incomplete():
    made = synth(begun(status="queued"))
    events = made.start() + made.feed(Finish("cancelled")) + made.end()
    assert judge(events) == []
    assert jsoned(events[-1].type) == "response.incomplete"


# --- the status of an item ---


@pytest.mark.parametrize(
    ("status", "terminal", "success"),
    [
        ("in_progress", False, False),
        ("completed", True, True),
        ("incomplete", True, False),
        ("failed", True, False),
    ],
)
def test_a_status_ends_an_item_or_not(status: str, terminal: bool, success: bool):
    assert (is_terminal(status), is_success(status)) == (terminal, success)


@given(st.lists(st.sampled_from(sorted(ITEM_STATUS)), min_size=1, max_size=6))
def test_an_item_leaves_in_progress_once_and_nothing_else_ever(statuses: list[str]):
    for before, after in pairwise(["in_progress", *statuses]):
        if before == "in_progress" and after != "in_progress":
            assert advance(before, after) == after
        else:
            with pytest.raises(RemoteProtocolError, match=f"cannot go from {before} to {after}"):
                advance(before, after)
