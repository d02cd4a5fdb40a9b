"""The rules that hold for every dialect alike, whatever it carries."""

import pytest

from antiphon.adapters.base import Adapter
from tests.adapters.everywhere import NAMES, SCRIPTS, provider
from tests.adapters.hearing import asked

TRANSLATED = [name for name in NAMES if name != "responses"]
"""The dialects that are not the protocol's own."""


def adapter(name: str) -> Adapter:
    """Make the adapter of a provider."""
    return SCRIPTS[name].ADAPTER(provider(name, "http://there"))


# --- the shape of the answer ----------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSLATED)
@pytest.mark.parametrize("schema", [{}, {"schema": None}, {"schema": {}}])
def test_a_format_of_json_without_a_schema_is_json_of_any_shape(name: str, schema: dict) -> None:
    format = {"type": "json_schema", "name": "report", **schema}
    asking = asked(adapter(name), text={"format": format})
    assert asking.body == asked(adapter(name), text={"format": {"type": "json_object"}}).body
    assert asking.warnings == []
