"""The items that thread items become, and constructors of items in progress with VT Code's defaults."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.bridges.threads.events import ErrorItem, HarnessEventItem, ThreadItem
from antiphon.protocol.items import (
    Content,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Message,
    OutputText,
    Reasoning,
    Role,
)
from antiphon.protocol.struct import JsonObject, ProtocolStruct, as_object, omit, to_builtins

SLUG = "vtcode"
FAILED_STATUSES = frozenset({"failed", "declined"})


class OutputItem:
    """Constructors of items, all of them in progress."""

    @staticmethod
    def message(id: str, role: Role, content: Sequence[Content]) -> Message:
        """Return a message."""
        return Message(id=id, status="in_progress", role=role, content=list(content))

    @staticmethod
    def reasoning(id: str) -> Reasoning:
        """Return a reasoning item without content."""
        return Reasoning(id=id, status="in_progress")

    @staticmethod
    def function_call(id: str, name: str, arguments: object, call_id: str | None = None) -> FunctionCall:
        """Return a function call; arguments may be any JSON value, and the call_id is the id if none is given."""
        return FunctionCall.of(name, arguments, call_id=call_id or id, id=id)

    @staticmethod
    def function_call_output(id: str, call_id: str, output: str) -> FunctionCallOutput:
        """Return the output of a function call."""
        return FunctionCallOutput(id=id, status="in_progress", call_id=call_id, output=output)

    @staticmethod
    def vtcode(id: str, name: str, data: JsonObject) -> ExtensionItem:
        """Return an extension item of the type `vtcode:name`."""
        return ExtensionItem.of(SLUG, name, id=id, data=data)


def empty_message() -> Message:
    """Return the message that a text of the agent is streamed into; the synthesizer gives it an id."""
    return OutputItem.message("", "assistant", [OutputText(text="")])


def extension_name(type: str) -> str:
    """Return the name after the slug for the type of a thread item or event, such as `thread_completed`."""
    return re.sub(r"\W", "_", type, flags=re.ASCII) or "item"


def extension_data(struct: ProtocolStruct) -> JsonObject:
    """Return the fields of a thread item or event that its extension carries."""
    return omit(as_object(to_builtins(struct)), {"type", "id"})


def convert_extension(item: ThreadItem, *, complete: bool) -> ExtensionItem:
    """Return the extension item of a thread item that has no type of the specification."""
    name = "harness_event" if isinstance(item, HarnessEventItem) else extension_name(item.type)
    data = extension_data(item)
    converted = OutputItem.vtcode(item.id, name, data)
    if not complete:
        return converted
    failed = isinstance(item, ErrorItem) or data.get("status") in FAILED_STATUSES
    return replace(converted, status="failed" if failed else "completed")
