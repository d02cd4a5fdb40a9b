"""The rules about features that hold for every adapter."""

import subprocess
import sys

import pytest
from msgspec.structs import fields

from antiphon.adapters.base import Adapter, Capabilities, Prompt
from antiphon.adapters.features import FEATURES
from antiphon.adapters.json_via_tool import encode_prompt
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import ExtensionItem, Item, user_message
from antiphon.protocol.request import Request
from tests.adapters.provider_servers import NAMES, SCENE_MODULES, configure_provider
from tests.adapters.run_adapter import encode_request
from tests.adapters.scenes import FORMAT, TIME, TOOL

TRANSLATED = [name for name in NAMES if name != "responses"]
"""The dialects that are not the protocol's own."""


def adapter(name: str) -> Adapter:
    """Make the adapter of a provider."""
    return SCENE_MODULES[name].ADAPTER(configure_provider(name, "http://there"))


NEW_FEATURE = """
from antiphon.adapters import features
from antiphon.protocol.request import Request

new = features.Feature("new_field", lambda request: True, lambda request: request)
features.FEATURES["new_feature"] = new
features.ALL_FEATURES = features.ALL_FEATURES | {"new_feature"}

from antiphon.adapters.base import Prompt, Provider
from antiphon.adapters.registry import BUILT_IN, make_adapter
from antiphon.protocol.items import user_message

for name in BUILT_IN:
    request = Request(model="m", input=[user_message("Hello")])
    prompt = Prompt("m", request, request.input)
    provider = Provider(name=name, adapter=name, endpoint="https://a.example", region="us-east-1")
    features.remove_unsupported(make_adapter(provider), prompt)
    print(name, [(warning.code, warning.param) for warning in prompt.warnings])
"""


def test_a_new_feature_is_a_warning_everywhere_until_an_adapter_lists_it() -> None:
    # In a process of its own: the feature has to exist before any adapter is imported.
    done = subprocess.run([sys.executable, "-c", NEW_FEATURE], capture_output=True, text=True, check=True)
    warning = [("unsupported_parameter", "new_field")]
    assert done.stdout.splitlines() == [f"{name} {warning}" for name in NAMES]


HANDLED_BY_THE_GATEWAY = set(
    """background context_management conversation include input instructions metadata model
    previous_response_id store stream stream_options truncation""".split()
)
HANDLED_WITH_TOOLS_AND_FORMAT = {"parallel_tool_calls", "text", "tool_choice", "tools"}


def test_every_field_of_a_request_has_a_feature_or_is_handled_elsewhere() -> None:
    params = {feature.param.partition(".")[0] for feature in FEATURES.values()}
    known = params | HANDLED_BY_THE_GATEWAY | HANDLED_WITH_TOOLS_AND_FORMAT | {"extra"}
    assert {field.name for field in fields(Request)} - known == set()


# --- the shape of the answer ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("schema", [{}, {"schema": None}, {"schema": {}}])
def test_a_format_of_json_without_a_schema_is_json_of_any_shape(name: str, schema: dict) -> None:
    format = {"type": "json_schema", "name": "report", **schema}
    asking = encode_request(adapter(name), text={"format": format})
    assert asking.body == encode_request(adapter(name), text={"format": {"type": "json_object"}}).body
    assert asking.warnings == []


