"""Which call a bit of a chat answer belongs to.

OpenAI gives a call an index, and its id and name once, in the first bit. Others repeat both in
every bit, send a fresh id with each, send the name after the id or the id after the name, give all
calls the same index, or no index at all. What makes a call another one, then: a name together with
an id that is not the call's own; without ids, another name, or a name and more arguments after
arguments that are whole. An id that cannot be told, being another call's or too long, is none.
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
    """A call that was heard of."""

    __slots__ = (
        "begun",
        "call_id",
        "custom",
        "extra",
        "id",
        "key",
        "name",
        "said",
        "taken",
        "waiting",
    )

    def __init__(self, key: int, id: str, taken: set[str], *, custom: bool) -> None:
        self.key = key
        self.id = id
        self.taken = taken
        """The ids of the calls that were told."""
        self.call_id = ""
        """The id with which it was told, and which its item has, if it is any."""
        self.name = ""
        self.said: list[str] = []
        self.custom = custom
        self.extra: JsonObject = {}
        """What stands beside it and has to go back."""
        self.begun = False
        """Whether it has been told; a call waits for its id as long as it says nothing."""
        self.waiting = ""
        """An id that came alone: the next name's, or a server's whim."""

    def starts_new_call(self, id: str, name: str, arguments: str) -> bool:
        """Tell whether a bit at this call's index begins another call."""
        if not name:
            return False
        if id and self.id:
            return id != self.id
        if not self.name:
            return False
        after = bool(arguments.strip()) and self._has_whole_arguments()
        return bool(self.waiting) or name != self.name or after

    def feed(self, id: str, name: str, arguments: str, extra: JsonObject) -> list[Part]:
        """Add a bit, and tell it if it can be told."""
        if id and self.id and self.name and not arguments and id != self.id:
            self.waiting = id
        self.name = self.name or name
        self.id = self.id or id
        if arguments:
            self.said.append(arguments)
        is_signed, self.extra = bool(self.extra), self.extra or extra
        if self.begun:
            told: list[Part] = [parts.Call(self.key, arguments=arguments)] if arguments else []
            # Where a call has no id, what comes after it would be taken for the next one's.
            return told if is_signed or not self.call_id else [*told, *self._extra_parts()]
        if self.custom or not (self.name and (self.id or arguments)):
            return []
        return self.emit()

    def emit(self, status: ItemStatus = "completed") -> list[Part]:
        """Tell the call as far as it was heard; only a custom one is told with its status."""
        self.begun = True
        id = repair_surrogates(self.id)
        if len(id) <= MAX_CALL_ID_LENGTH and id not in self.taken:
            self.call_id = id
            self.taken.add(id)
        said = "".join(self.said)
        seal = self._extra_parts()
        if not self.custom:
            return [*seal, parts.Call(self.key, self.name, said, self.call_id)]
        fields: JsonObject = {"call_id": self.call_id, "name": self.name, "input": said}
        item = ExtensionItem(type=CUSTOM_TOOL_CALL, status=status, extra=fields)
        return [*seal, parts.Whole(item)]

    def _extra_parts(self) -> list[Part]:
        """Tell what stands beside the call, as an item of its own."""
        if not self.extra:
            return []
        seal = ChatSeal(field="", extra=self.extra, call=self.call_id)
        return [seal_part(seal, f"call {self.key}")]

    def _has_whole_arguments(self) -> bool:
        if not (self.said and self.said[-1].rstrip().endswith("}")):
            return False
        try:
            return isinstance(msgspec.json.decode("".join(self.said)), dict)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False


class ToolCalls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self.by_position = False
        """Whether a call's place in the list is its index, as in a whole answer."""
        self._by_index: dict[int, ToolCallState] = {}
        self._all: list[ToolCallState] = []
        self._used_ids: set[str] = set()

    @property
    def has_calls(self) -> bool:
        """Whether there was a call."""
        return any(call.begun and call.name for call in self._all)

    def feed(self, fragments: Sequence[ToolCallFragment]) -> Iterable[Part]:
        """Return what some bits of calls tell."""
        for position, fragment in enumerate(fragments):
            yield from self._feed_fragment(position, fragment)

    def flush(self, *, truncated: bool) -> list[Part]:
        """Return what could not be told before the end, be it arguments of no call.

        What was cut is the last call, if it is any.
        """
        left = [call for call in self._all if not call.begun and (call.name or call.said)]
        unsure = self._all[-1:] if truncated else []
        told: list[Part] = []
        for call in left:
            told += call.emit("incomplete" if call in unsure else "completed")
        return told

    def _feed_fragment(self, position: int, fragment: ToolCallFragment) -> list[Part]:
        index = fragment.index
        if index is None or self.by_position:
            index = position
        id, (name, arguments) = fragment.id or "", _name_and_arguments(fragment)
        known = self._by_index.get(index)
        if known is None or known.starts_new_call(id, name, arguments):
            id = id or (known.waiting if known else "")
            known = ToolCallState(
                len(self._all), id, self._used_ids, custom=fragment.custom is not None
            )
            self._by_index[index] = known
            self._all.append(known)
        return known.feed(id, name, arguments, as_object(fragment.extra_content))


def _name_and_arguments(fragment: ToolCallFragment) -> tuple[str, str]:
    """Return a bit's name, and its arguments as a string."""
    if fragment.custom:
        return fragment.custom.name or "", fragment.custom.input or ""
    if fragment.function is None:
        return "", ""
    return fragment.function.name or "", to_json_text(fragment.function.arguments or "")
