"""How a response is written, beyond what its parts say."""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.protocol import content, items, parts
from antiphon.protocol.errors import LocalProtocolError
from antiphon.protocol.events import (
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
)
from antiphon.protocol.fast_text import (
    EventEmitter,
    ItemKind,
    OpenItem,
    OpenText,
)
from antiphon.protocol.items import (
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    Phase,
    Reasoning,
)
from antiphon.protocol.parts import Key
from antiphon.protocol.surrogates import repair_surrogates, repair_value
from antiphon.protocol.text_kinds import (
    CALL_ARGUMENTS,
    OUTPUT_TEXT,
    REASONING_TEXT,
    REFUSAL,
    SUMMARY_TEXT,
    TextKind,
)


class SynthOptions(Struct, frozen=True):
    """A writer's habits; by default there are none."""

    keep_empty: bool = False
    """Whether deltas without words are told too."""

    pad: Callable[[str], str] | None = None
    """Makes the noise that hides how long a delta is."""

    seal: Callable[[Item], Item] | None = None
    """Closes what only its maker may read, before an item leaves."""

    one_message: bool = False
    """Whether all words go to one message, which is the first item and open to the end."""

    calls_by_id: bool = False
    """Whether the item of a call has the id of the call."""

    ids: Callable[[str], str] | None = None
    """Makes the ids of items in another form than the synthesizer's own source."""


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
"""How ids begin, by the type of an item; OpenAI checks it when an item comes back."""


