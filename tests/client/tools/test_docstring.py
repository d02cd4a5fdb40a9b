"""Docstrings of the three habits say the same."""

import pytest

from antiphon.client.tools.docstring import ParsedDocstring, parse_docstring

EXPECTED = ParsedDocstring(
    "Look up the weather.\n\nFor any city.",
    {"city": "where, in the local spelling", "days": "how many: at most ten"},
)

GOOGLE = """Look up the weather.

    For any city.

    Args:
        city (str, optional): where,
            in the local spelling
        days (dict(str, int)): how many: at most ten
        nothing:

    Returns:
        days: not a parameter
    """

NUMPY = """
    Look up the weather.

    For any city.

    Parameters
    ----------
    city : str
        where, in the local
        spelling

    days : int, optional
        how many: at most ten
    nothing

    Returns
    -------
    days : str
        not a parameter
    """

SPHINX = """Look up the weather.

    For any city.

    :param str city: where, in the
        local spelling
    :type days: int
    :param days: how many: at most ten
    :returns: days
    :raises ValueError: never
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_habit_is_read(text: str):
    assert parse_docstring(text) == EXPECTED


@pytest.mark.parametrize("text", [None, "", "   \n "])
def test_no_docstring_says_nothing(text: str | None):
    assert parse_docstring(text) == ParsedDocstring("", {})


def test_two_names_may_share_a_numpy_entry():
    text = "Add.\n\nParameters\n----------\nx, y : int\n    a summand"
    assert parse_docstring(text) == ParsedDocstring("Add.", {"x": "a summand", "y": "a summand"})


def test_a_google_section_ends_where_the_text_goes_on():
    text = "Add.\n\nArgs:\n    x: first\n\nMore words.\n    y: no parameter"
    assert parse_docstring(text) == ParsedDocstring("Add.", {"x": "first"})


def test_a_line_with_a_colon_is_no_section():
    text = "Add numbers:\n    x: one\n\nBeware: it is slow."
    assert parse_docstring(text) == ParsedDocstring(text, {})
