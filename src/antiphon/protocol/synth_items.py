"""The items of a response while they are streamed: when each is opened and closed.

- A message or a reasoning item stays open until a part of another item comes. Within it, one
  content part is open until a part with another number comes.
- Calls may interleave. A call stays open until its source says that it is complete, or another
  item begins while the call's arguments are whole JSON, or the response ends.
- Items are closed in the order of their index: one that is finished while an earlier one is open
  waits for it. The rule `done-in-order` requires this.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.protocol import items, parts
from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    ItemEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
)
from antiphon.protocol.fast_text import EventEmitter, OpenText
from antiphon.protocol.items import FunctionCall, Item, ItemStatus, Message, Phase, Reasoning
from antiphon.protocol.parts import Key
from antiphon.protocol.surrogates import repair_surrogates, repair_value
from antiphon.protocol.text_kinds import (
    CALL_ARGUMENTS,
    OUTPUT_TEXT,
    REASONING_TEXT,
    REFUSAL,
    SUMMARY_TEXT,
    TEXT_DONE_EVENTS,
    TEXT_KINDS,
    TextKind,
)

ItemKind = Literal["message", "reasoning", "call", "whole"]
ITEM_KINDS: dict[str, ItemKind] = {"message": "message", "reasoning": "reasoning", "function_call": "call"}


class SynthOptions(Struct, frozen=True):
    """How a response is written, beyond what its parts say."""

    keep_empty: bool = False
    """Whether empty text deltas become events too."""

    obfuscate: Callable[[str], str] | None = None
    """Return the random padding that hides the length of a delta."""

    seal: Callable[[Item], Item] | None = None
    """Encrypt the private content of an item before the item is emitted."""

    single_message: bool = False
    """Whether all text goes to one message, which is the first item and open to the end."""

    reuse_call_ids: bool = False
    """Whether the item of a call has the call_id as its id."""

    new_id: Callable[[str], str] | None = None
    """Make item ids in another form than the synthesizer's own source does."""


DEFAULT_OPTIONS = SynthOptions()

ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "compaction": "cmp",
    "openai:code_interpreter_call": "ci",
    "openai:computer_call": "cu",
    "openai:custom_tool_call": "ctc",
    "openai:file_search_call": "fs",
    "openai:image_generation_call": "ig",
    "openai:local_shell_call": "lsh",
    "openai:mcp_approval_request": "mcpr",
    "openai:mcp_call": "mcp",
    "openai:mcp_list_tools": "mcpl",
    "openai:web_search_call": "ws",
}
"""The prefix of an item's id, by item type. OpenAI checks it when an item is sent back."""


class OpenItem:
    """An item that has been added and is not done."""

    __slots__ = ("finished", "id", "index", "key", "kind", "open_text", "part_counts", "source_id", "value")

    def __init__(self, kind: ItemKind, key: Key, index: int, item: Item) -> None:
        self.kind: ItemKind = kind
        self.key = key
        self.index = index
        self.value = item
        self.id = str(item.id)
        self.source_id = ""
        """The call_id as the source wrote it; ours may differ."""
        self.open_text: OpenText | None = None
        self.part_counts: dict[str, int] = {}
        """How many parts have been added, by index field."""
        self.finished = False
        """Whether nothing more comes; the item may still wait for an earlier one."""


