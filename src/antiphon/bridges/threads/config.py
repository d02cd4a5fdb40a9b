"""The section `[agent.open_responses]` of `vtcode.toml`: whether thread events become responses, and with what."""

import tomllib
from pathlib import Path

from antiphon.bridges.threads.events import (
    AgentMessageItem,
    McpToolCallItem,
    ReasoningItem,
    ThreadItem,
    ToolInvocationItem,
    ToolOutputItem,
)
from antiphon.protocol.errors import suggest_closest
from antiphon.protocol.struct import InvalidValueError, ProtocolStruct, as_object, decode, decode_as

SECTION = "agent.open_responses"


class OpenResponsesConfig(ProtocolStruct):
    """The five switches. What a switch leaves out is nowhere: not in an event, an index or the response."""

    enabled: bool = False
    """Whether there are responses at all."""
    emit_events: bool = True
    """Whether there are events, and not only the response."""
    include_extensions: bool = True
    """Whether there are `vtcode:` items and events."""
    map_tool_calls: bool = True
    """Whether there are function calls and their outputs."""
    include_reasoning: bool = True

    def includes(self, item: ThreadItem) -> bool:
        """Return whether an item becomes part of the response."""
        match item:
            case AgentMessageItem():
                return True
            case ReasoningItem():
                return self.include_reasoning
            case ToolInvocationItem() | ToolOutputItem() | McpToolCallItem():
                return self.map_tool_calls
            case _:
                return self.include_extensions


EVERYTHING = OpenResponsesConfig(enabled=True)
"""The configuration that leaves nothing out."""


def parse_config(text: str) -> OpenResponsesConfig:
    """Read the section of a TOML text, or the defaults if it has none; raises InvalidValueError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidValueError("", f"This is not TOML: {error}.") from None
    agent = as_object(decode_as(dict[str, object], tables.get("agent", {}), "agent"))
    table = agent.get("open_responses", {})
    config = decode(OpenResponsesConfig, table, SECTION)
    for name in config.extra or ():
        hint = suggest_closest(name, OpenResponsesConfig.__struct_fields__)
        known = ", ".join(name for name in OpenResponsesConfig.__struct_fields__ if name != "extra")
        raise InvalidValueError(f"{SECTION}.{name}", f"there is no such key.{hint} The keys are {known}.")
    return config


def load_config(path: Path | str) -> OpenResponsesConfig:
    """Read the section of a TOML file; raises InvalidValueError, or OSError if it cannot be read."""
    try:
        # "-sig", because Windows editors put a byte order mark first.
        return parse_config(Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidValueError(str(path), "This is not UTF-8. Save it as UTF-8.") from None
    except InvalidValueError as error:
        raise InvalidValueError(f"{path}: {error.path}".removesuffix(": "), error.reason) from None
