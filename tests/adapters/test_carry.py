"""The rules that hold for every dialect alike, whatever it carries."""

import pytest

from antiphon.adapters.base import Adapter
from antiphon.core.errors import RequestError
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


# --- content --------------------------------------------------------------------------------------

EMPTY_IMAGES = ["data:image/png;base64,", "data:image/png,"]
EMPTY_FILES = ["data:application/pdf;base64,", "data:,"]


def refusal(name: str, *pieces: dict, role: str = "user") -> RequestError:
    """Return how an adapter refuses what a message holds beside its words."""
    content = [{"type": "input_text", "text": "Look."}, *pieces]
    with pytest.raises(RequestError) as refused:
        asked(adapter(name), input=[{"role": role, "content": content}])
    return refused.value


@pytest.mark.parametrize("name", TRANSLATED)
@pytest.mark.parametrize("url", EMPTY_IMAGES)
def test_an_image_without_data_is_refused(name: str, url: str) -> None:
    error = refusal(name, {"type": "input_image", "image_url": url}).payload
    assert error.message == "This 'input_image' cannot be sent: its data is empty."
    assert error.param == "input[0].content[1]"


@pytest.mark.parametrize("name", ["openai", "azure", "anthropic", "bedrock", "google"])
@pytest.mark.parametrize("data", EMPTY_FILES)
def test_a_file_without_data_is_refused(name: str, data: str) -> None:
    error = refusal(name, {"type": "input_file", "filename": "a.pdf", "file_data": data}).payload
    assert error.message == "This 'input_file' cannot be sent: its data is empty."
    assert error.param == "input[0].content[1]"
