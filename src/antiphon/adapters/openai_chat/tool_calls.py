"""Assembles the tool calls of an answer from fragments.

OpenAI sends a call's index with every fragment, and its id and name only with the first. Other
servers repeat both in every fragment, send a new id with each, send name and id in separate
fragments, give all calls the same index, or send no index. So a fragment starts a new call if it
has a name and an id that is not the call's own; without ids, if it has another name, or a name and
more arguments after complete arguments. An id that another call has, or that is too long, is
ignored.
"""

from collections.abc import Iterable, Sequence

import msgspec

from antiphon.adapters.json_access import JsonObject, as_object, to_json_text
from antiphon.adapters.openai_chat.reasoning_state import ChatSeal, seal_part
from antiphon.adapters.openai_chat.wire_types import ToolCallFragment
from antiphon.protocol import parts
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    MAX_CALL_ID_LENGTH,
    ExtensionItem,
    ItemStatus,
)
from antiphon.protocol.parts import Part
from antiphon.protocol.surrogates import repair_surrogates


class ToolCallState:
    """One call, as far as it has been received."""

    __slots__ = (
        "argument_pieces",
        "call_id",
        "extra",
        "id",
        "is_custom",
        "is_emitted",
        "key",
        "name",
        "pending_id",
        "used_ids",
    )

    def __init__(self, key: int, id: str, used_ids: set[str], *, is_custom: bool) -> None:
        self.key = key
        self.id = id
        self.used_ids = used_ids
        """The ids of all calls that were emitted."""
        self.call_id = ""
        """The id with which the call was emitted; empty if it has no usable id."""
        self.name = ""
        self.argument_pieces: list[str] = []
        self.is_custom = is_custom
        self.extra: JsonObject = {}
        """The call's `extra_content`, which has to be sent back."""
        self.is_emitted = False
        """Whether it was emitted. A call without arguments waits for its id."""
        self.pending_id = ""
        """An id that came alone. It belongs to the next call if a name follows."""

    def starts_new_call(self, id: str, name: str, arguments: str) -> bool:
        """Return whether a fragment at this call's index starts another call."""
        if not name:
            return False
        if id and self.id:
            return id != self.id
        if not self.name:
            return False
        after = bool(arguments.strip()) and self._has_whole_arguments()
        return bool(self.pending_id) or name != self.name or after

    def feed(self, id: str, name: str, arguments: str, extra: JsonObject) -> list[Part]:
        """Add a fragment; return the parts that can be emitted now."""
        if id and self.id and self.name and not arguments and id != self.id:
            self.pending_id = id
        self.name = self.name or name
        self.id = self.id or id
        if arguments:
            self.argument_pieces.append(arguments)
        is_signed, self.extra = bool(self.extra), self.extra or extra
        if self.is_emitted:
            emitted: list[Part] = [parts.Call(self.key, arguments=arguments)] if arguments else []
            # Without an id, extras that come late would be assigned to the next call.
            return emitted if is_signed or not self.call_id else [*emitted, *self._extra_parts()]
        if self.is_custom or not (self.name and (self.id or arguments)):
            return []
        return self.emit()

    def emit(self, status: ItemStatus = "completed") -> list[Part]:
        """Emit the call as far as it was received. Only a custom call is emitted with a status."""
        self.is_emitted = True
        id = repair_surrogates(self.id)
        # The protocol limits the length of an id, and two calls must not share one.
        if len(id) <= MAX_CALL_ID_LENGTH and id not in self.used_ids:
            self.call_id = id
            self.used_ids.add(id)
        arguments = "".join(self.argument_pieces)
        # The extras come first: they are a reasoning item, which precedes the call it led to.
        extras = self._extra_parts()
        if not self.is_custom:
            return [*extras, parts.Call(self.key, self.name, arguments, self.call_id)]
        fields: JsonObject = {"call_id": self.call_id, "name": self.name, "input": arguments}
        item = ExtensionItem(type=CUSTOM_TOOL_CALL, status=status, extra=fields)
        return [*extras, parts.Whole(item)]

    def _extra_parts(self) -> list[Part]:
        """Return the extras of the call, as a reasoning item of their own."""
        if not self.extra:
            return []
        seal = ChatSeal(field="", extra=self.extra, call=self.call_id)
        return [seal_part(seal, f"call {self.key}")]

    def _has_whole_arguments(self) -> bool:
        if not (self.argument_pieces and self.argument_pieces[-1].rstrip().endswith("}")):
            return False
        # Parsing all pieces for every fragment would be quadratic; the check above avoids it.
        try:
            return isinstance(msgspec.json.decode("".join(self.argument_pieces)), dict)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False


class ToolCalls:
    """All calls of one answer."""

    def __init__(self) -> None:
        self.by_position = False
        """Whether a call's position in the list is its index, as in a whole answer."""
        self._by_index: dict[int, ToolCallState] = {}
        self._all: list[ToolCallState] = []
        self._used_ids: set[str] = set()

    @property
    def has_calls(self) -> bool:
        """Whether any call was emitted."""
        return any(call.is_emitted and call.name for call in self._all)

    def feed(self, fragments: Sequence[ToolCallFragment]) -> Iterable[Part]:
        """Return the parts for some fragments."""
        for position, fragment in enumerate(fragments):
            yield from self._feed_fragment(position, fragment)

    def flush(self, *, truncated: bool) -> list[Part]:
        """Return the calls that could not be emitted before the end.

        If the answer was truncated, the last call is incomplete.
        """
        last = self._all[-1] if truncated and self._all else None
        flushed: list[Part] = []
        for call in self._all:
            if not call.is_emitted and (call.name or call.argument_pieces):
                flushed += call.emit("incomplete" if call is last else "completed")
        return flushed

    def _feed_fragment(self, position: int, fragment: ToolCallFragment) -> list[Part]:
        index = fragment.index
        if index is None or self.by_position:
            index = position
        id, (name, arguments) = fragment.id or "", _name_and_arguments(fragment)
        call = self._by_index.get(index)
        if call is None or call.starts_new_call(id, name, arguments):
            id = id or (call.pending_id if call else "")
            call = ToolCallState(
                len(self._all), id, self._used_ids, is_custom=fragment.custom is not None
            )
            self._by_index[index] = call
            self._all.append(call)
        return call.feed(id, name, arguments, as_object(fragment.extra_content))


def _name_and_arguments(fragment: ToolCallFragment) -> tuple[str, str]:
    """Return the name in a fragment, and its arguments as a string."""
    if fragment.custom:
        return fragment.custom.name or "", fragment.custom.input or ""
    if fragment.function is None:
        return "", ""
    return fragment.function.name or "", to_json_text(fragment.function.arguments or "")
