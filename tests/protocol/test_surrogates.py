from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.items import ExtensionItem, LogProb, UrlCitation
from antiphon.protocol.surrogates import SurrogateJoiner, repair_surrogates, repair_value

EMOJI = st.text(st.sampled_from("aé🎵🏳️‍🌈\ufeff\0") | st.characters(exclude_categories=["Cs"]), max_size=8)


def split_surrogates(text: str) -> str:
    """Write every character beyond the basic plane as its two surrogates."""
    units = text.encode("utf-16-le")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(chr(low | high << 8) for low, high in pairs)


def pieces(text: str, cuts: list[int]) -> list[str]:
    """Cut a text at some places."""
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def join_pieces(texts: list[str]) -> str:
    """Send texts through a joiner."""
    joiner = SurrogateJoiner()
    return "".join([joiner.feed(text) for text in texts]) + joiner.close()


@settings(deadline=None)
@given(EMOJI, st.lists(st.integers(0, 30)))
def test_any_text_split_anywhere_is_joined(text: str, cuts: list[int]):
    assert join_pieces(pieces(split_surrogates(text), cuts)) == text


@settings(deadline=None)
@given(st.lists(st.text(st.characters(), max_size=4)))
def test_any_joined_text_can_be_encoded(texts: list[str]):
    assert join_pieces(texts) == join_pieces(texts).encode().decode()


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("a\ud83c\udfb5"), max_size=4)))
def test_the_position_of_a_split_makes_no_difference(texts: list[str]):
    assert join_pieces(texts) == repair_surrogates("".join(texts))


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (["\ud83c"], "\ufffd"),
        (["\udfb5a"], "\ufffda"),
        (["a\ud83c", "b"], "a\ufffdb"),
        (["\ud83c\ud83c", "\udfb5"], "\ufffd🎵"),
        (["\udfb5\ud83c"], "\ufffd\ufffd"),
        (["\ud83c", "", "\udfb5"], "🎵"),
        (["\ufeff\ud83c"], "\ufeff\ufffd"),
    ],
)
def test_a_lone_surrogate_becomes_a_replacement_character(texts: list[str], whole: str):
    assert join_pieces(texts) == whole


def test_only_a_trailing_high_surrogate_is_held_back():
    joiner = SurrogateJoiner()
    assert (joiner.feed("ab\ud83c"), joiner.pending) == ("ab", "\ud83c")
    assert (joiner.feed("\udfb5c"), joiner.pending) == ("🎵c", "")
    assert joiner.close() == ""


HALF = "a\ud83c"
WHOLE = "a\ufffd"


def test_a_value_that_can_be_encoded_is_unchanged():
    note = UrlCitation(url="u", title="🎵", start_index=0, end_index=1)
    assert repair_value(note) is note


def test_lone_surrogates_are_replaced_anywhere_in_a_value():
    token = LogProb(token=HALF, logprob=-0.5, bytes=[97], top_logprobs=[])
    item = ExtensionItem(type="acme:call", extra={HALF: [{"deep": (HALF, 1, None)}], "tokens": 3})
    assert repair_value([token, item]) == [
        LogProb(token=WHOLE, logprob=-0.5, bytes=[97], top_logprobs=[]),
        ExtensionItem(type="acme:call", extra={WHOLE: [{"deep": [WHOLE, 1, None]}], "tokens": 3}),
    ]
    assert repair_value({"pair": "\ud83c\udfb5"}) == {"pair": "🎵"}


def test_a_value_that_cannot_be_encoded_raises():
    with pytest.raises(TypeError):
        repair_value([HALF, object()])
