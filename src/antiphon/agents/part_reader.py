"""The values that an agent yields, as parts; and the calls of its own tools, with their outputs.

A call of a function that the client offers is the client's: the turn ends, and the output comes with the next request.
Any other call is the agent's own: it runs the tool itself and yields the output in the same answer, or in a later one
if it ends this one with `Finish("tool_calls")`.
"""

from collections.abc import Iterator
from typing import cast

from msgspec import Struct, json
from msgspec.structs import replace

from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.items import Content, FunctionCall, FunctionCallOutput, Item
from antiphon.protocol.parts import Part
from antiphon.protocol.tools import callable_names


class TrackedCall(Struct):
    """A call of this answer that has no output yet; its parts may still be arriving."""

    name: str
    call_id: str


class PartReader:
    """Converts the values that the answer to one turn yields into parts."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._call_key: parts.Key = 0
        self._call_count = 0
        self._unanswered: dict[parts.Key, TrackedCall] = {}
        self._is_paused = False
        """Whether the agent has said that its calls wait, perhaps for the approval of a person."""

    def read(self, value: object) -> Part | None:
        """Convert a value; None yields nothing."""
        if isinstance(value, str):
            return parts.Text(value)
        if type(value) is parts.Text or value is None:  # the first is most values
            return value
        if isinstance(value, parts.Call):
            return self._read_call(value)
        if isinstance(value, parts.Whole):
            return self._read_item(value.item)
        if isinstance(value, parts.Finish):
            self._is_paused = value.reason == "tool_calls"
        if isinstance(value, Part):
            if isinstance(value, parts.ItemState) and isinstance(value.item, FunctionCallOutput):
                self._mark_answered(value.item.call_id)
            return value
        if isinstance(value, Item):
            return self._read_item(value)
        raise TypeError(f"an agent yields strings, parts or items, not {type(value).__name__}")

    def end(self) -> Iterator[parts.Warn]:
        """Yield a warning for each of the agent's own calls that has no output and does not wait for one."""
        if self._is_paused:
            return
        offered = callable_names(self._turn.request.tools, "auto")
        for call in self._unanswered.values():
            if call.name and call.name not in offered:
                message = f"The agent called its own tool '{call.name[:80]}', and gave no output for the call."
                yield parts.Warn("unanswered_call", message)

    def _read_item(self, item: Item) -> Part:
        match item:
            case FunctionCall():
                self._call_count += 1
                self._track_call(f"item {self._call_count}", item.name, item.call_id)
                return parts.Whole(replace(item, arguments=_to_json_text(item.arguments)))
            case FunctionCallOutput():
                return self._read_output(item)
            case _:
                return parts.Whole(item)

    def _read_call(self, call: parts.Call) -> parts.Call:
        """Give a call without a key one of its own; pieces of one call share a key or a call_id."""
        key = call.key
        if key == parts.NO_KEY:
            if call.call_id:
                self._call_key = f"id {call.call_id}"
            elif call.name:
                self._call_count += 1
                self._call_key = f"call {self._call_count}"
            key = self._call_key
        self._track_call(key, call.name, call.call_id)
        return replace(call, key=key, arguments=_to_json_text(call.arguments))

    def _track_call(self, key: parts.Key, name: str, call_id: str) -> None:
        call = self._unanswered.get(key)
        if call and name and call_id and call.call_id not in ("", call_id):
            # A new id on a known key begins another call.
            self._call_count += 1
            self._unanswered[f"earlier {self._call_count}"] = call
            call = None
        if call is None:
            self._unanswered[key] = TrackedCall(name, call_id)
        else:
            call.name, call.call_id = call.name or name, call.call_id or call_id

    def _read_output(self, item: FunctionCallOutput) -> Part:
        """Return the output of a call of this answer or of an earlier one; a warning if there is no such call."""
        call_id = item.call_id
        if not self._mark_answered(call_id) and not self._was_called_before(call_id):
            # A client that sends it back as input would get an error.
            message = f"The agent gave an output for the call '{call_id[:80]}', which waits for none; it was left out."
            return parts.Warn("unknown_call", message)
        output: object = item.output
        if not (isinstance(output, list) and all(isinstance(part, Content) for part in cast("list[object]", output))):
            item = replace(item, output=_to_json_text(output))
        return parts.Whole(item)

    def _mark_answered(self, call_id: str) -> bool:
        """Note that a call of this answer has its output; return whether one was waiting for it."""
        keys = (key for key, call in self._unanswered.items() if call.name and call.call_id == call_id)
        if (key := next(keys, None)) is None:
            return False
        del self._unanswered[key]
        return True

    def _was_called_before(self, call_id: str) -> bool:
        """Tell whether an earlier response holds this call, without an output or with one that says so."""
        items = self._turn.items
        outputs = (item for item in items if isinstance(item, FunctionCallOutput) and item.call_id == call_id)
        called = any(isinstance(item, FunctionCall) and item.call_id == call_id for item in items)
        return called and all(item.status == "incomplete" for item in outputs)


def _to_json_text(value: object) -> str:
    """Return arguments or an output as JSON text; agents may also give an object."""
    return value if isinstance(value, str) else json.encode(value).decode()