class ItemSynth:
    """Everything a response's items are made through."""

    def __init__(
        self,
        emitter: EventEmitter,
        ids: Callable[[str], str],
        options: SynthOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._emitter = emitter
        self._new_id = ids
        self._keep_empty = options.keep_empty
        self._obfuscate = options.pad
        self._seal_hook = options.seal
        self._calls_by_id = options.calls_by_id
        self._unclosed: list[OpenItem] = []
        self._current_item: OpenItem | None = None
        self._open_calls: dict[Key, OpenItem] = {}
        self._nameless_calls: dict[Key, parts.Call] = {}
        self._named_keys: set[Key] = set()
        self.dropped_arguments = False
        """Whether arguments came that belong to no call."""
        self._used_call_ids: set[str] = set()
        self._last_grown: OpenItem | None = None
        self.item_count = 0

    # --- growing ---

    def add_text(self, part: parts.Text) -> None:
        """Add words to a message."""
        text = part.text
        strand = self.find_growing_text(part.key, part.part)
        if strand and text and text.isascii() and not (part.logprobs or part.phase):
            self._emitter.emit_delta(strand, text)  # so it is nearly always
        elif text or part.logprobs or self._keep_empty:
            strand = self._ensure_text(
                self._ensure_item("message", part.key, part.phase), OUTPUT_TEXT, part.part
            )
            self._add_delta(strand, part.text, part.logprobs)

    def find_growing_text(self, key: Key, part: int) -> OpenText | None:
        """Return the text to which plain words of a key belong, if it was the last to grow."""
        item = self._last_grown
        strand = item.strand if item is not None and item is self._current_item else None
        if (
            item is None
            or strand is None
            or strand.kind is not OUTPUT_TEXT
            or item.key != key
            or strand.part != part
            or self._obfuscate
            or strand.joiner.pending
        ):
            return None
        return strand

    def add_refusal(self, part: parts.Refusal) -> None:
        """Add words to a refusal."""
        if part.text or self._keep_empty:
            strand = self._ensure_text(self._ensure_item("message", part.key), REFUSAL, part.part)
            self._add_delta(strand, part.text)

    def add_reasoning(self, part: parts.Reasoning) -> None:
        """Add raw thinking, a summary, or a seal to a reasoning item."""
        if not (part.text or part.summary or part.encrypted_content):
            return
        item = self._ensure_item("reasoning", part.key)
        if part.text:
            self._add_delta(self._ensure_text(item, REASONING_TEXT, part.part), part.text)
        if part.summary:
            self._add_delta(self._ensure_text(item, SUMMARY_TEXT, part.part), part.summary)
        if part.encrypted_content and isinstance(item.value, Reasoning):
            seal = repair_surrogates(part.encrypted_content)
            item.value = replace(item.value, encrypted_content=seal)

    def add_annotation(self, part: parts.Annotation) -> None:
        """Add a note to a message's text."""
        note = repair_value(part.annotation)
        strand = self._ensure_text(self._ensure_item("message", part.key), OUTPUT_TEXT, part.part)
        index, strand.annotations = strand.annotations, strand.annotations + 1
        self._emitter.emit(
            OutputTextAnnotationAdded,
            annotation_index=index,
            annotation=note,
            **strand.location,
        )

    def add_call(self, part: parts.Call) -> None:
        """Begin a call, or add to its arguments."""
        item = self._open_calls.get(part.key)
        if item and part.name and part.call_id and part.call_id != item.source_id:
            self._finish_item(item)
            item = None
        if item is None:
            if earlier := self._nameless_calls.pop(part.key, None):
                part = _join_calls(earlier, part)
            if not part.name:
                if part.key in self._named_keys:  # a tail of a call that is over
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
        """Add an item that arrives finished, through the same steps as one that grows."""
        key = f"whole {self.item_count}"
        item = repair_value(item)  # what cannot be written must not be begun either
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
            strand = self._ensure_text(
                item, REFUSAL if isinstance(piece, content.RefusalContent) else OUTPUT_TEXT, index
            )
            written = isinstance(piece, content.OutputText)
            text, logprobs = (
                content.content_text(piece),
                (piece.logprobs or None) if written else None,
            )
            if text or logprobs:
                self._add_delta(strand, text, logprobs)
            for note in piece.annotations if written else []:
                self.add_annotation(parts.Annotation(note, key, index))
        if message.status != "incomplete":
            self._finish_item(item)

    def _add_whole_reasoning(self, reasoning: Reasoning, key: Key) -> None:
        item = self._ensure_item("reasoning", key)
        for index, piece in enumerate(reasoning.content or []):
            self.add_reasoning(parts.Reasoning(content.content_text(piece), key, index))
        for index, piece in enumerate(reasoning.summary):
            self.add_reasoning(
                parts.Reasoning(key=key, part=index, summary=content.content_text(piece))
            )
        item.value = reasoning
        self._finish_item(item)

    def _add_whole_other(
        self, item: items.FunctionCallOutput | items.Compaction | items.ExtensionItem
    ) -> None:
        self._finish_growing()
        id = self._new_id(ID_PREFIXES.get(item.type, "item"))
        if isinstance(item, items.Compaction):
            self._finish_item(self._open_item("whole", id, self._apply_seal(replace(item, id=id))))
            return
        if item.type == items.CUSTOM_TOOL_CALL and not item.get("call_id"):
            item = replace(item, extra={**(item.extra or {}), "call_id": self._new_id("call")})
        opened = self._open_item("whole", id, replace(item, id=id, status="in_progress"))
        if item.status == "incomplete":  # only the end can tell whether it may stay so
            return
        status = "failed" if item.status == "failed" else "completed"
        opened.value = replace(item, id=id, status=status)
        self._finish_item(opened)

    # --- opening ---

    def _ensure_item(self, kind: ItemKind, key: Key, phase: Phase | None = None) -> OpenItem:
        """Return the open message or reasoning item of a key, opening it if need be."""
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
        self._named_keys.add(part.key)
        call_id = repair_surrogates(part.call_id)
        if not 0 < len(call_id) <= items.MAX_CALL_ID_LENGTH or call_id in self._used_call_ids:
            call_id = self._new_id("call")
        self._used_call_ids.add(call_id)
        id = call_id if self._calls_by_id else self._new_id(ID_PREFIXES["function_call"])
        call = FunctionCall(
            id=id,
            call_id=call_id,
            name=repair_surrogates(part.name),
            arguments="",
            status="in_progress",
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
        """Return the open strand of an item, closing the one before it if need be."""
        strand = item.strand
        if strand is not None and strand.kind is kind and strand.part == part:
            return strand
        if strand is not None:
            self._close_text(item, strand)
        place: dict[str, object] = {"item_id": item.id, "output_index": item.index}
        index = item.counts.get(kind.index_field, 0)
        if kind.part_added_event:
            item.counts[kind.index_field] = index + 1
            place[kind.index_field] = index
            self._emitter.emit(kind.part_added_event, part=kind.empty_part(), **place)
        item.strand = self._bind_pieces(item, OpenText(kind, part, index, place))
        return item.strand

    def _bind_pieces(self, item: OpenItem, open_text: OpenText) -> OpenText:
        open_text.pieces = self._emitter.fold.open_text_pieces(
            item.index, open_text.kind.index_field, open_text.index
        )
        return open_text

    def _add_delta(
        self, open_text: OpenText, text: str, logprobs: list[content.LogProb] | None = None
    ) -> None:
        if not text.isascii() or open_text.joiner.pending:
            text = open_text.joiner.feed(text)
            if not (text or logprobs):
                return
        if logprobs:
            logprobs = repair_value(logprobs)
            self._emitter.emit(
                open_text.kind.delta_event, delta=text, logprobs=logprobs, **open_text.location
            )
        elif self._obfuscate and open_text.kind.obfuscatable:
            padding = self._obfuscate(text)
            self._emitter.emit(
                open_text.kind.delta_event, delta=text, obfuscation=padding, **open_text.location
            )
        else:
            self._emitter.emit_delta(open_text, text)

    def adopt_open_items(self, unclosed: list[OpenItem], count: int) -> None:
        """Take over items that an earlier synthesizer left open."""
        self._unclosed, self.item_count = unclosed, count
        for item in unclosed:
            if item.strand:
                self._bind_pieces(item, item.strand)

    def forget_nameless_calls(self) -> None:
        """Forget the calls that have no name yet."""
        self._nameless_calls.clear()

    # --- closing ---

    def close_all(self, status: ItemStatus) -> None:
        """Close every item; what was still growing gets the status."""
        self.dropped_arguments = self.dropped_arguments or any(
            call.arguments for call in self._nameless_calls.values()
        )
        self._nameless_calls.clear()
        self._current_item = None
        self._open_calls.clear()
        while self._unclosed:
            item = self._unclosed.pop(0)
            whole = item.finished or (
                item is not self._last_grown and self._has_whole_arguments(item)
            )
            self._close_item(item, "completed" if whole else status)

    def add_empty_message(self) -> None:
        """Answer with no words, which is what a model that said nothing has done."""
        self._ensure_text(self._ensure_item("message", 0), OUTPUT_TEXT, 0)
        self.close_all("completed")

    def _finish_growing(self) -> None:
        """Seal what cannot grow any more because another item begins."""
        if self._current_item is not None:
            self._finish_item(self._current_item)
        for call in [call for call in self._open_calls.values() if self._has_whole_arguments(call)]:
            self._finish_item(call)

    def _finish_item(self, item: OpenItem) -> None:
        """Take an item out of growth, and close every item whose turn it is."""
        item.finished = True
        if self._current_item is item:
            self._current_item = None
        if item.kind == "call":
            del self._open_calls[item.key]
        while self._unclosed and self._unclosed[0].finished:
            self._close_item(self._unclosed.pop(0), "completed")

    def _close_item(self, item: OpenItem, status: ItemStatus) -> None:
        told = item.strand is not None and item.strand.done_emitted
        if item.kind == "call" and item.strand is None and status == "completed":
            self._add_delta(self._ensure_text(item, CALL_ARGUMENTS, 0), "{}")
        if item.strand is not None:
            self._close_text(item, item.strand)
        value = self._final_item(item, status)
        if isinstance(value, FunctionCall) and not told:
            self._emitter.emit(
                FunctionCallArgumentsDone,
                item_id=item.id,
                output_index=item.index,
                arguments=value.arguments,
            )
        self._emitter.emit(OutputItemDone, output_index=item.index, item=value)

    def _final_item(self, item: OpenItem, status: ItemStatus) -> Item:
        """Return an item as its events have made it."""
        if item.kind == "whole" and item.finished:
            return item.value
        grown = self._emitter.fold.item(item.index)
        if isinstance(grown, Reasoning) and isinstance(item.value, Reasoning):
            return self._apply_seal(replace(grown, encrypted_content=item.value.encrypted_content))
        statusless = isinstance(grown, Reasoning | items.Compaction)
        return grown if statusless else replace(grown, status=status)

    def _apply_seal(self, item: Item) -> Item:
        return self._seal_hook(item) if self._seal_hook else item

    def _close_text(self, item: OpenItem, open_text: OpenText) -> None:
        item.strand = None
        face, place = open_text.kind, open_text.location
        if rest := open_text.joiner.close():
            self._emitter.emit(face.delta_event, delta=rest, **place)
        if face.text_done_event and face.part_done_event:
            fold = self._emitter.fold
            read = fold.summary if face is SUMMARY_TEXT else fold.content
            part = read(item.index, open_text.index)
            if not open_text.done_emitted:
                self._emitter.emit(face.text_done_event, **face.done_fields(part), **place)
            self._emitter.emit(face.part_done_event, part=part, **place)

    def _has_whole_arguments(self, item: OpenItem) -> bool:
        """Tell whether a call's arguments are a whole JSON object."""
        if item.kind != "call" or item.strand is None:
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
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
