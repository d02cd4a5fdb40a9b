"""The tool choice as a hard constraint: what may not be called is never told.

Models are asked to keep to it, and mostly do. A call that is not allowed, or one too many, stops
here, with a warning in the response.
"""

from collections.abc import Iterable, Iterator

from antiphon.core import parts
from antiphon.core.parts import Part
from antiphon.core.request import Request
from antiphon.core.tools import AllowedTools, FunctionToolChoice, callable_tools


class Guard:
    """Lets the calls pass that one request allows."""

    def __init__(self, request: Request) -> None:
        self._names = {t.name for t in callable_tools(request.tools, request.tool_choice)}
        self._named = request.tool_choice == "none" or isinstance(
            request.tool_choice, AllowedTools | FunctionToolChoice
        )
        self._single = not request.parallel_tool_calls
        self._barred: set[parts.Key] = set()
        self._passed: tuple[parts.Key, str] | None = None

    @classmethod
    def of(cls, request: Request) -> "Guard | None":
        """Return the guard that a request needs, if it constrains anything."""
        if request.tool_choice == "auto" and request.parallel_tool_calls:
            return None
        guard = cls(request)
        return guard if guard._named or guard._single else None

    def allowed(self, heard: Iterable[Part]) -> Iterator[Part]:
        """Let parts pass, save the calls that may not."""
        for part in heard:
            checked = self.check(part) if isinstance(part, parts.Call) else part
            if checked is not None:
                yield checked

    def check(self, call: parts.Call) -> Part | None:
        """Return a call that may pass, a warning in its place, or nothing."""
        if not call.name:
            return None if call.key in self._barred else call
        if self._named and call.name not in self._names:
            return self._bar(call, "tool_not_allowed", "which tool_choice does not allow")
        if self._single and self._passed and self._is_other(call, self._passed):
            return self._bar(call, "parallel_call", "beside another call, which was not wanted")
        self._barred.discard(call.key)
        self._passed = (call.key, call.call_id or (self._passed or (0, ""))[1])
        return call

    def _is_other(self, call: parts.Call, passed: tuple[parts.Key, str]) -> bool:
        key, call_id = passed
        return call.key != key or bool(call.call_id and call_id and call.call_id != call_id)

    def _bar(self, call: parts.Call, code: str, why: str) -> Part | None:
        repeated = call.key in self._barred and not call.call_id
        self._barred.add(call.key)
        message = f"The model called '{call.name[:80]}', {why}; the call was left out."
        return None if repeated else parts.Warn(code, message, "tool_choice")
