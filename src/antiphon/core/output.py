"""The items of a response while they grow: what is open, and when it is closed.

- A message or a reasoning item is open until a part of another item comes; within it one piece of
  content is open until a part of another piece comes.
- Calls may interleave. A call is open until its source says it is complete, or another item begins
  while its arguments are whole JSON, or the end.
- Items are closed in the order of their index. One that ends while an earlier one is still open
  waits for it.
"""

from collections.abc import Callable

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core import content, items, parts
from antiphon.core.errors import LocalProtocolError
from antiphon.core.events import (
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextAnnotationAdded,
)
from antiphon.core.faces import ARGUMENTS, RAW, REFUSAL, SUMMARY, TEXT, Face
from antiphon.core.items import FunctionCall, Item, Message, Phase, Reasoning, Status
from antiphon.core.manner import PLAIN, Manner
from antiphon.core.opened import Kind, Open, Strand, Stream
from antiphon.core.parts import Key
from antiphon.core.surrogates import mend, mended

PREFIX = {
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


class Output:
    """Everything a response's items are made through."""

    def __init__(
        self,
        stream: Stream,
        ids: Callable[[str], str],
        manner: Manner = PLAIN,
    ) -> None:
        self._stream = stream
        self._ids = ids
        self._keep_empty = manner.keep_empty
        self._pad = manner.pad
        self._hide = manner.seal
        self._calls_by_id = manner.calls_by_id
        self._undone: list[Open] = []
        self._current: Open | None = None
        self._calls: dict[Key, Open] = {}
        self._nameless: dict[Key, parts.Call] = {}
        self._named: set[Key] = set()
        self.lost = False
        """Whether arguments came that belong to no call."""
        self._call_ids: set[str] = set()
        self._touched: Open | None = None
        self.count = 0

    # --- growing ---

    def text(self, part: parts.Text) -> None:
        """Add words to a message."""
        text = part.text
        strand = self.growing(part.key, part.part)
        if strand and text and text.isascii() and not (part.logprobs or part.phase):
            self._stream.grow(strand, text)  # so it is nearly always
        elif text or part.logprobs or self._keep_empty:
            strand = self._strand(
                self._sequential("message", part.key, part.phase), TEXT, part.part
            )
            self._delta(strand, part.text, part.logprobs)

    def growing(self, key: Key, part: int) -> Strand | None:
        """Return the text to which plain words of a key belong, if it was the last to grow."""
        item = self._touched
        strand = item.strand if item is not None and item is self._current else None
        if (
            item is None
            or strand is None
            or strand.face is not TEXT
            or item.key != key
            or strand.part != part
            or self._pad
            or strand.joiner.held
        ):
            return None
        return strand

    def refusal(self, part: parts.Refusal) -> None:
        """Add words to a refusal."""
        if part.text or self._keep_empty:
            strand = self._strand(self._sequential("message", part.key), REFUSAL, part.part)
            self._delta(strand, part.text)

    def reasoning(self, part: parts.Reasoning) -> None:
        """Add raw thinking, a summary, or a seal to a reasoning item."""
        if not (part.text or part.summary or part.encrypted_content):
            return
        item = self._sequential("reasoning", part.key)
        if part.text:
            self._delta(self._strand(item, RAW, part.part), part.text)
        if part.summary:
            self._delta(self._strand(item, SUMMARY, part.part), part.summary)
        if part.encrypted_content and isinstance(item.value, Reasoning):
            seal = mend(part.encrypted_content)
            item.value = replace(item.value, encrypted_content=seal)

    def annotation(self, part: parts.Annotation) -> None:
        """Add a note to a message's text."""
        note = mended(part.annotation)
        strand = self._strand(self._sequential("message", part.key), TEXT, part.part)
        index, strand.annotations = strand.annotations, strand.annotations + 1
        self._stream.say(
            OutputTextAnnotationAdded,
            annotation_index=index,
            annotation=note,
            **strand.place,
        )

    def call(self, part: parts.Call) -> None:
        """Begin a call, or add to its arguments."""
        item = self._calls.get(part.key)
        if item and part.name and part.call_id and part.call_id != item.source_id:
            self._seal(item)
            item = None
        if item is None:
            if earlier := self._nameless.pop(part.key, None):
                part = _joined(earlier, part)
            if not part.name:
                if part.key in self._named:  # a tail of a call that is over
                    self.lost = self.lost or bool(part.arguments)
                else:
                    self._nameless[part.key] = part
                return
            item = self._open_call(part)
        self._touched = item
        if part.arguments:
            self._delta(self._strand(item, ARGUMENTS, 0), part.arguments)
        if part.complete:
            self._seal(item)

    def whole(self, item: Item) -> None:
        """Add an item that arrives finished, through the same steps as one that grows."""
        key = f"whole {self.count}"
        item = mended(item)  # what cannot be written must not be begun either
        match item:
            case Message():
                self._whole_message(item, key)
            case Reasoning():
                self._whole_reasoning(item, key)
            case FunctionCall():
                complete = item.status != "incomplete"
                self.call(parts.Call(key, item.name, item.arguments, item.call_id, complete))
            case items.ItemReference():
                raise LocalProtocolError("an item reference is input only")
            case _:
                self._whole_other(item)

    def _whole_message(self, message: Message, key: Key) -> None:
        phase = None if message.phase is UNSET else message.phase
        item = self._sequential("message", key, phase)
        for index, piece in enumerate(message.content):
            strand = self._strand(
                item, REFUSAL if isinstance(piece, content.Refusal) else TEXT, index
            )
            written = isinstance(piece, content.OutputText)
            text, logprobs = content.text_of(piece), (piece.logprobs or None) if written else None
            if text or logprobs:
                self._delta(strand, text, logprobs)
            for note in piece.annotations if written else []:
                self.annotation(parts.Annotation(note, key, index))
        if message.status != "incomplete":
            self._seal(item)

    def _whole_reasoning(self, reasoning: Reasoning, key: Key) -> None:
        item = self._sequential("reasoning", key)
        for index, piece in enumerate(reasoning.content or []):
            self.reasoning(parts.Reasoning(content.text_of(piece), key, index))
        for index, piece in enumerate(reasoning.summary):
            self.reasoning(parts.Reasoning(key=key, part=index, summary=content.text_of(piece)))
        item.value = reasoning
        self._seal(item)

    def _whole_other(
        self, item: items.FunctionCallOutput | items.Compaction | items.ExtensionItem
    ) -> None:
        self._yield_to_next()
        id = self._ids(PREFIX.get(item.type, "item"))
        if isinstance(item, items.Compaction):
            self._seal(self._open("whole", id, self._hidden(replace(item, id=id))))
            return
        if item.type == items.CUSTOM_CALL and not item.get("call_id"):
            item = replace(item, extra={**(item.extra or {}), "call_id": self._ids("call")})
        opened = self._open("whole", id, replace(item, id=id, status="in_progress"))
        if item.status == "incomplete":  # only the end can tell whether it may stay so
            return
        status = "failed" if item.status == "failed" else "completed"
        opened.value = replace(item, id=id, status=status)
        self._seal(opened)

    # --- opening ---

    def _sequential(self, kind: Kind, key: Key, phase: Phase | None = None) -> Open:
        """Return the open message or reasoning item of a key, opening it if need be."""
        item = self._current
        if item is None or item.key != key or item.kind != kind or _other_phase(item, phase):
            self._yield_to_next()
            id = self._ids(PREFIX[kind])
            shown = UNSET if phase is None else phase
            empty = (
                Reasoning(id=id)
                if kind == "reasoning"
                else Message(id=id, status="in_progress", role="assistant", content=[], phase=shown)
            )
            item = self._current = self._open(kind, key, empty)
        self._touched = item
        return item

    def _open_call(self, part: parts.Call) -> Open:
        self._yield_to_next()
        self._named.add(part.key)
        call_id = mend(part.call_id)
        if not 0 < len(call_id) <= items.CALL_ID_LIMIT or call_id in self._call_ids:
            call_id = self._ids("call")
        self._call_ids.add(call_id)
        id = call_id if self._calls_by_id else self._ids(PREFIX["function_call"])
        call = FunctionCall(
            id=id, call_id=call_id, name=mend(part.name), arguments="", status="in_progress"
        )
        item = self._calls[part.key] = self._open("call", part.key, call)
        item.source_id = part.call_id
        return item

    def _open(self, kind: Kind, key: Key, item: Item) -> Open:
        opened = Open(kind, key, self.count, item)
        self.count += 1
        self._undone.append(opened)
        self._stream.say(OutputItemAdded, output_index=opened.index, item=item)
        return opened

    def _strand(self, item: Open, face: Face, part: int) -> Strand:
        """Return the open strand of an item, closing the one before it if need be."""
        strand = item.strand
        if strand is not None and strand.face is face and strand.part == part:
            return strand
        if strand is not None:
            self._close_strand(item, strand)
        place: dict[str, object] = {"item_id": item.id, "output_index": item.index}
        index = item.counts.get(face.index, 0)
        if face.added:
            item.counts[face.index] = index + 1
            place[face.index] = index
            self._stream.say(face.added, part=face.empty(), **place)
        item.strand = self._folded(item, Strand(face, part, index, place))
        return item.strand

    def _folded(self, item: Open, strand: Strand) -> Strand:
        strand.pieces = self._stream.fold.pieces(item.index, strand.face.index, strand.index)
        return strand

    def _delta(
        self, strand: Strand, text: str, logprobs: list[content.LogProb] | None = None
    ) -> None:
        if not text.isascii() or strand.joiner.held:
            text = strand.joiner.feed(text)
            if not (text or logprobs):
                return
        if logprobs:
            logprobs = mended(logprobs)
            self._stream.say(strand.face.delta, delta=text, logprobs=logprobs, **strand.place)
        elif self._pad and strand.face.padded:
            padding = self._pad(text)
            self._stream.say(strand.face.delta, delta=text, obfuscation=padding, **strand.place)
        else:
            self._stream.grow(strand, text)

    def adopt(self, undone: list[Open], count: int) -> None:
        """Take over items that an earlier synthesizer left open."""
        self._undone, self.count = undone, count
        for item in undone:
            if item.strand:
                self._folded(item, item.strand)

    def restart(self) -> None:
        """Forget the calls that have no name yet."""
        self._nameless.clear()

    # --- closing ---

    def close(self, status: Status) -> None:
        """Close every item; what was still growing gets the status."""
        self.lost = self.lost or any(call.arguments for call in self._nameless.values())
        self._nameless.clear()
        self._current = None
        self._calls.clear()
        while self._undone:
            item = self._undone.pop(0)
            whole = item.sealed or (item is not self._touched and self._is_whole(item))
            self._close(item, "completed" if whole else status)

    def close_empty(self) -> None:
        """Answer with no words, which is what a model that said nothing has done."""
        self._strand(self._sequential("message", 0), TEXT, 0)
        self.close("completed")

    def _yield_to_next(self) -> None:
        """Seal what cannot grow any more because another item begins."""
        if self._current is not None:
            self._seal(self._current)
        for call in [call for call in self._calls.values() if self._is_whole(call)]:
            self._seal(call)

    def _seal(self, item: Open) -> None:
        """Take an item out of growth, and close every item whose turn it is."""
        item.sealed = True
        if self._current is item:
            self._current = None
        if item.kind == "call":
            del self._calls[item.key]
        while self._undone and self._undone[0].sealed:
            self._close(self._undone.pop(0), "completed")

    def _close(self, item: Open, status: Status) -> None:
        told = item.strand is not None and item.strand.told
        if item.kind == "call" and item.strand is None and status == "completed":
            self._delta(self._strand(item, ARGUMENTS, 0), "{}")
        if item.strand is not None:
            self._close_strand(item, item.strand)
        value = self._grown(item, status)
        if isinstance(value, FunctionCall) and not told:
            self._stream.say(
                FunctionCallArgumentsDone,
                item_id=item.id,
                output_index=item.index,
                arguments=value.arguments,
            )
        self._stream.say(OutputItemDone, output_index=item.index, item=value)

    def _grown(self, item: Open, status: Status) -> Item:
        """Return an item as its events have made it."""
        if item.kind == "whole" and item.sealed:
            return item.value
        grown = self._stream.fold.item(item.index)
        if isinstance(grown, Reasoning) and isinstance(item.value, Reasoning):
            return self._hidden(replace(grown, encrypted_content=item.value.encrypted_content))
        statusless = isinstance(grown, Reasoning | items.Compaction)
        return grown if statusless else replace(grown, status=status)

    def _hidden(self, item: Item) -> Item:
        return self._hide(item) if self._hide else item

    def _close_strand(self, item: Open, strand: Strand) -> None:
        item.strand = None
        face, place = strand.face, strand.place
        if rest := strand.joiner.close():
            self._stream.say(face.delta, delta=rest, **place)
        if face.done and face.closed:
            fold = self._stream.fold
            read = fold.summary if face is SUMMARY else fold.content
            part = read(item.index, strand.index)
            if not strand.told:
                self._stream.say(face.done, **face.whole(part), **place)
            self._stream.say(face.closed, part=part, **place)

    def _is_whole(self, item: Open) -> bool:
        """Tell whether a call's arguments are a whole JSON object."""
        if item.kind != "call" or item.strand is None:
            return False
        call = self._stream.fold.item(item.index)
        return isinstance(call, FunctionCall) and _is_object(call.arguments)


def _other_phase(item: Open, phase: Phase | None) -> bool:
    return phase is not None and isinstance(item.value, Message) and item.value.phase != phase


def _joined(first: parts.Call, then: parts.Call) -> parts.Call:
    arguments = first.arguments + then.arguments
    call_id = then.call_id or first.call_id
    return parts.Call(then.key, then.name, arguments, call_id, first.complete or then.complete)


def _is_object(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
