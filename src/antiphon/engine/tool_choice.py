"""Enforces `tool_choice` and `parallel_tool_calls` on what a model produces.

Models receive both, and mostly comply. A call that is not allowed is removed, with a warning
in the response. If a required call is missing, the response says so in a warning.
"""

from collections.abc import Iterable, Iterator, Sequence

from antiphon.protocol import parts
from antiphon.protocol.items import CUSTOM_TOOL_CALL, ExtensionItem, FunctionCall
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request, TextFormat
from antiphon.protocol.tools import (
    CUSTOM_TOOL,
    AllowedTools,
    ExtensionToolChoice,
    FunctionToolChoice,
    callable_names,
    may_call,
    must_call,
    tool_name,
)

CHECKED_PARTS = frozenset({parts.Call, parts.Whole, parts.Finish})
"""The parts that the filter looks at; all others pass."""


class ToolChoiceFilter:
    """Removes the calls that one request does not allow."""

    def __init__(self, request: Request) -> None:
        self._allowed_names = callable_names(request.tools, request.tool_choice)
        self._restricts_names = restricts_tools(request)
        self._single_call = not request.parallel_tool_calls
        self._call_required = requires_call(request)
        self._rejected_keys: set[parts.Key] = set()
        self._accepted_call: tuple[parts.Key, str] | None = None

    @classmethod
    def for_request(cls, request: Request) -> "ToolChoiceFilter | None":
        """Return the filter of a request, None if it restricts nothing."""
        if request.tool_choice == "auto" and request.parallel_tool_calls:
            return None
        new = cls(request)
        return new if new._restricts_names or new._single_call or new._call_required else None

    def filter(self, batch: Sequence[Part]) -> Iterable[Part]:
        """Return the parts without the calls that are not allowed."""
        return batch if CHECKED_PARTS.isdisjoint(map(type, batch)) else self._filter_calls(batch)

    def _filter_calls(self, batch: Sequence[Part]) -> Iterator[Part]:
        for part in batch:
            match part:
                case parts.Call():
                    checked = self.check_call(part)
                case parts.Whole(item=ExtensionItem(type=type) as item) if type == CUSTOM_TOOL_CALL:
                    checked = self._check_custom_call(part, item)
                case parts.Whole(item=FunctionCall() | ExtensionItem()):
                    self._call_required = False
                    checked = part
                case parts.Finish(reason="stop") if self._call_required:
                    yield TOOL_NOT_CALLED
                    checked = part
                case _:
                    checked = part
            if checked is not None:
                yield checked

    def check_call(self, call: parts.Call) -> Part | None:
        """Return an allowed call; instead of any other, a warning or None."""
        if not call.name:  # more arguments of a call that was checked before
            return None if call.key in self._rejected_keys else call
        self._call_required = False
        if self._restricts_names and call.name not in self._allowed_names:
            return self._reject_call(call, "tool_not_allowed", "which tool_choice does not allow")
        first = self._accepted_call
        if self._single_call and first and self._is_second_call(call, first):
            reason = "beside another call, which was not wanted"
            return self._reject_call(call, "parallel_call", reason)
        self._rejected_keys.discard(call.key)
        self._accepted_call = (call.key, call.call_id or (first or (0, ""))[1])
        return call

    def _check_custom_call(self, whole: parts.Whole, item: ExtensionItem) -> Part | None:
        """Check the call of a custom tool, which arrives in one part."""
        name, call_id = str(item.get("name", "")), str(item.get("call_id", ""))
        call = parts.Call(f"{CUSTOM_TOOL} {call_id}", name, call_id=call_id)
        checked = self.check_call(call)
        return whole if checked is call else checked

    def _is_second_call(self, call: parts.Call, accepted: tuple[parts.Key, str]) -> bool:
        # Providers may repeat the name of a call, and a new id on a known key is a new call.
        key, call_id = accepted
        return call.key != key or bool(call.call_id and call_id and call.call_id != call_id)

    def _reject_call(self, call: parts.Call, code: str, reason: str) -> Part | None:
        repeated = call.key in self._rejected_keys and not call.call_id
        self._rejected_keys.add(call.key)
        message = f"The model called '{call.name[:80]}', {reason}; the call was left out."
        return None if repeated else parts.Warn(code, message, "tool_choice")


TOOL_NOT_CALLED = parts.Warn(
    "tool_not_called",
    "The model answered without the call that tool_choice demands.",
    "tool_choice",
)


def restricts_tools(request: Request) -> bool:
    """Tell whether the tool choice allows only some of the client's tools, or none."""
    match request.tool_choice:
        case "none" | AllowedTools() | FunctionToolChoice():
            return True
        case ExtensionToolChoice(type=type):
            return type == CUSTOM_TOOL
        case _:
            return False


def requires_call(request: Request) -> bool:
    """Tell whether the response must contain a call."""
    # A JSON format may be implemented by a tool call that the response shows as text.
    if not must_call(request.tool_choice) or not isinstance(request.text.format, TextFormat):
        return False
    allowed = [tool for tool in request.tools if may_call(tool, request.tool_choice)]
    # A tool without a name is hosted: the provider may run it without showing a call.
    return bool(allowed) and all(tool_name(tool) is not None for tool in allowed)
