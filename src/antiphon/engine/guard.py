"""The tool choice as a hard constraint: what may not be called is never told.

Models are asked to keep to it, and mostly do. A call that is not allowed, or one too many, stops
here, with a warning in the response; so does the silence about a call that was demanded and never
made.
"""

from collections.abc import Iterable, Iterator, Sequence

from antiphon.core import parts
from antiphon.core.items import CUSTOM_CALL, ExtensionItem, FunctionCall
from antiphon.core.parts import Part
from antiphon.core.request import Request, TextFormat
from antiphon.core.tools import (
    CUSTOM,
    AllowedTools,
    ExtensionToolChoice,
    FunctionToolChoice,
    callable_names,
    may_call,
    must_call,
    name_of,
)

WATCHED = frozenset({parts.Call, parts.Whole, parts.Finish})
"""The parts that a guard looks at; all others pass."""


class Guard:
    """Lets the calls pass that one request allows."""

    def __init__(self, request: Request) -> None:
        self._names = callable_names(request.tools, request.tool_choice)
        self._named = names_tools(request)
        self._single = not request.parallel_tool_calls
        self._demanded = demands(request)
        self._barred: set[parts.Key] = set()
        self._passed: tuple[parts.Key, str] | None = None

    @classmethod
    def of(cls, request: Request) -> "Guard | None":
        """Return the guard that a request needs, if it constrains anything."""
        if request.tool_choice == "auto" and request.parallel_tool_calls:
            return None
        guard = cls(request)
        return guard if guard._named or guard._single or guard._demanded else None

    def allowed(self, heard: Sequence[Part]) -> Iterable[Part]:
        """Let parts pass, save the calls that may not."""
        return heard if WATCHED.isdisjoint(map(type, heard)) else self._checked(heard)

    def _checked(self, heard: Sequence[Part]) -> Iterator[Part]:
        for part in heard:
            match part:
                case parts.Call():
                    checked = self.check(part)
                case parts.Whole(item=ExtensionItem(type=type) as item) if type == CUSTOM_CALL:
                    checked = self._custom(part, item)
                case parts.Whole(item=FunctionCall() | ExtensionItem()):
                    self._demanded = False
                    checked = part
                case parts.Finish(reason="stop") if self._demanded:
                    yield UNCALLED
                    checked = part
                case _:
                    checked = part
            if checked is not None:
                yield checked

    def check(self, call: parts.Call) -> Part | None:
        """Return a call that may pass, a warning in its place, or nothing."""
        if not call.name:
            return None if call.key in self._barred else call
        self._demanded = False
        if self._named and call.name not in self._names:
            return self._bar(call, "tool_not_allowed", "which tool_choice does not allow")
        if self._single and self._passed and self._is_other(call, self._passed):
            return self._bar(call, "parallel_call", "beside another call, which was not wanted")
        self._barred.discard(call.key)
        self._passed = (call.key, call.call_id or (self._passed or (0, ""))[1])
        return call

    def _custom(self, whole: parts.Whole, item: ExtensionItem) -> Part | None:
        """Check the call of a custom tool, which comes whole."""
        name, call_id = str(item.get("name", "")), str(item.get("call_id", ""))
        call = parts.Call(f"{CUSTOM} {call_id}", name, call_id=call_id)
        checked = self.check(call)
        return whole if checked is call else checked

    def _is_other(self, call: parts.Call, passed: tuple[parts.Key, str]) -> bool:
        key, call_id = passed
        return call.key != key or bool(call.call_id and call_id and call.call_id != call_id)

    def _bar(self, call: parts.Call, code: str, why: str) -> Part | None:
        repeated = call.key in self._barred and not call.call_id
        self._barred.add(call.key)
        message = f"The model called '{call.name[:80]}', {why}; the call was left out."
        return None if repeated else parts.Warn(code, message, "tool_choice")


UNCALLED = parts.Warn(
    "tool_not_called",
    "The model answered without the call that tool_choice demands.",
    "tool_choice",
)


def names_tools(request: Request) -> bool:
    """Tell whether a request's choice leaves only some of the caller's tools, or none."""
    match request.tool_choice:
        case "none" | AllowedTools() | FunctionToolChoice():
            return True
        case ExtensionToolChoice(type=type):
            return type == CUSTOM
        case _:
            return False


def demands(request: Request) -> bool:
    """Tell whether a call must be heard: one that no provider makes, and runs, by itself.

    JSON may have been had by a call that is not told as one.
    """
    if not must_call(request.tool_choice) or not isinstance(request.text.format, TextFormat):
        return False
    meant = [tool for tool in request.tools if may_call(tool, request.tool_choice)]
    return bool(meant) and all(name_of(tool) is not None for tool in meant)
