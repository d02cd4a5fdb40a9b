"""The rules of a stream, as tables: which events may follow which, and in which states.

`checker` applies them. Our own synthesizer is tested against them and foreign streams are checked
with them. The events of each kind of text are in `events`. Every rule has a name and a sentence;
both appear in warnings, so the names are stable.
"""

from typing import NamedTuple

from antiphon.protocol.events import TEXT_KINDS

ITEM_START_STATUSES = frozenset({"in_progress"})
ITEM_FINAL_STATUSES = frozenset({"incomplete", "completed", "failed"})
"""The statuses in which an item may be added, and be done; `failed` is for extension items."""

RESPONSE_TRANSITIONS: dict[str, frozenset[str]] = {
    # The empty name stands for the start of the stream.
    "": frozenset({"response.created"}),
    # A response may fail or be cancelled before any work began.
    "response.created": frozenset(
        {"response.queued", "response.in_progress", "response.failed", "response.incomplete"}
    ),
    "response.queued": frozenset({"response.in_progress", "response.failed", "response.incomplete"}),
    "response.in_progress": frozenset({"response.completed", "response.failed", "response.incomplete"}),
    "response.completed": frozenset(),
    "response.failed": frozenset(),
    "response.incomplete": frozenset(),
}
"""The lifecycle events of a response that may follow each of them; the first follows none."""

RESPONSE_STATUSES_BY_EVENT: dict[str, frozenset[str]] = {
    "response.created": frozenset({"queued", "in_progress"}),
    "response.queued": frozenset({"queued"}),
    "response.in_progress": frozenset({"in_progress"}),
    "response.completed": frozenset({"completed"}),
    "response.failed": frozenset({"failed"}),
    # The specification has no cancelled event.
    "response.incomplete": frozenset({"incomplete", "cancelled"}),
}
"""The statuses that a response may have in each of its lifecycle events."""

PART_TRANSITIONS: dict[str, dict[str, str]] = {
    "open": {"delta": "open", "annotation": "open", "text_done": "text done"},
    "text done": {"part_done": "done"},
    "done": {},
}
"""The states of a content part: by state, the state that each step leads to."""

PART_TYPES: dict[tuple[str, str], set[str]] = {}
"""The types of parts that an item may hold, by the item's type and the parts' index field."""

for _kind in TEXT_KINDS.values():
    PART_TYPES.setdefault((_kind.item_type, _kind.index_field), set()).add(_kind.content_type)

RULES: dict[str, str] = {
    "created-first": "The first event is response.created.",
    "response-order": "A response is created, may be queued, is in progress, then ends once.",
    "nothing-after-end": "Nothing follows the event that ends the response.",
    "response-status": "A response's status agrees with the event that carries it.",
    "response-id": "Every event of one stream carries the same response id.",
    "sequence-increases": "Each sequence_number is greater than the one before.",
    "sequence-gapless": "Sequence numbers start at 0 and leave no gap.",
    "error-then-failed": "An error event is followed by response.failed and nothing else.",
    "event-type": "An event that is not in the specification has a type of the form slug:name.",
    "in-progress-first": "Output begins only after response.in_progress.",
    "index-gapless": "Each new item takes the next output_index, and no index is used twice.",
    "item-id": "An item has an id, and no two items share one.",
    "item-added": "An event inside an item comes after that item was added.",
    "item-open": "Nothing happens inside an item that is done.",
    "item-identity": "An item keeps its type, id, call_id and name from added to done.",
    "item-status": "An item is added in progress and done in a status that ends it.",
    "item-done": "Every item that was added is done before the response ends.",
    "done-in-order": "Items are done in the order of their output_index.",
    "item-content": "A finished item holds exactly what its events carried.",
    "id-stable": "Every event inside an item names the item's own id.",
    "part-index": "Each new part takes the next content_index or summary_index.",
    "part-kind": "A part is of a kind its item can hold, and its events are of the part's kind.",
    "part-added": "An event inside a part comes after that part was added.",
    "part-order": "A part is added, grows, has its text done, is done, and does not change again.",
    "part-done": "Every part that was added is done before its item is.",
    "deltas-add-up": "The deltas of a text, joined, are the text.",
    "annotation-index": "Each new annotation takes the next annotation_index.",
    "arguments-done": "A call's arguments are done, once, before the call is.",
    "no-incomplete-in-completed": "A completed response holds no incomplete item.",
    "output-matches": "The final output is the finished items, in order.",
    "error-told": "A failed response has an error; no other response has one.",
    "reason-told": "An incomplete response has a reason; a completed one has none.",
    "usage-adds-up": "total_tokens is input_tokens plus output_tokens.",
}


class RuleViolation(NamedTuple):
    """A broken rule, and the position of the event that breaks it; -1 if there are no events."""

    rule: str
    detail: str
    position: int

    def __str__(self) -> str:
        place = f"event {self.position}: " if self.position >= 0 else ""
        return f"{place}{RULES[self.rule]} {self.detail} [{self.rule}]"
