"""What Ollama cannot carry is refused if it changes the meaning, and warned of if it does not."""

import pytest

from antiphon.adapters.base import Capabilities
from antiphon.core import parts
from antiphon.core.errors import RequestError
from tests.adapters.hearing import asked
from tests.adapters.scripts import TOOL
from tests.adapters.test_ollama import IMAGE, OLLAMA, PIXEL, USER


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_tier": "flex"}, "service_tier"),
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"safety_identifier": "s"}, "safety_identifier"),
        ({"user": "u"}, "user"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": [{"type": "openai:web_search_call", "id": "ws_1"}, USER]}, "input[0]"),
    ],
)
def test_what_changes_no_meaning_is_left_out_with_a_warning(fields: dict, param: str):
    request = asked(OLLAMA, **fields)
    assert [warning.param for warning in request.warnings] == [param]
    assert set(request.body) == {"model", "messages", "stream", "truncate"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}}, "tool_choice"),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_image", "image_url": "https://a.example/b.png"}
                        ],
                    }
                ]
            },
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_file", "file_data": "aGk=", "filename": "a.txt"}
                        ],
                    }
                ]
            },
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_image", "image_url": "data:image/png;base64,!"}
                        ],
                    }
                ]
            },
            "input[0].content[0]",
        ),
    ],
)
def test_what_changes_the_meaning_is_refused(fields: dict, param: str):
    with pytest.raises(RequestError) as refused:
        asked(OLLAMA, **fields)
    assert refused.value.payload.param == param


def test_a_model_that_cannot_think_is_not_asked_to():
    lacking = Capabilities(lacks=frozenset({"reasoning"}))
    request = asked(OLLAMA, reasoning={"effort": "high"}, capabilities=lacking)
    assert "think" not in request.body
    assert [w.param for w in request.warnings] == ["reasoning"]


def test_the_detail_of_an_image_is_left_out_with_a_warning():
    pieces = [IMAGE | {"detail": "high"}, IMAGE]
    asking = asked(OLLAMA, input=[{"role": "user", "content": pieces}])
    assert asking.body["messages"][0]["images"] == [PIXEL, PIXEL]
    message = "Images have no 'detail' at ollama; it was not sent."
    place = "input[0].content[0].detail"
    assert asking.warnings == [parts.Warn("unsupported_parameter", message, place)]