class ItemSynth:
    """Turns the parts of items into events, and decides when items open and close."""

    def __init__(
        self, emitter: EventEmitter, ids: Callable[[str], str], options: SynthOptions = DEFAULT_OPTIONS
    ) -> None:
        self._emitter = emitter
        self._new_id = ids
        self._keep_empty = options.keep_empty
        self._obfuscate = options.obfuscate
        self._seal_hook = options.seal
        self._reuse_call_ids = options.reuse_call_ids
        self._unclosed: list[OpenItem] = []
        self._current_item: OpenItem | None = None
        self._open_calls: dict[Key, OpenItem] = {}
        self._nameless_calls: dict[Key, parts.Call] = {}
        self._named_keys: set[Key] = set()
        self.dropped_arguments = False
        """Whether arguments arrived that belong to no named call."""
        self._used_call_ids: set[str] = set()
        self._last_grown: OpenItem | None = None
        self.item_count = 0

    def add_text(self, part: parts.Text) -> None:
        """Add text to a message."""
        text = part.text
        open_text = self.find_growing_text(part.key, part.part)
        if open_text and text and text.isascii() and not (part.logprobs or part.phase):
            # Hot path: nearly every part is ASCII text that extends the text that grew last.
            self._emitter.emit_delta(open_text, text)
        elif text or part.logprobs or self._keep_empty:
            message = self._ensure_item("message", part.key, part.phase)
            self._add_delta(self._ensure_text(message, OUTPUT_TEXT, part.part), text, part.logprobs)

    def find_growing_text(self, key: Key, part: int) -> OpenText | None:
        """Return the output text that parts of a key extend, if it was the last to grow."""
        item = self._last_grown
        open_text = item.open_text if item is not None and item is self._current_item else None
        if (
            item is None
            or open_text is None
            or open_text.kind is not OUTPUT_TEXT
            or item.key != key
            or open_text.part != part
            or self._obfuscate
            or open_text.joiner.pending
        ):
            return None
        return open_text

    def add_refusal(self, part: parts.Refusal) -> None:
        """Add text to a refusal."""
        if part.text or self._keep_empty:
            message = self._ensure_item("message", part.key)
            self._add_delta(self._ensure_text(message, REFUSAL, part.part), part.text)

    def add_reasoning(self, part: parts.Reasoning) -> None:
        """Add raw text, a summary or encrypted content to a reasoning item."""
        if not (part.text or part.summary or part.encrypted_content):
            return
        item = self._ensure_item("reasoning", part.key)
        if part.text:
            self._add_delta(self._ensure_text(item, REASONING_TEXT, part.part), part.text)
        if part.summary:
            self._add_delta(self._ensure_text(item, SUMMARY_TEXT, part.part), part.summary)
        if part.encrypted_content and isinstance(item.value, Reasoning):
            encrypted = repair_surrogates(part.encrypted_content)
            item.value = replace(item.value, encrypted_content=encrypted)

    def add_annotation(self, part: parts.Annotation) -> None:
        """Add an annotation to a message's text."""
        annotation = repair_value(part.annotation)
        message = self._ensure_item("message", part.key)
        open_text = self._ensure_text(message, OUTPUT_TEXT, part.part)
        index, open_text.annotations = open_text.annotations, open_text.annotations + 1
        self._emitter.emit(
            OutputTextAnnotationAdded, annotation_index=index, annotation=annotation, **open_text.location
        )

    def add_call(self, part: parts.Call) -> None:
        """Open a call, or add to its arguments."""
        item = self._open_calls.get(part.key)
        if item and part.name and part.call_id and part.call_id != item.source_id:
            # Some chat servers reuse an index: a new id on a known key is another call.
            self._finish_item(item)
            item = None
        if item is None:
            if earlier := self._nameless_calls.pop(part.key, None):
                part = _join_calls(earlier, part)
            if not part.name:
                if part.key in self._named_keys:  # the call of this key is already closed
                    self.dropped_arguments = self.dropped_arguments or bool(part.arguments)
                else:
                    self._nameless_calls[part.key] = part
                return
            item = self._open_call(part)
        self._last_grown = item
        if part.arguments:
            self._add_delta(self._ensure_text(item, CALL_ARGUMENTS, 0), part.arguments)
        if part.complete:
            self._finish_item(item)

    def add_whole(self, item: Item) -> None:
        """Add an item that arrives finished, with the same events as one that is streamed."""
        key = f"whole {self.item_count}"
        # Before the first event: an item that cannot be encoded must not be opened either.
        item = repair_value(item)
        match item:
            case Message():
                self._add_whole_message(item, key)
            case Reasoning():
                self._add_whole_reasoning(item, key)
            case FunctionCall():
                complete = item.status != "incomplete"
                self.add_call(parts.Call(key, item.name, item.arguments, item.call_id, complete))
            case items.ItemReference():
                raise LocalProtocolError("an item reference is input only")
            case _:
                self._add_whole_other(item)

    def _add_whole_message(self, message: Message, key: Key) -> None:
        phase = None if message.phase is UNSET else message.phase
        item = self._ensure_item("message", key, phase)
        for index, piece in enumerate(message.content):
            open_text = self._ensure_text(
                item, REFUSAL if isinstance(piece, items.RefusalContent) else OUTPUT_TEXT, index
            )
            is_text = isinstance(piece, items.OutputText)
            text, logprobs = (items.content_text(piece), (piece.logprobs or None) if is_text else None)
            if text or logprobs:
                self._add_delta(open_text, text, logprobs)
            for annotation in piece.annotations if is_text else []:
                self.add_annotation(parts.Annotation(annotation, key, index))
        if message.status != "incomplete":
            self._finish_item(item)

    def _add_whole_reasoning(self, reasoning: Reasoning, key: Key) -> None:
        item = self._ensure_item("reasoning", key)
        for index, piece in enumerate(reasoning.content or []):
            self.add_reasoning(parts.Reasoning(items.content_text(piece), key, index))
        for index, piece in enumerate(reasoning.summary):
            self.add_reasoning(parts.Reasoning(key=key, part=index, summary=items.content_text(piece)))
        # The final item takes its encrypted content from this value.
        item.value = reasoning
        self._finish_item(item)

    def _add_whole_other(self, item: items.FunctionCallOutput | items.Compaction | items.ExtensionItem) -> None:
        self._finish_growing()
        id = self._new_id(ID_PREFIXES.get(item.type, "item"))
        if isinstance(item, items.Compaction):
            self._finish_item(self._open_item("whole", id, self._apply_seal(replace(item, id=id))))
            return
        if item.type == items.CUSTOM_TOOL_CALL and not item.get("call_id"):
            item = replace(item, extra={**(item.extra or {}), "call_id": self._new_id("call")})
        opened = self._open_item("whole", id, replace(item, id=id, status="in_progress"))
        if item.status == "incomplete":
            # A completed response must not hold an incomplete item, so its end decides.
            return
        status = "failed" if item.status == "failed" else "completed"
        opened.value = replace(item, id=id, status=status)
        self._finish_item(opened)

    def _ensure_item(self, kind: ItemKind, key: Key, phase: Phase | None = None) -> OpenItem:
        """Return the open message or reasoning item of a key; open one if there is none."""
        item = self._current_item
        if item is None or item.key != key or item.kind != kind or _changes_phase(item, phase):
            self._finish_growing()
            id = self._new_id(ID_PREFIXES[kind])
            shown = UNSET if phase is None else phase
            empty = (
                Reasoning(id=id)
                if kind == "reasoning"
                else Message(id=id, status="in_progress", role="assistant", content=[], phase=shown)
            )
            item = self._current_item = self._open_item(kind, key, empty)
        self._last_grown = item
        return item

    def _open_call(self, part: parts.Call) -> OpenItem:
        self._finish_growing()
        # Remember the key: arguments that arrive after the call is closed must not wait for a name.
        self._named_keys.add(part.key)
        call_id = repair_surrogates(part.call_id)
        # The specification limits the length of a call_id, and outputs are matched by it.
        if not 0 < len(call_id) <= items.MAX_CALL_ID_LENGTH or call_id in self._used_call_ids:
            call_id = self._new_id("call")
        self._used_call_ids.add(call_id)
        id = call_id if self._reuse_call_ids else self._new_id(ID_PREFIXES["function_call"])
        call = FunctionCall(
            id=id, call_id=call_id, name=repair_surrogates(part.name), arguments="", status="in_progress"
        )
        item = self._open_calls[part.key] = self._open_item("call", part.key, call)
        item.source_id = part.call_id
        return item

    def _open_item(self, kind: ItemKind, key: Key, item: Item) -> OpenItem:
        opened = OpenItem(kind, key, self.item_count, item)
        self.item_count += 1
        self._unclosed.append(opened)
        self._emitter.emit(OutputItemAdded, output_index=opened.index, item=item)
        return opened

    def _ensure_text(self, item: OpenItem, kind: TextKind, part: int) -> OpenText:
        """Return the open text of an item; close the one before it if it is another."""
        open_text = item.open_text
        if open_text is not None and open_text.kind is kind and open_text.part == part:
            return open_text
        if open_text is not None:
            self._close_text(item, open_text)
        location: dict[str, object] = {"item_id": item.id, "output_index": item.index}
        index = item.part_counts.get(kind.index_field, 0)
        if kind.part_added_event:
            item.part_counts[kind.index_field] = index + 1
            location[kind.index_field] = index
            self._emitter.emit(kind.part_added_event, part=kind.empty_part(), **location)
        item.open_text = self._bind_pieces(item, OpenText(kind, part, index, location))
        return item.open_text

    def _bind_pieces(self, item: OpenItem, open_text: OpenText) -> OpenText:
        open_text.pieces = self._emitter.fold.open_text_pieces(item.index, open_text.kind.index_field, open_text.index)
        return open_text

    def _add_delta(self, open_text: OpenText, text: str, logprobs: list[items.LogProb] | None = None) -> None:
        # Only text beyond ASCII can end in half of a surrogate pair.
        if not text.isascii() or open_text.joiner.pending:
            text = open_text.joiner.feed(text)
            if not (text or logprobs):
                return
        if logprobs:
            logprobs = repair_value(logprobs)
            self._emitter.emit(open_text.kind.delta_event, delta=text, logprobs=logprobs, **open_text.location)
        elif self._obfuscate and open_text.kind.obfuscatable:
            padding = self._obfuscate(text)
            self._emitter.emit(open_text.kind.delta_event, delta=text, obfuscation=padding, **open_text.location)
        else:
            self._emitter.emit_delta(open_text, text)

    def adopt_open_items(self, unclosed: list[OpenItem], count: int) -> None:
        """Take over the items that an earlier synthesizer left open."""
        self._unclosed, self.item_count = unclosed, count
        for item in unclosed:
            # The fold has been fed the earlier events; deltas go on in its lists.
            if item.open_text:
                self._bind_pieces(item, item.open_text)

    def forget_nameless_calls(self) -> None:
        """Forget the calls that have no name yet."""
        self._nameless_calls.clear()

    def close_all(self, status: ItemStatus) -> None:
        """Close every item; those that are not finished get the status."""
        self.dropped_arguments = self.dropped_arguments or any(call.arguments for call in self._nameless_calls.values())
        self._nameless_calls.clear()
        self._current_item = None
        self._open_calls.clear()
        while self._unclosed:
            item = self._unclosed.pop(0)
            # The last item to grow may have been cut off even if its arguments are whole JSON.
            whole = item.finished or (item is not self._last_grown and self._has_whole_arguments(item))
            self._close_item(item, "completed" if whole else status)

    def add_empty_message(self) -> None:
        """Add a message with an empty text, for a model that produced no output."""
        self._ensure_text(self._ensure_item("message", 0), OUTPUT_TEXT, 0)
        self.close_all("completed")

    def _finish_growing(self) -> None:
        """Finish the items that cannot grow any more because another item begins."""
        if self._current_item is not None:
            self._finish_item(self._current_item)
        for call in [call for call in self._open_calls.values() if self._has_whole_arguments(call)]:
            self._finish_item(call)

    def _finish_item(self, item: OpenItem) -> None:
        """Mark an item as finished, and close every finished item at the head of the queue."""
        item.finished = True
        if self._current_item is item:
            self._current_item = None
        if item.kind == "call":
            del self._open_calls[item.key]
        # The rule `done-in-order`: an item waits until all items before it are done.
        while self._unclosed and self._unclosed[0].finished:
            self._close_item(self._unclosed.pop(0), "completed")

    def _close_item(self, item: OpenItem, status: ItemStatus) -> None:
        done_emitted = item.open_text is not None and item.open_text.done_emitted
        if item.kind == "call" and item.open_text is None and status == "completed":
            # A call without arguments: clients parse them as JSON, and "" is not JSON.
            self._add_delta(self._ensure_text(item, CALL_ARGUMENTS, 0), "{}")
        if item.open_text is not None:
            self._close_text(item, item.open_text)
        value = self._final_item(item, status)
        if isinstance(value, FunctionCall) and not done_emitted:
            self._emitter.emit(
                FunctionCallArgumentsDone, item_id=item.id, output_index=item.index, arguments=value.arguments
            )
        self._emitter.emit(OutputItemDone, output_index=item.index, item=value)

    def _final_item(self, item: OpenItem, status: ItemStatus) -> Item:
        """Return the item that its events have built, with its final status."""
        if item.kind == "whole" and item.finished:
            return item.value
        built = self._emitter.fold.item(item.index)
        if isinstance(built, Reasoning) and isinstance(item.value, Reasoning):
            return self._apply_seal(replace(built, encrypted_content=item.value.encrypted_content))
        # The specification gives reasoning and compaction items no status.
        has_status = not isinstance(built, Reasoning | items.Compaction)
        return replace(built, status=status) if has_status else built

    def _apply_seal(self, item: Item) -> Item:
        return self._seal_hook(item) if self._seal_hook else item

    def _close_text(self, item: OpenItem, open_text: OpenText) -> None:
        item.open_text = None
        kind, location = open_text.kind, open_text.location
        if rest := open_text.joiner.close():
            self._emitter.emit(kind.delta_event, delta=rest, **location)
        if kind.part_done_event:
            part = self._emitter.fold.part(item.index, kind.index_field, open_text.index)
            if not open_text.done_emitted:
                self._emitter.emit(kind.text_done_event, **kind.done_fields(part), **location)
            self._emitter.emit(kind.part_done_event, part=part, **location)

    def _has_whole_arguments(self, item: OpenItem) -> bool:
        """Return whether the arguments of a call are a whole JSON object."""
        if item.kind != "call" or item.open_text is None:
            return False
        call = self._emitter.fold.item(item.index)
        return isinstance(call, FunctionCall) and _is_json_object(call.arguments)


