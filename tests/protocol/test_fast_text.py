"""Words that are added to a text past the parts are as if they had been parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import Event
from antiphon.protocol.parts import (
    Annotation,
    Call,
    Finish,
    Part,
    Reasoning,
    Refusal,
    Text,
    Usage,
)
from antiphon.protocol.synth import Synth
from tests.protocol.builders import CITATION, make_synth, synthesize
from tests.protocol.strategies import NONEMPTY_TEXTS, PARTS

STEPS = st.lists(PARTS | st.lists(NONEMPTY_TEXTS, min_size=1, max_size=3), max_size=12)


def feed_texts(synth: Synth, texts: list[str]) -> list[Event]:
    """Have words told past the parts if they can be, and else as parts."""
    flow = synth.text_fast_path()
    if flow is None:
        return synth.feed_all(map(Text, texts))
    first = flow.append(texts)
    return [
        replace(flow.delta_template, sequence_number=number, delta=words)
        for number, words in enumerate(texts, first)
    ]


@given(STEPS)
def test_a_stream_is_the_same_whichever_way_words_take(turns: list[Part | list[str]]):
    plain, swift = make_synth(), make_synth()
    told, told_swiftly = plain.start(), swift.start()
    for turn in turns:
        if plain.ended:
            break
        if isinstance(turn, list):
            told += plain.feed_all(map(Text, turn))
            told_swiftly += feed_texts(swift, turn)
        else:
            told += plain.feed(turn)
            told_swiftly += swift.feed(turn)
    if not plain.ended:
        told += plain.end()
        told_swiftly += swift.end()
    assert told_swiftly == told
    assert swift.response == plain.response


def test_words_are_numbered_and_folded():
    made = make_synth()
    told = made.start() + made.feed(Text("a"))
    told += feed_texts(made, ["b", "c"]) + feed_texts(made, ["d"]) + made.end()
    assert told == synthesize(*map(Text, "abcd"))


@pytest.mark.parametrize(
    "last",
    [
        Reasoning("Hm."),
        Refusal("No."),
        Call(0, "f", "{}", "call_1"),
        Text("a", key=1),
        Text("a", part=1),
        Text("\ud83c"),
    ],
)
def test_nothing_is_added_to_a_text_that_was_not_the_last_to_grow(last: Part):
    made = make_synth()
    made.start()
    made.feed(Text("a"))
    made.feed(last)
    assert made.text_fast_path() is None


def test_what_says_no_words_is_no_other_text():
    made = make_synth()
    made.start()
    made.feed_all((Text("a"), Usage(1, 2), Annotation(CITATION)))
    assert made.text_fast_path() is not None


def test_nothing_is_added_before_a_text_has_begun_or_after_the_end():
    made = make_synth()
    made.start()
    assert made.text_fast_path() is None
    made.feed(Text("a"))
    made.feed(Finish("stop"))
    made.end()
    assert made.text_fast_path() is None


def test_a_flow_is_the_same_while_its_text_grows():
    made = make_synth()
    made.start()
    made.feed(Text("a"))
    flow = made.text_fast_path()
    made.feed(Text('"'))
    assert made.text_fast_path() is flow


@pytest.mark.parametrize("part", [Text("b"), Refusal("No."), Usage(1, 2)])
def test_a_flow_ends_with_the_next_part(part: Part):
    made = make_synth()
    made.start()
    made.feed(Text("a"))
    flow = made.text_fast_path()
    assert flow
    made.feed(part)
    with pytest.raises(LocalProtocolError, match="after another event"):
        flow.append(["c"])


def test_a_flow_ends_with_the_response():
    made = make_synth()
    made.start()
    made.feed(Text("a"))
    flow = made.text_fast_path()
    assert flow
    made.end()
    with pytest.raises(LocalProtocolError, match="after another event"):
        flow.append(["b"])
