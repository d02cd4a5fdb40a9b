"""Request parameters: structs, JSON, and unknown names."""

import pytest

from antiphon.client.params import CompactParams, ResponseParams, build_api_request, build_body, to_json_value
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import ExtensionItem, InputText, user_message
from antiphon.protocol.request import CompactRequest, Request

ASIDE = {"extra_body", "extra_headers"}


def test_every_request_field_is_a_parameter():
    assert set(ResponseParams.__annotations__) - ASIDE == set(Request.__struct_fields__) - {"extra", "stream"}
    assert set(CompactParams.__annotations__) - ASIDE == set(CompactRequest.__struct_fields__) - {"extra"}


def test_structs_are_converted_at_any_depth():
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi!"}]}
    assert to_json_value([user_message("Hi!"), {"content": (InputText(text="Hi!"),)}]) == [
        message,
        {"content": message["content"]},
    ]


def test_openai_types_are_sent_without_a_slug():
    item = ExtensionItem(type="openai:web_search_call", id="ws_1", extra={"action": {"q": "a"}})
    other = ExtensionItem(type="acme:search", id="s_1")
    assert to_json_value([item, other]) == [
        {"type": "web_search_call", "id": "ws_1", "action": {"q": "a"}},
        {"type": "acme:search", "id": "s_1"},
    ]


def test_extra_body_is_merged_into_the_body():
    fields = {"model": "m", "extra_body": {"acme:hint": 1}, "extra_headers": {"X-Team": "a"}}
    request = build_api_request("responses", fields)
    assert request.body == {"model": "m", "acme:hint": 1}
    assert request.headers == {"x-team": "a"}


@pytest.mark.parametrize(
    ("fields", "code"), [({"stream": True}, "unsupported_parameter"), ({"wheels": 4}, "unknown_parameter")]
)
def test_an_unknown_parameter_is_rejected(fields: dict[str, object], code: str):
    with pytest.raises(RequestError) as caught:
        build_body(fields)
    assert (caught.value.payload.code, caught.value.payload.param) == (code, next(iter(fields)))
    with pytest.raises(RequestError):
        build_body({"tools": []}, CompactParams)


def test_a_misspelt_parameter_gets_a_suggestion():
    with pytest.raises(RequestError, match=r"^Unknown parameter 'temprature'\. Did you mean 'temperature'\? Pass "):
        build_body({"temprature": 1})
