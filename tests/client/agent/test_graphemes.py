from itertools import accumulate, pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.agent.smoothing import GraphemeSplitter, TailBuffer, grapheme_boundary

# What joins, what is joined, and what never is.
TRICKY = (
    "\r\n`~ ab1.é中あพ\u0301\u0903\u0e33\u200d\u200c\ufe0f\u1100\u1161\u11a8\uac00\u0600"
    "👩👧❤🏽🇫🇷\u0915\u0937\u094d\u09cd\ud83c\udfb5"
)
TEXT = st.text(st.sampled_from(TRICKY) | st.characters(), max_size=24)


def cut(text: str, places: list[int]) -> list[str]:
    """Split a text at some positions."""
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


def split_deltas(deltas: list[str]) -> list[str]:
    """Feed deltas and flush."""
    splitter = GraphemeSplitter()
    return [piece for delta in deltas for piece in splitter.feed(delta)] + splitter.flush()


@settings(deadline=None)
@given(TEXT, st.lists(st.integers(0, 50)))
def test_pieces_join_to_the_text_and_do_not_depend_on_the_deltas(text: str, places: list[int]):
    assert split_deltas(cut(text, places)) == split_deltas([text])
    assert "".join(split_deltas([text])) == text


@settings(deadline=None)
@given(TEXT)
def test_no_piece_ends_inside_a_grapheme(text: str):
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    assert set(accumulate(map(len, split_deltas([text])))) <= ends


@pytest.mark.parametrize(
    "grapheme",
    [
        pytest.param("👩‍👩‍👧‍👦", id="a family"),
        pytest.param("👍🏽", id="a skin tone"),
        pytest.param("❤️", id="a variation"),
        pytest.param("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", id="England"),
        pytest.param("🇫🇷", id="a flag"),
        pytest.param("🇫🇷\u0301", id="a flag with an accent"),
        pytest.param("e\u0301\u0323", id="accents"),
        pytest.param("\u1112\u1161\u11ab", id="Hangul in parts"),
        pytest.param("क्षि", id="an Indic conjunct"),
        pytest.param("\u0600क्ष", id="a conjunct with a sign before it"),
        pytest.param("ก\u0e33", id="a Thai vowel"),
        pytest.param("\r\n", id="a line end"),
        pytest.param("\ud83c\udfb5", id="the halves of a surrogate pair"),
        pytest.param("`\u0301", id="a backtick with an accent"),
    ],
)
def test_a_grapheme_in_single_characters_is_one_piece(grapheme: str):
    assert split_deltas(list(f"a{grapheme}{grapheme}b")) == ["a", grapheme, grapheme, "b"]


def test_an_odd_regional_indicator_is_a_piece():
    assert split_deltas(["🇫🇷🇩🇪🇮"]) == ["🇫🇷", "🇩🇪", "🇮"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("```py\nx", ["```py\n", "x"]),
        ("```\r\n", ["```\r\n"]),
        ('```py title="a b.py"\nx', ['```py title="a b.py"\n', "x"]),
        ("~~~~ a `b` c\n~~~~", ["~~~~ a `b` c\n", "~~~~"]),
        ("  ```py\n", [" ", " ", "```py\n"]),
        ("> ```py a\n", [">", " ", "```py a\n"]),
        ("1. ```py a\n", ["1", ".", " ", "```py a\n"]),
        ("a\n```js\n", ["a", "\n", "```js\n"]),
        ("a\r```js\r", ["a", "\r", "```js\r"]),
        ("a ```c++ d", ["a", " ", "```c++", " ", "d"]),
        ("```a b``` c", ["```a b", "```", " ", "c"]),
        ("`a` ``b``", ["`", "a", "`", " ", "``", "b", "``"]),
        ("```", ["```"]),
        ("```中", ["```中"]),
        ("a```中", ["a", "```", "中"]),
        ("```\n```\n", ["```\n", "```\n"]),
    ],
)
def test_a_fence_marker_is_one_piece(text: str, whole: list[str]):
    assert (split_deltas([text]), split_deltas(list(text))) == (whole, whole)


def test_the_last_grapheme_is_buffered():
    splitter = GraphemeSplitter()
    assert [splitter.feed("ae"), splitter.feed("\u0301"), splitter.feed(""), splitter.feed("b")] == [
        ["a"],
        [],
        [],
        ["e\u0301"],
    ]
    assert [splitter.flush(), splitter.flush()] == [["b"], []]


def test_after_a_flush_the_line_continues():
    splitter = GraphemeSplitter()
    assert splitter.feed("ab") + splitter.flush() == ["a", "b"]
    assert splitter.feed("```py x\n") + splitter.flush() == ["```py", " ", "x", "\n"]
    assert splitter.feed("```py x\n") + splitter.flush() == ["```py x\n"]


@pytest.mark.parametrize("unit", ["\u0301", "`", "🇫", "क्", "👩\u200d", "\u1100", "\u0600"])
def test_a_growing_grapheme_is_split_in_linear_time(unit: str):
    text = unit * 5_000
    read: list[int] = []

    def keep_whole(tail: str) -> list[str]:
        read.append(len(tail))
        return [tail]

    buffer = TailBuffer(keep_whole)
    assert [piece for character in text for piece in buffer.feed(character)] == []
    assert buffer.flush() == [text]
    assert sum(read) < 25 * len(text)
    assert "".join(split_deltas(list(text))) == text


def test_many_flags_are_split_in_linear_time():
    # At quadratic cost, which is the library's own, the test's time would be up.
    assert split_deltas(["🇫🇷" * 150_000]) == ["🇫🇷"] * 150_000


@settings(deadline=None)
@given(st.text(st.sampled_from("\r\n ab中\u0301\u200d\ufe0f\u1100\u1161👩👧🏽🇫🇷"), max_size=12))
def test_a_boundary_is_the_last_one_before_the_position(text: str):
    ends = [0, *(match.end() for match in regex.finditer(r"\X", text))]
    last = [max(end for end in ends if end <= at) for at in range(len(text) + 1)]
    assert [grapheme_boundary(text, at) for at in range(len(text) + 1)] == last


@pytest.mark.parametrize(
    ("text", "at", "place"),
    [
        ("ab", 1, 1),
        ("a\r\nb", 2, 1),
        ("a\r\nb", 3, 3),
        ("x\n👩‍👧 y", 4, 2),
        ("x\n👩‍👧 y", 5, 5),
        ("🇫🇷🇩🇪", 3, 2),
        ("e\u0301", 1, 0),
        ("\ud83c\udfb5", 1, 0),
        ("ab", 9, 2),
    ],
)
def test_a_boundary_never_splits_a_grapheme(text: str, at: int, place: int):
    assert grapheme_boundary(text, at) == place
