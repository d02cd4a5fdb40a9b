"""Texts of the fast path give the same stream as the same texts fed as parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import Event
from antiphon.protocol.parts import Annotation, Call, Finish, Part, Reasoning, Refusal, Text, Usage
from antiphon.protocol.synth import Synth
from tests.protocol.builders import CITATION, make_synth, synthesize
from tests.protocol.strategies import NONEMPTY_TEXTS, PARTS

STEPS = st.lists(PARTS | st.lists(NONEMPTY_TEXTS, min_size=1, max_size=3), max_size=12)


def feed_texts(synth: Synth, texts: list[str]) -> list[Event]:
    """Feed texts through the fast path if there is one, and else as parts."""
    path = synth.text_fast_path()
    if path is None:
        return synth.feed_all(map(Text, texts))
    first = path.append(texts)
    return [
        replace(path.delta_template, sequence_number=number, delta=text) for number, text in enumerate(texts, first)
    ]


@given(STEPS)
def test_a_stream_is_the_same_with_and_without_the_fast_path(turns: list[Part | list[str]]):
    plain, fast = make_synth(), make_synth()
    events, fast_events = plain.start(), fast.start()
    for turn in turns:
        if plain.ended:
            break
        if isinstance(turn, list):
            events += plain.feed_all(map(Text, turn))
            fast_events += feed_texts(fast, turn)
        else:
            events += plain.feed(turn)
            fast_events += fast.feed(turn)
    if not plain.ended:
        events += plain.end()
        fast_events += fast.end()
    assert fast_events == events
    assert fast.response == plain.response


def test_texts_of_the_fast_path_are_numbered_and_folded():
    synth = make_synth()
    events = synth.start() + synth.feed(Text("a"))
    events += feed_texts(synth, ["b", "c"]) + feed_texts(synth, ["d"]) + synth.end()
    assert events == synthesize(*map(Text, "abcd"))


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
def test_there_is_no_fast_path_for_a_text_that_was_not_the_last_to_grow(last: Part):
    synth = make_synth()
    synth.start()
    synth.feed(Text("a"))
    synth.feed(last)
    assert synth.text_fast_path() is None


def test_parts_without_text_leave_the_fast_path_available():
    synth = make_synth()
    synth.start()
    synth.feed_all((Text("a"), Usage(1, 2), Annotation(CITATION)))
    assert synth.text_fast_path() is not None


def test_there_is_no_fast_path_before_the_first_text_or_after_the_end():
    synth = make_synth()
    synth.start()
    assert synth.text_fast_path() is None
    synth.feed(Text("a"))
    synth.feed(Finish("stop"))
    synth.end()
    assert synth.text_fast_path() is None


def test_a_text_has_one_fast_path_while_it_grows():
    synth = make_synth()
    synth.start()
    synth.feed(Text("a"))
    path = synth.text_fast_path()
    synth.feed(Text('"'))
    assert synth.text_fast_path() is path


@pytest.mark.parametrize("part", [Text("b"), Refusal("No."), Usage(1, 2)])
def test_a_fast_path_is_invalid_after_the_next_part(part: Part):
    synth = make_synth()
    synth.start()
    synth.feed(Text("a"))
    path = synth.text_fast_path()
    assert path
    synth.feed(part)
    with pytest.raises(LocalProtocolError, match="after another event"):
        path.append(["c"])


def test_a_fast_path_is_invalid_after_the_end():
    synth = make_synth()
    synth.start()
    synth.feed(Text("a"))
    path = synth.text_fast_path()
    assert path
    synth.end()
    with pytest.raises(LocalProtocolError, match="after another event"):
        path.append(["b"])