def _changes_phase(item: OpenItem, phase: Phase | None) -> bool:
    return phase is not None and isinstance(item.value, Message) and item.value.phase != phase


def _join_calls(first: parts.Call, then: parts.Call) -> parts.Call:
    arguments = first.arguments + then.arguments
    call_id = then.call_id or first.call_id
    return parts.Call(then.key, then.name, arguments, call_id, first.complete or then.complete)


def _is_json_object(text: str) -> bool:
    # Cheap test first: this runs for every open call whenever another item begins.
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def find_open_items(events: Iterable[Event]) -> tuple[list[OpenItem], int]:
    """Return the items that a stream has left open, and how many it has added."""
    opened: dict[int, OpenItem] = {}
    count = 0
    for event in events:
        match event:
            case OutputItemAdded(output_index=index, item=item):
                kind = ITEM_KINDS.get(item.type, "whole")
                opened[index] = OpenItem(kind, f"item {index}", index, item)
                count = index + 1
            case OutputItemDone(output_index=index):
                del opened[index]
            case ContentPartAdded(content_index=part) | ReasoningSummaryPartAdded(summary_index=part):
                open_text = _reopen_text(event, TEXT_KINDS[event.part.type], part)
                opened[event.output_index].open_text = open_text
            case ContentPartDone(output_index=index) | ReasoningSummaryPartDone(output_index=index):
                opened[index].open_text = None
            case FunctionCallArgumentsDelta(output_index=index):
                opened[index].open_text = _reopen_text(event, CALL_ARGUMENTS, 0)
            case ItemEvent(output_index=index) if type(event) in TEXT_DONE_EVENTS:
                if isinstance(event, FunctionCallArgumentsDone):  # there may have been no delta
                    opened[index].open_text = _reopen_text(event, CALL_ARGUMENTS, 0)
                if open_text := opened[index].open_text:
                    open_text.done_emitted = True
            case _:
                pass
    return list(opened.values()), count


def _reopen_text(event: ItemEvent, kind: TextKind, index: int) -> OpenText:
    location: dict[str, object] = {"item_id": event.item_id, "output_index": event.output_index}
    if kind.index_field:
        location[kind.index_field] = index
    return OpenText(kind, 0, index, location)