FORCED = ("tool_choice", "toolChoice", "toolConfig': {'function", "allowed_tools", "required'}")
"""How the dialects encode a required call."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("choice", ["auto", "none"])
@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_the_answer_tool_is_offered_without_tool_choice(name: str, choice: str, tools: list[dict]) -> None:
    lacking = Capabilities(lacks=frozenset({"json_schema", "tools_with_format", "tool_choice"}))
    wish = {"text": FORMAT, "tools": tools, "tool_choice": choice}
    sent = str(encode_request(adapter(name), capabilities=lacking, **wish).body)
    assert "final_answer" in sent
    assert ("'weather'" in sent) == (bool(tools) and choice == "auto")
    assert not [word for word in FORCED if word in sent]


@pytest.mark.parametrize("name", NAMES)
def test_tools_that_are_not_allowed_are_not_sent_without_tool_choice(name: str) -> None:
    allowed = {"type": "allowed_tools", "tools": [{"type": "function", "name": "time"}]}
    lacking = Capabilities(lacks=frozenset({"tool_choice"}))
    wish = {"tools": [TOOL, TIME], "tool_choice": allowed | {"mode": "auto"}}
    sent = str(encode_request(adapter(name), capabilities=lacking, **wish).body)
    assert ("'time'" in sent, "'weather'" in sent) == (True, False)
    assert not [word for word in FORCED if word in sent]


# --- content --------------------------------------------------------------------------------------

EMPTY_IMAGES = ["data:image/png;base64,", "data:image/png,"]
EMPTY_FILES = ["data:application/pdf;base64,", "data:,"]


def find_error(name: str, *pieces: dict, role: str = "user") -> RequestError:
    """Return the error for a message with other content beside its text."""
    content = [{"type": "input_text", "text": "Look."}, *pieces]
    with pytest.raises(RequestError) as refused:
        encode_request(adapter(name), input=[{"role": role, "content": content}])
    return refused.value


@pytest.mark.parametrize("name", TRANSLATED)
@pytest.mark.parametrize("url", EMPTY_IMAGES)
def test_an_image_without_data_is_refused(name: str, url: str) -> None:
    error = find_error(name, {"type": "input_image", "image_url": url}).payload
    assert error.message == "This 'input_image' cannot be sent: its data is empty."
    assert error.param == "input[0].content[1]"


@pytest.mark.parametrize("name", ["openai", "azure", "anthropic", "bedrock", "google"])
@pytest.mark.parametrize("data", EMPTY_FILES)
def test_a_file_without_data_is_refused(name: str, data: str) -> None:
    error = find_error(name, {"type": "input_file", "filename": "a.pdf", "file_data": data}).payload
    assert error.message == "This 'input_file' cannot be sent: its data is empty."
    assert error.param == "input[0].content[1]"


@pytest.mark.parametrize("name", ["openai", "azure", "google", "responses"])
@pytest.mark.parametrize(
    "sound",
    [
        {},
        {"input_audio": None},
        {"input_audio": "UklGRg=="},
        {"input_audio": {"data": "UklGRg=="}},
        {"input_audio": {"data": "", "format": "wav"}},
    ],
)
def test_a_sound_without_data_or_format_is_refused(name: str, sound: dict) -> None:
    error = find_error(name, {"type": "input_audio", **sound}).payload
    assert error.message == ("This 'openai:input_audio' cannot be sent: it has no data or no format.")
    assert error.param == "input[0].content[1]"


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
FILE = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
FROM_SYSTEM = [
    *((name, IMAGE) for name in ["openai", "azure", "writer", "anthropic", "bedrock"]),
    *((name, FILE) for name in ["openai", "azure", "anthropic", "bedrock"]),
    *((name, SOUND) for name in ["openai", "azure"]),
]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(("name", "piece"), FROM_SYSTEM)
def test_only_text_is_accepted_in_system_messages(name: str, piece: dict, role: str) -> None:
    error = find_error(name, piece, role=role).payload
    assert "a system message holds only text; send it as the user" in error.message
    assert error.param == "input[0].content[1]"


@pytest.mark.parametrize("name", ["google", "ollama", "responses"])
def test_images_in_system_messages_are_sent_where_supported(name: str) -> None:
    shown = {"role": "system", "content": [IMAGE]}
    assert "iVBORw0KGgo=" in str(encode_request(adapter(name), input=[shown]).body)


# --- custom tools ---------------------------------------------------------------------------------

PATCH = {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+1"}
DONE = {"type": "custom_tool_call_output", "call_id": "a", "output": "done"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({}, "tools[1].name", "missing_required_parameter"),
        ({"name": None}, "tools[1].name", "invalid_value"),
        ({"name": ""}, "tools[1].name", "invalid_value"),
        ({"name": "a b"}, "tools[1].name", "invalid_value"),
    ],
)
def test_a_custom_tool_is_named_as_functions_are(name: str, fields: dict, param: str, code: str) -> None:
    with pytest.raises(RequestError) as refused:
        encode_request(adapter(name), tools=[TOOL, {"type": "custom", **fields}])
    error = refused.value.payload
    assert (error.param, error.code) == (param, code)


def invalid_item(item: dict, **fields: object) -> Item:
    """Return an item with fields that no client can send."""
    held = {name: value for name, value in item.items() if name != "type"}
    return ExtensionItem(type=f"openai:{item['type']}", extra=held | fields)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("call", "output", "param"),
    [
        (invalid_item(PATCH, call_id=""), invalid_item(DONE), "input[0].call_id"),
        (invalid_item(PATCH, name=""), invalid_item(DONE), "input[0].name"),
        (invalid_item(PATCH, input=None), invalid_item(DONE), "input[0].input"),
        (invalid_item(PATCH), invalid_item(DONE, output=None), "input[1].output"),
    ],
)
def test_an_invalid_custom_call_in_the_request_is_rejected(name: str, call: Item, output: Item, param: str) -> None:
    request = Request(model="m", input=[call, output])
    with pytest.raises(RequestError) as refused:
        encode_prompt(adapter(name), Prompt("some-model", request, request.input))
    assert refused.value.payload.param == param


def test_a_custom_call_may_have_a_long_id_and_an_empty_input() -> None:
    long = {"call_id": "x" * 100}
    made = encode_request(adapter("openai"), input=[PATCH | long | {"input": ""}, DONE | long])
    call, output = made.body["messages"]
    assert call["tool_calls"][0]["id"] == output["tool_call_id"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("call", [invalid_item(PATCH, name=""), invalid_item(PATCH, input=None)])
def test_an_invalid_custom_call_of_the_history_is_dropped_with_its_output(name: str, call: Item) -> None:
    request = Request(model="m", input=[user_message("Hi!")])
    prompt = Prompt("some-model", request, [call, invalid_item(DONE), *request.input])
    sent, _ = encode_prompt(adapter(name), prompt)
    assert "custom" not in str(sent.body)
    assert ("unsupported_item", "input") in [(w.code, w.param) for w in prompt.warnings]


@pytest.mark.parametrize("name", ["openai", "azure", "responses"])
def test_a_detail_that_a_model_lacks_is_not_sent(name: str) -> None:
    image = {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "low"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": [image]}
    call = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
    lacking = Capabilities(lacks=frozenset({"image_detail"}))
    history = [{"role": "user", "content": [image]}, call, output]
    asking = encode_request(adapter(name), capabilities=lacking, input=history)
    assert "'low'" not in str(asking.body)
    assert [warning.param for warning in asking.warnings] == ["input[0].content[0].detail", "input[2].output[0].detail"]
