"""The limits of one answer: items, parts, annotations, warnings, and the work that many calls cause."""

from collections.abc import Callable

import pytest

from antiphon.protocol import parts, synth_items
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import Message, OutputText
from antiphon.protocol.parts import Part
from antiphon.protocol.synth import MAX_WARNINGS
from tests.protocol.builders import CITATION, ERROR, LOGPROB, make_synth

ENDLESS: dict[str, Callable[[int], Part]] = {
    "calls": lambda index: parts.Call(index, "f"),
    "calls without a name": lambda index: parts.Call(index, arguments="{"),
    "messages": lambda index: parts.Text("x", index),
    "content parts": lambda index: parts.Text("x", 0, index),
    "summaries": lambda index: parts.Reasoning(summary="x", part=index),
    "annotations": lambda index: parts.Annotation(CITATION),
    "whole items": lambda index: parts.Whole(Message(role="assistant", content=[OutputText(text="x")])),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_with_too_many_pieces_fails_and_keeps_what_it_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth_items, "MAX_PIECES", 50)
    synth = make_synth()
    events = synth.start()
    with pytest.raises(UpstreamError) as caught:
        synth.feed_all(map(ENDLESS[name], range(1000)))
    assert caught.value.payload.code == "answer_too_large"
    events += synth.fail(ERROR)
    assert len(events) < 500
    assert find_violations(events) == []
    assert synth.response.status == "failed"
    assert synth.response.output or name == "calls without a name"


def test_arguments_that_wait_for_a_name_are_limited() -> None:
    synth = make_synth()
    synth.start()
    with pytest.raises(UpstreamError, match="belong to no call"):
        synth.feed_all([parts.Call(1, arguments="x" * 100_000)] * 100)


def test_warnings_are_limited_and_the_last_one_says_so() -> None:
    synth = make_synth()
    synth.start()
    synth.feed_all([parts.Warn("odd", f"Warning {index}.") for index in range(10 * MAX_WARNINGS)])
    synth.end()
    warnings = synth.response.warnings
    assert warnings
    assert len(warnings) == MAX_WARNINGS
    assert [warning.code for warning in warnings[-2:]] == ["odd", "more_warnings"]


def test_many_open_calls_are_looked_at_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    original = synth_items.ItemSynth._has_whole_arguments

    def count_and_look(self: synth_items.ItemSynth, item: synth_items.OpenItem) -> bool:
        nonlocal looks
        looks += 1
        return original(self, item)

    monkeypatch.setattr(synth_items.ItemSynth, "_has_whole_arguments", count_and_look)
    synth = make_synth()
    synth.start()
    synth.feed_all([parts.Call(index, "f", '{"a":') for index in range(1000)])
    synth.feed_all([parts.Call(index, arguments="1}") for index in range(1000)])
    synth.feed(parts.Text("x"))
    synth.end()
    assert len(synth.response.output) == 1001
    assert looks < 5000


def test_the_size_of_the_output_counts_texts_deltas_and_logprobs() -> None:
    synth = make_synth()
    synth.start()
    assert synth.measure_output() == 0
    synth.feed(parts.Text("x" * 1000))
    small = synth.measure_output()
    assert 1000 < small < 1200
    synth.feed_all([parts.Text("x")] * 1000)
    many = synth.measure_output()
    assert small + 40_000 < many < small + 100_000
    synth.feed(parts.Text("x", logprobs=[LOGPROB]))
    assert synth.measure_output() > many + 100
    synth.feed(parts.Call(1, "f", "y" * 5000))
    assert synth.measure_output() > 6000  # the message is closed, and its deltas are joined
    synth.feed(parts.Reasoning("z" * 7000))
    assert synth.measure_output() > 13_000
