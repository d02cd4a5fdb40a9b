"""JSON by force: what came is checked against the client's schema, and that alone."""

import pytest

from antiphon.adapters.forced import mismatch
from tests.upstream import upstream, whole


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "{}/x.json"}}},
        {"$schema": "{}/x.json"},
        {"$id": "{}/y.json", "properties": {"a": {"$ref": "x.json"}}},
        {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
    ],
)
def test_nothing_is_fetched_for_a_schema(schema: dict[str, object]) -> None:
    with upstream(whole({"type": "string"})) as server:
        placed = at(schema, server.url)
        assert isinstance(placed, dict)
        assert mismatch('{"a": 1}', placed) is None  # what cannot be read demands nothing
        assert server.connections == 0


def at(value: object, url: str) -> object:
    """Put an address into a schema."""
    if isinstance(value, dict):
        return {name: at(inner, url) for name, inner in value.items()}
    return value.replace("{}", url) if isinstance(value, str) else value


def test_a_schema_may_refer_to_itself() -> None:
    schema: dict[str, object] = {
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "string"}},
    }
    assert mismatch('{"a": "x"}', schema) is None
    assert mismatch('{"a": 1}', schema) == 'a: 1 is not of type "string"'


def test_half_a_character_is_mended_before_it_is_checked() -> None:
    assert mismatch('{"a": "\ud800"}', {"type": "object"}) is None
    assert mismatch('{"a": "\ud800"}', {"type": "array"}) is not None
