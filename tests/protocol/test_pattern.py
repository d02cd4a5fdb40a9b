"""What is written for an expression matches it, and no expression takes long."""

import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.pattern import MAX_LENGTH, matching


def first(pattern: str, min_length: int = 0) -> str | None:
    return next(matching(pattern, min_length), None)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", ""),
        ("abc", "abc"),
        ("^$", ""),
        (r"^[A-Z]{3}-\d+$", "AAA-0"),
        (r"^\+?[1-9]\d{1,14}$", "10"),
        ("^#([0-9a-f]{6}|[0-9a-f]{3})$", "#aaaaaa"),
        (r"^(?:\d{4})-(?<month>\d{2})-(?P<day>\d{2})$", "0000-00-00"),
        ("^yes$|^no$", "yes"),
        (r"^[^@]+@[^@]+\.[a-z]{2,}$", "a@a.aa"),
        (r"^\/[\w.-]*?\x41$", "/A"),
        ("^é[à-ü]$", "éà"),
        ("^[^a-zA-Z]$", "0"),
    ],
)
def test_the_shortest_match_is_written(pattern: str, text: str):
    assert first(pattern) == text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("foo", "fooaaa"),
        ("^a+$", "aaaaaa"),
        ("^(?:ab)*c$", "abababc"),
        ("^a?b{2,9}$", "abbbbb"),
        ("^[a-z]{3}$", None),
    ],
)
def test_repetitions_are_stretched_to_a_minimum_length(pattern: str, text: str | None):
    assert first(pattern, 6) == text


def test_further_matches_differ():
    assert list(islice(matching("^a+$"), 3)) == ["a", "aa", "aaa"]
    assert list(matching("^a{1,2}$")) == ["a", "aa"]
    assert list(matching("^(a|b)$")) == ["a"]


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)a", "(?!a)", "(?<=a)b", "(?i)a", r"(a)\1", r"\bword\b", "a^b", "a$b", "(^a$)", "a**",
        "(a", "a)", "[a", "a{2,1}", "x{,3}", r"\p{L}", "[a&&b]", "[[:alpha:]]", "[]a]", "\\",
        "a" * 600, "(" * 40 + ")" * 40, "a{99999}", "((a{999}){999}){999}",
    ],
)  # fmt: skip
def test_what_cannot_be_read_matches_nothing(pattern: str):
    assert list(matching(pattern)) == []


def test_a_minimum_past_every_limit_matches_nothing():
    assert list(matching("a", MAX_LENGTH + 1)) == []


def test_an_expression_made_to_exhaust_is_as_quick_as_any():
    assert first("^((((((a*)*)*)*)*)*)*$", 30) is not None
    assert first("^(a+)+(a+)+(a+)+!$", 30) is not None


atoms = st.sampled_from(["a", "é", r"\d", r"\w", r"\.", ".", "[a-f]", "[^x]", r"[\w-]", " ", "/"])
repeats = st.sampled_from(["", "*", "+", "?", "{2}", "{1,}", "{0,2}", "+?"])
expressions = st.recursive(
    st.builds(str.__add__, atoms, repeats),
    lambda inner: (
        st.lists(inner, max_size=4).map("".join)
        | st.builds("({}|{}){}".format, inner, inner, repeats)
        | st.builds("(?:{}){}".format, inner, repeats)
    ),
    max_leaves=8,
)


@given(expressions, st.sampled_from(["{}", "^{}", "{}$", "^{}$"]), st.integers(0, 12))
@settings(deadline=None)
def test_every_text_matches_its_expression(expression: str, anchors: str, min_length: int):
    pattern = anchors.format(expression)
    for text in islice(matching(pattern, min_length), 3):
        assert re.search(pattern, text)
        assert len(text) >= min_length


@given(expressions)
def test_every_expression_of_the_kind_is_read(expression: str):
    assert first(f"^{expression}$") is not None


@given(st.text(r"()[]{}|^$*+?.\-,:<>=!P1adwbx&", max_size=20))
@settings(deadline=None)
def test_no_expression_is_too_strange(pattern: str):
    for text in islice(matching(pattern), 2):
        assert re.search(pattern, text)
