"""Query and path parameters."""

import pytest

from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.server.endpoints.base import Query, not_found_error, path_id
from antiphon.store.ids import new_id
from antiphon.store.pagination import PageCursor


def query(text: str) -> Query:
    """Read a query."""
    return Query({"query_string": text.encode()})


def test_arrays_are_written_with_or_without_brackets() -> None:
    assert query("a=1&a[]=2&b=3").texts("a") == ["1", "2"]
    assert query("a%5B%5D=%20x").texts("a") == [" x"]
    assert query("").texts("a") == []


def test_the_last_value_counts() -> None:
    assert query("a=1&a=2").text("a") == "2"
    assert query("").text("a") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("stream=", False),
        ("stream=false", False),
        ("stream=0", False),
        ("stream=true", True),
        ("stream=True", True),
        ("stream=1", True),
    ],
)
def test_a_flag_is_true_or_false(text: str, expected: bool) -> None:
    assert query(text).flag("stream") is expected


def test_an_invalid_boolean_is_rejected() -> None:
    with pytest.raises(RequestError) as caught:
        query("stream=yes").flag("stream")
    assert caught.value.payload == ErrorPayload(
        message="'stream' must be true or false.", type="invalid_request", param="stream", code="invalid_value"
    )


@pytest.mark.parametrize("value", ["", "x", "1.0", "1e2", " 1", "+1", "٣", "-1", "101", "9" * 30])
def test_an_invalid_integer_is_rejected(value: str) -> None:
    with pytest.raises(RequestError) as caught:
        query(f"n={value}").integer("n", 0, 100)
    assert caught.value.payload.message == "'n' must be a whole number from 0 to 100."


def test_a_number_within_its_bounds_is_read() -> None:
    assert [query(f"n={n}").integer("n", 0, 100) for n in (0, 7, 100)] == [0, 7, 100]
    assert query("").integer("n", 0, 100) is None


def test_a_cursor_has_the_defaults_of_the_protocol() -> None:
    assert query("").cursor() == PageCursor(limit=20, order="desc")
    assert query("limit=5&order=asc&after=a&before=b").cursor() == PageCursor(
        limit=5, order="asc", after="a", before="b"
    )


@pytest.mark.parametrize("prefix", ["resp", "conv", "msg", "fco"])
def test_our_ids_match_the_pattern(prefix: str) -> None:
    id = new_id(prefix)
    assert path_id({"path_params": {"id": id}}, "id", "Response") == id


@pytest.mark.parametrize("id", ["", "x", "resp_", "resp_short", "resp-" + "0" * 48, "resp_" + "0" * 65, "resp_0\n" * 8])
def test_a_malformed_id_is_not_found(id: str) -> None:
    with pytest.raises(RequestError) as caught:
        path_id({"path_params": {"id": id}}, "id", "Response")
    assert caught.value.payload == not_found_error("Response", id).payload


def test_long_unknown_ids_are_truncated_in_errors() -> None:
    error = not_found_error("Conversation", "x" * 1000)
    assert error.payload == ErrorPayload(
        message=f"Conversation '{'x' * 80}' not found.",
        type="not_found",
        param="conversation_id",
        code="conversation_not_found",
    )
    assert error.status == 404
