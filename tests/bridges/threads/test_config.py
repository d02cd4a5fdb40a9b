from pathlib import Path

import pytest

from antiphon.bridges.threads import OpenResponsesConfig, load_config, parse_config
from antiphon.protocol.struct import InvalidValueError

DOCUMENTED = """\
[agent.open_responses]
# Enable Open Responses specification conformance layer
# Default: false (opt-in feature)
enabled = true
# Emit Open Responses events to the event sink
emit_events = true
# Include VT Code extension items (vtcode:file_change, vtcode:web_search, etc.)
include_extensions = true
# Map internal tool calls to Open Responses function_call items
map_tool_calls = true
# Include reasoning items in Open Responses output
include_reasoning = true
"""


def test_the_documented_section_is_read():
    assert parse_config(DOCUMENTED) == OpenResponsesConfig(
        enabled=True, emit_events=True, include_extensions=True, map_tool_calls=True, include_reasoning=True
    )
    assert parse_config(DOCUMENTED.replace("true", "false")) == OpenResponsesConfig(
        enabled=False, emit_events=False, include_extensions=False, map_tool_calls=False, include_reasoning=False
    )


@pytest.mark.parametrize("text", ["", "[agent]\nmodel = 'x'", "[agent.open_responses]", "[tools]\nenabled = true"])
def test_the_layer_is_off_and_leaves_nothing_out_by_default(text: str):
    config = parse_config(text)
    assert config == OpenResponsesConfig()
    assert not config.enabled
    assert config.emit_events
    assert config.include_extensions
    assert config.map_tool_calls
    assert config.include_reasoning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[agent.open_responses]\nenable = true",
            r"^agent\.open_responses\.enable: there is no such key\. Did you mean 'enabled'\? The keys are enabled, ",
        ),
        (
            "[agent.open_responses]\nenabled = 'yes'",
            r"^agent\.open_responses\.enabled: expected true or false, got 'yes'$",
        ),
        ("[agent]\nopen_responses = true", r"^agent\.open_responses: expected an object, got true$"),
        ("agent = 7", r"^agent: expected an object, got 7$"),
        ("[agent", r"^This is not TOML: "),
    ],
)
def test_a_mistake_is_reported_with_its_key(text: str, message: str):
    with pytest.raises(InvalidValueError, match=message):
        parse_config(text)


def test_a_file_is_read_and_named_in_errors(tmp_path: Path):
    file = tmp_path / "vtcode.toml"
    file.write_bytes(b"\xef\xbb\xbf[agent.open_responses]\nenabled = true\n")
    assert load_config(file) == OpenResponsesConfig(enabled=True)
    file.write_text("[agent.open_responses]\nenabled = 1\n")
    with pytest.raises(InvalidValueError, match=r"vtcode\.toml: agent\.open_responses\.enabled: expected true"):
        load_config(file)
    file.write_text("[agent")
    with pytest.raises(InvalidValueError, match=r"vtcode\.toml: This is not TOML"):
        load_config(file)
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidValueError, match=r"vtcode\.toml: This is not UTF-8\."):
        load_config(file)
