"""The items of a response while they are streamed: when each is opened and closed.

- A message or a reasoning item stays open until a part of another item comes. Within it, one
  content part is open until a part with another number comes.
- Calls may interleave. A call stays open until its source says that it is complete, or another
  item begins while the call's arguments are whole JSON, or the response ends.
- An item that an `ItemState` opened stays open until its last state, whatever else comes.
- Items are closed in the order of their index: one that is finished while an earlier one is open
  waits for it. The rule `done-in-order` requires this.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from antiphon.protocol import events, items, parts
from antiphon.protocol.errors import LocalProtocolError, answer_too_large_error
from antiphon.protocol.events import CALL_ARGUMENTS, OUTPUT_TEXT, REFUSAL, Event, EventFactory, TextKind
from antiphon.protocol.fast_text import EventEmitter, OpenText
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemStatus,
    Message,
    Phase,
    Reasoning,
    call_key,
)
from antiphon.protocol.parts import Key
from antiphon.protocol.surrogates import repair_surrogates, repair_value


class SynthOptions(Struct, frozen=True):
    """How a response is written, beyond what its parts say."""

    keep_empty: bool = False
    """Whether empty text deltas become events too."""
    obfuscate: Callable[[str], str] | None = None
    """Return the random padding that hides the length of a delta."""
    seal: Callable[[Item], Item] = lambda item: item
    """Encrypt the private content of an item before the item is emitted."""
    single_message: bool = False
    """Whether all text goes to one message, which is the first item and open to the end."""
    reuse_call_ids: bool = False
    """Whether the item of a call has the call_id as its id."""
    new_id: Callable[[str], str] | None = None
    """Make item ids in another form than the synthesizer's own source does."""
    taken_call_ids: frozenset[str] = frozenset()
    """The ids of earlier calls, which no call of this response may have."""
    source_progress: bool = False
    """Whether `queued` and `in_progress` come from the source only, and otherwise are left out."""
    content_parts: bool = True
    """Whether `content_part` events are emitted; the rules require them, but some readers do not know them."""
    argument_deltas: bool = True
    """Whether `function_call_arguments.delta` events are emitted; likewise."""

    @property
    def omitted_events(self) -> frozenset[EventFactory]:
        """The events that are folded but not emitted."""
        parts = () if self.content_parts else (events.ContentPartAdded, events.ContentPartDone)
        return frozenset(parts if self.argument_deltas else (*parts, events.FunctionCallArgumentsDelta))


DEFAULT_OPTIONS = SynthOptions()

MAX_PIECES = 20_000
"""The most items, content parts and annotations of a response, together."""

MAX_NAMELESS_LENGTH = 1024 * 1024
"""The most characters of arguments that wait for the name of their call."""

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


class OpenItem(Struct, eq=False):
    """An item that has been added and is not done."""

    key: Key
    index: int
    value: Item
    source_id: str = ""
    """The call_id as the source wrote it; ours may differ."""
    open_text: OpenText | None = None
    part_counts: Counter[str] = field(default_factory=Counter[str])
    """How many parts have been added, by index field."""
    finished: bool = False
    """Whether nothing more comes; the item may still wait for an earlier one."""
    held: bool = False
    """Whether only its source ends the item, not the beginning of another one."""


class ItemSynth:
    """Turns the parts of items into events, and decides when items open and close."""

    def __init__(self, emitter: EventEmitter, ids: Callable[[str], str], options: SynthOptions) -> None:
        self._emitter = emitter
        self._new_id = ids
        self._options = options
        self._unclosed: list[OpenItem] = []
        self._current_item: OpenItem | None = None
        self._open_calls: dict[Key, OpenItem] = {}
        self._held_items: dict[Key, OpenItem] = {}
        self.nameless_calls: dict[Key, parts.Call] = {}
        """The calls whose name has not arrived yet."""
        self._named_keys: set[Key] = set()
        self.dropped_arguments = False
        """Whether arguments arrived that belong to no named call."""
        self._used_call_ids = set(options.taken_call_ids)
        self._unanswered_call_ids: dict[str, list[str]] = {}
        """The ids of the calls that have no output yet, by the call_id as the source wrote it."""
        self._last_grown: OpenItem | None = None
        self._grown_calls: dict[Key, OpenItem] = {}
        """The calls that have grown since another item began."""
        self.item_count = 0
        self._piece_count = 0

    def add_text(self, part: parts.Text) -> None:
        """Add text to a message."""
        text = part.text
        open_text = self.find_growing_text(part.key, part.part)
        if open_text and text and text.isascii() and not (part.logprobs or part.phase):
            # Hot path: nearly every part is ASCII text that extends the text that grew last.
            self._emitter.emit_delta(open_text, text)
        elif text or part.logprobs or self._options.keep_empty:
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
            or self._options.obfuscate
            or open_text.joiner.pending
        ):
            return None
        return open_text

    def add_refusal(self, part: parts.Refusal) -> None:
        """Add text to a refusal."""
        if part.text or self._options.keep_empty:
            message = self._ensure_item("message", part.key)
            self._add_delta(self._ensure_text(message, REFUSAL, part.part), part.text)

    def add_reasoning(self, part: parts.Reasoning) -> None:
        """Add raw text, a summary or encrypted content to a reasoning item."""
        if not (part.text or part.summary or part.encrypted_content):
            return
        item = self._ensure_item("reasoning", part.key)
        if part.text:
            self._add_delta(self._ensure_text(item, events.REASONING_TEXT, part.part), part.text)
        if part.summary:
            self._add_delta(self._ensure_text(item, events.SUMMARY_TEXT, part.part), part.summary)
        if part.encrypted_content and isinstance(item.value, Reasoning):
            encrypted = repair_surrogates(part.encrypted_content)
            item.value = replace(item.value, encrypted_content=encrypted)

    def add_annotation(self, part: parts.Annotation) -> None:
        """Add an annotation to a message's text."""
        annotation = repair_value(part.annotation)
        open_text = self._ensure_text(self._ensure_item("message", part.key), OUTPUT_TEXT, part.part)
        numbered = {"annotation_index": open_text.annotations, "annotation": annotation}
        self._emitter.emit(events.OutputTextAnnotationAdded, **numbered, **open_text.location)
        open_text.annotations += 1
        self._count_piece()

    def add_call(self, part: parts.Call) -> None:
        """Open a call, or add to its arguments."""
        item = self._open_calls.get(part.key)
        if item and part.name and part.call_id and part.call_id != item.source_id:
            # Some chat servers reuse an index: a new id on a known key is another call.
            self._finish_item(item)
            item = None
        if item is None:
            if earlier := self.nameless_calls.pop(part.key, None):
                part = replace(
                    part,
                    arguments=earlier.arguments + part.arguments,
                    call_id=part.call_id or earlier.call_id,
                    complete=earlier.complete or part.complete,
                )
            if not part.name:
                if part.key in self._named_keys:  # the call of this key is already closed
                    self.dropped_arguments = self.dropped_arguments or bool(part.arguments)
                else:
                    self.nameless_calls[part.key] = part
                    self._count_piece()
                    # The arguments are copied with every part of such a call.
                    if len(part.arguments) > MAX_NAMELESS_LENGTH:
                        raise answer_too_large_error("its arguments belong to no call.")
                return
            item = self._open_call(part)
        self._last_grown = self._grown_calls[part.key] = item
        if part.arguments:
            self._add_delta(self._ensure_text(item, CALL_ARGUMENTS, 0), part.arguments)
        if part.complete:
            self._finish_item(item)

    def add_whole(self, part: parts.Whole) -> None:
        """Add an item that arrives finished, with the same events as one that is streamed."""
        key = f"whole {self.item_count}"
        # Before the first event: an item that cannot be encoded must not be opened either.
        match item := repair_value(part.item):
            case Message():
                self._add_whole_message(item, key)
            case Reasoning():
                self._add_whole_reasoning(item, key)
            case FunctionCall():
                complete = item.status != "incomplete"
                self.add_call(parts.Call(key, item.name, item.arguments, item.call_id, complete))
            case items.ItemReference():
                raise LocalProtocolError("an item reference is input only")
            case FunctionCallOutput():
                self._add_whole_other(replace(item, call_id=self._answer_call(item.call_id)))
            case _:
                self._add_whole_other(item)

    def _answer_call(self, source_id: str) -> str:
        """Return the call_id, as the client knows it, of the call that an output answers; close that call."""
        waiting = self._unanswered_call_ids.get(source_id)
        if not waiting:
            # The call of an earlier response, if its id is one.
            return source_id if 0 < len(source_id) <= items.MAX_CALL_ID_LENGTH else self._new_id("call")
        call_id = waiting.pop(0)
        for call in list(self._open_calls.values()):
            if isinstance(call.value, FunctionCall) and call.value.call_id == call_id:
                self._finish_item(call)
        return call_id

    def set_item_state(self, part: parts.ItemState) -> None:
        """Open an item that its source ends, change its value, or finish it."""
        item, key = repair_value(part.item), part.key
        held = self._held_items.get(key)
        if held is not None and held.value.type != item.type:
            self._finish_held(key, "completed")
            held = None
        if held is None:
            held = self._held_items[key] = self._open_held(item, key)
            held.held = True
        elif isinstance(item, FunctionCallOutput):
            held.value = replace(held.value, output=item.output)
        elif isinstance(item, ExtensionItem):
            held.value = replace(item, id=held.value.id, status="in_progress")
        if part.complete:
            self._finish_held(key, item.status)

    def _open_held(self, item: Item, key: Key) -> OpenItem:
        self._finish_growing()
        match item:
            case Message():
                held = self._ensure_item("message", key, item.phase or None)
                self._add_whole_contents(item, held, key)
                return held
            case Reasoning():
                held = self._ensure_item("reasoning", key)
                self._add_whole_reasoning_contents(item, held, key)
                return held
            case FunctionCallOutput():
                return self._open_other(replace(item, call_id=self._answer_call(item.call_id)))
            case ExtensionItem() if call_key(item) is None:
                return self._open_other(item)
            case _:
                raise LocalProtocolError(f"the state of a {item.type} item cannot change; use Call or Whole")

    def _finish_held(self, key: Key, status: object) -> None:
        held = self._held_items.pop(key)
        held.held = False
        if isinstance(held.value, FunctionCallOutput | ExtensionItem):
            self._finish_other(held, status)
        else:
            self._finish_item(held)

    def _add_whole_message(self, message: Message, key: Key) -> None:
        item = self._ensure_item("message", key, message.phase or None)
        self._add_whole_contents(message, item, key)
        if message.status != "incomplete":
            self._finish_item(item)

    def _add_whole_contents(self, message: Message, item: OpenItem, key: Key) -> None:
        for index, piece in enumerate(message.content):
            # An empty text is a part of the message too.
            self._ensure_text(item, REFUSAL if isinstance(piece, items.RefusalContent) else OUTPUT_TEXT, index)
            self._add_whole_content(piece, key, index)

    def _add_whole_content(self, piece: items.Content, key: Key, index: int) -> None:
        if isinstance(piece, items.RefusalContent):
            self.add_refusal(parts.Refusal(piece.refusal, key, index))
        elif isinstance(piece, items.OutputText):
            self.add_text(parts.Text(piece.text, key, index, piece.logprobs or None))
            for annotation in piece.annotations:
                self.add_annotation(parts.Annotation(annotation, key, index))
        else:
            self.add_text(parts.Text(items.content_text(piece), key, index))

    def _add_whole_reasoning(self, reasoning: Reasoning, key: Key) -> None:
        item = self._ensure_item("reasoning", key)
        self._add_whole_reasoning_contents(reasoning, item, key)
        self._finish_item(item)

    def _add_whole_reasoning_contents(self, reasoning: Reasoning, item: OpenItem, key: Key) -> None:
        for index, piece in enumerate(reasoning.content or []):
            self.add_reasoning(parts.Reasoning(items.content_text(piece), key, index))
        for index, piece in enumerate(reasoning.summary):
            self.add_reasoning(parts.Reasoning(key=key, part=index, summary=items.content_text(piece)))
        # The final item takes its encrypted content from this value.
        item.value = replace(reasoning, id=item.value.id)

    def _add_whole_other(self, item: FunctionCallOutput | items.Compaction | ExtensionItem) -> None:
        self._finish_growing()
        if isinstance(item, items.Compaction):
            id = self._new_id(ID_PREFIXES["compaction"])
            self._finish_item(self._open_item(id, self._options.seal(replace(item, id=id))))
            return
        if item.type == items.CUSTOM_TOOL_CALL and not item.get("call_id"):
            item = replace(item, extra={**(item.extra or {}), "call_id": self._new_id("call")})
        opened = self._open_other(item)
        # A completed response must not hold an incomplete item, so its end decides.
        if item.status != "incomplete":
            self._finish_other(opened, item.status)

    def _open_other(self, item: FunctionCallOutput | ExtensionItem) -> OpenItem:
        id = self._new_id(ID_PREFIXES.get(item.type, "item"))
        return self._open_item(id, replace(item, id=id, status="in_progress"))

    def _finish_other(self, item: OpenItem, status: object) -> None:
        failed = status == "failed" and isinstance(item.value, ExtensionItem)
        item.value = replace(item.value, status="failed" if failed else "completed")
        self._finish_item(item)

    def _ensure_item(self, type: str, key: Key, phase: Phase | None = None) -> OpenItem:
        """Return the open message or reasoning item of a key; open one if there is none."""
        item = self._current_item
        other_phase = phase is not None and item is not None and getattr(item.value, "phase", None) != phase
        if item is None or item.key != key or item.value.type != type or other_phase:
            self._finish_growing()
            item = self._held_items.get(key)
            if item is None or item.value.type != type:
                id = self._new_id(ID_PREFIXES[type])
                empty = Reasoning(id=id) if type == "reasoning" else empty_message(id, phase)
                item = self._open_item(key, empty)
            self._current_item = item
        self._last_grown = item
        return item

    def _open_call(self, part: parts.Call) -> OpenItem:
        self._finish_growing()
        # Remember the key: arguments that arrive after the call is closed must not wait for a name.
        self._named_keys.add(part.key)
        call_id = source_id = repair_surrogates(part.call_id)
        # The specification limits the length of a call_id, and outputs are matched by it.
        if not 0 < len(call_id) <= items.MAX_CALL_ID_LENGTH or call_id in self._used_call_ids:
            call_id = self._new_id("call")
        self._used_call_ids.add(call_id)
        self._unanswered_call_ids.setdefault(source_id, []).append(call_id)
        id = call_id if self._options.reuse_call_ids else self._new_id(ID_PREFIXES["function_call"])
        call = FunctionCall.of(repair_surrogates(part.name), "", call_id=call_id, id=id)
        item = self._open_calls[part.key] = self._open_item(part.key, call)
        item.source_id = part.call_id
        return item

    def _open_item(self, key: Key, item: Item) -> OpenItem:
        self._count_piece()
        opened = OpenItem(key, self.item_count, item)
        self.item_count += 1
        self._unclosed.append(opened)
        self._emitter.emit(events.OutputItemAdded, output_index=opened.index, item=item)
        return opened

    def _count_piece(self) -> None:
        """Count an item, a part or an annotation; raises UpstreamError if there are too many."""
        self._piece_count += 1
        if self._piece_count > MAX_PIECES:
            raise answer_too_large_error(f"it has more than {MAX_PIECES} items, parts and annotations.")

    def _ensure_text(self, item: OpenItem, kind: TextKind, part: int) -> OpenText:
        """Return the open text of an item; close the one before it if it is another."""
        open_text = item.open_text
        if open_text is not None and open_text.kind is kind and open_text.part == part:
            return open_text
        self._close_text(item)
        open_text = OpenText(kind, part, item.part_counts[kind.index_field], str(item.value.id), item.index)
        if kind.part_added_event:
            self._count_piece()
            item.part_counts[kind.index_field] += 1
            self._emitter.emit(kind.part_added_event, part=kind.empty_part(), **open_text.location)
        open_text.pieces = self._emitter.fold.open_text_pieces(item.index, kind.index_field, open_text.index)
        item.open_text = open_text
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
        elif self._options.obfuscate and open_text.kind.obfuscatable:
            padding = self._options.obfuscate(text)
            self._emitter.emit(open_text.kind.delta_event, delta=text, obfuscation=padding, **open_text.location)
        else:
            self._emitter.emit_delta(open_text, text)

    def adopt_open_items(self, stream: Iterable[Event]) -> None:
        """Take over the items that another synthesizer's stream, which the fold has been fed, left open."""
        opened: dict[int, OpenItem] = {}
        for event in stream:
            match event:
                case events.OutputItemAdded(output_index=index, item=item):
                    opened[index] = OpenItem(f"item {index}", index, item)
                    self.item_count = index + 1
                case events.OutputItemDone(output_index=index):
                    del opened[index]
                case events.ContentPartAdded(content_index=part) | events.ReasoningSummaryPartAdded(summary_index=part):
                    kind = events.TEXT_KINDS[event.part.type]
                    opened[event.output_index].open_text = OpenText(kind, 0, part, event.item_id, event.output_index)
                case events.ContentPartDone(output_index=index) | events.ReasoningSummaryPartDone(output_index=index):
                    opened[index].open_text = None
                # The arguments are open from their first event, which is the done event if there was no delta.
                case events.FunctionCallArgumentsDelta() | events.FunctionCallArgumentsDone():
                    open_text = OpenText(CALL_ARGUMENTS, 0, 0, event.item_id, event.output_index)
                    open_text.done_emitted = isinstance(event, events.FunctionCallArgumentsDone)
                    opened[event.output_index].open_text = open_text
                case events.ItemEvent(output_index=index) if type(event) in events.TEXT_DONE_EVENTS:
                    if open_text := opened[index].open_text:
                        open_text.done_emitted = True
                case _:
                    pass
        self._unclosed = list(opened.values())
        for item in self._unclosed:
            # Deltas go on in the fold's own lists.
            if text := item.open_text:
                text.pieces = self._emitter.fold.open_text_pieces(item.index, text.kind.index_field, text.index)

    def close_all(self, status: ItemStatus) -> None:
        """Close every item; those that are not finished get the status."""
        self.dropped_arguments = self.dropped_arguments or any(call.arguments for call in self.nameless_calls.values())
        self.nameless_calls.clear()
        self._current_item = None
        self._open_calls.clear()
        self._held_items.clear()
        while self._unclosed:
            item = self._unclosed.pop(0)
            # The last item to grow may have been cut off even if its arguments are whole JSON.
            whole = item.finished or (item is not self._last_grown and self._has_whole_arguments(item))
            self._close_item(item, "completed" if whole else status)

    def open_empty_message(self) -> None:
        """Open a message with an empty text, for a model that produced no output."""
        self._ensure_text(self._ensure_item("message", 0), OUTPUT_TEXT, 0)

    def has_cut_call(self) -> bool:
        """Return whether a call is still open whose arguments, or whose name, are not whole."""
        open_calls = [item for item in self._unclosed if isinstance(item.value, FunctionCall) and not item.finished]
        return bool(self.nameless_calls) or any(
            call.open_text is not None and not self._has_whole_arguments(call) for call in open_calls
        )

    def _finish_growing(self) -> None:
        """Finish the items that cannot grow any more because another item begins."""
        current, self._current_item = self._current_item, None
        if current is not None and not current.held:
            self._finish_item(current)
        # Only these: the others were not whole when they were last looked at.
        grown, self._grown_calls = self._grown_calls, {}
        for call in [call for call in grown.values() if not call.finished and self._has_whole_arguments(call)]:
            self._finish_item(call)

    def _finish_item(self, item: OpenItem) -> None:
        """Mark an item as finished, and close every finished item at the head of the queue."""
        item.finished = True
        if self._current_item is item:
            self._current_item = None
        if isinstance(item.value, FunctionCall):
            del self._open_calls[item.key]
        # The rule `done-in-order`: an item waits until all items before it are done.
        while self._unclosed and self._unclosed[0].finished:
            self._close_item(self._unclosed.pop(0), "completed")

    def _close_item(self, item: OpenItem, status: ItemStatus) -> None:
        if isinstance(item.value, FunctionCall) and item.open_text is None:
            arguments = self._ensure_text(item, CALL_ARGUMENTS, 0)
            # A call without arguments: clients parse them as JSON, and "" is not JSON.
            if status == "completed":
                self._add_delta(arguments, "{}")
        self._close_text(item)
        self._emitter.emit(events.OutputItemDone, output_index=item.index, item=self._final_item(item, status))

    def _final_item(self, item: OpenItem, status: ItemStatus) -> Item:
        """Return the item that its events have built, with its final status."""
        built = self._emitter.fold.item(item.index)
        match item.value:
            # The specification gives reasoning and compaction items no status.
            case Reasoning(encrypted_content=encrypted):
                return self._options.seal(replace(built, encrypted_content=encrypted))
            case items.Compaction():
                return built
            case Message() | FunctionCall():
                return replace(built, status=status)
            case _:
                return item.value if item.finished else replace(item.value, status=status)

    def _close_text(self, item: OpenItem) -> None:
        open_text, item.open_text = item.open_text, None
        if open_text is None:
            return
        kind, location = open_text.kind, open_text.location
        if rest := open_text.joiner.close():
            self._emitter.emit(kind.delta_event, delta=rest, **location)
        part = self._emitter.fold.part(item.index, kind.index_field, open_text.index) if kind.index_field else None
        if not open_text.done_emitted:
            logprobs = {"logprobs": part.logprobs} if isinstance(part, items.OutputText) else {}
            fields = {kind.text_field: "".join(open_text.pieces), **logprobs}
            self._emitter.emit(kind.text_done_event, **fields, **location)
        if kind.part_done_event:
            self._emitter.emit(kind.part_done_event, part=part, **location)

    def _has_whole_arguments(self, item: OpenItem) -> bool:
        if not isinstance(item.value, FunctionCall) or item.open_text is None:
            return False
        text = "".join(item.open_text.pieces)
        # Cheap test first: this runs for every open call whenever another item begins.
        if not text.rstrip().endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode(text), dict)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False


def empty_message(id: str, phase: Phase | None = None) -> Message:
    """Return the message that text is then streamed into."""
    return Message(id=id, status="in_progress", role="assistant", content=[], phase=phase or UNSET)
