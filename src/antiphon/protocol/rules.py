"""The rules: what a stream of events may say, and in which order, as tables.

`judge.py` walks them. Our own synthesizer is tested against them, foreign streams are judged by
them, and the conformance checker quotes them. Every rule has a name and a sentence.
"""

from typing import NamedTuple

from antiphon.protocol.errors import RemoteProtocolError

ITEM_STATUS_TRANSITIONS: dict[str, frozenset[str]] = {
    "in_progress": frozenset({"incomplete", "completed", "failed"}),
    "incomplete": frozenset(),
    "completed": frozenset(),
    "failed": frozenset(),
}
"""From each status of an item, where it may go; `failed` is for extension items."""

RESPONSE_TRANSITIONS: dict[str, frozenset[str]] = {
    "": frozenset({"response.created"}),
    "response.created": frozenset(
        {"response.queued", "response.in_progress", "response.failed", "response.incomplete"}
    ),
    "response.queued": frozenset(
        {"response.in_progress", "response.failed", "response.incomplete"}
    ),
    "response.in_progress": frozenset(
        {"response.completed", "response.failed", "response.incomplete"}
    ),
    "response.completed": frozenset(),
    "response.failed": frozenset(),
    "response.incomplete": frozenset(),
}
"""After each event of a response's life, which may follow."""

RESPONSE_STATUSES_BY_EVENT: dict[str, frozenset[str]] = {
    "response.created": frozenset({"queued", "in_progress"}),
    "response.queued": frozenset({"queued"}),
    "response.in_progress": frozenset({"in_progress"}),
    "response.completed": frozenset({"completed"}),
    "response.failed": frozenset({"failed"}),
    "response.incomplete": frozenset({"incomplete", "cancelled"}),
}
"""The statuses that a response may have in each event of its life."""

PART_TRANSITIONS: dict[str, dict[str, str]] = {
    "open": {"delta": "open", "annotation": "open", "text": "said"},
    "said": {"part": "closed"},
    "closed": {},
}
"""From each state of a content part, which step leads where."""

CONTENT_TYPES_BY_ITEM: dict[str, frozenset[str]] = {
    "message": frozenset({"output_text", "refusal"}),
    "reasoning": frozenset({"reasoning_text"}),
}
"""The content parts that each type of item streams."""

CONTENT_TYPE_BY_EVENT: dict[str, str] = {
    "response.output_text.delta": "output_text",
    "response.output_text.done": "output_text",
    "response.output_text.annotation.added": "output_text",
    "response.refusal.delta": "refusal",
    "response.refusal.done": "refusal",
    "response.reasoning.delta": "reasoning_text",
    "response.reasoning.done": "reasoning_text",
}
"""The content part that each event belongs in."""

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
    "item-content": "A finished item holds exactly what its events said.",
    "id-stable": "Every event inside an item names the item's own id.",
    "part-index": "Each new part takes the next content_index or summary_index.",
    "part-kind": "A part is of a kind its item can hold, and its events are of the part's kind.",
    "part-added": "An event inside a part comes after that part was added.",
    "part-order": "A part is added, grows, has its text done, is done; and then is left alone.",
    "part-done": "Every part that was added is done before its item is.",
    "deltas-add-up": "The deltas of a text, joined, are the text.",
    "annotation-index": "Each new annotation takes the next annotation_index.",
    "arguments-done": "A call's arguments are done, once, before the call is.",
    "no-incomplete-in-completed": "A completed response holds no incomplete item.",
    "output-matches": "The final output is the finished items, in order.",
    "error-told": "A failed response says its error; no other response has one.",
    "reason-told": "An incomplete response says why; a completed one has no reason.",
    "usage-adds-up": "total_tokens is input_tokens plus output_tokens.",
}


def is_terminal_status(status: str) -> bool:
    """Tell whether an item of this status will not change any more."""
    return not ITEM_STATUS_TRANSITIONS[status]


def is_success_status(status: str) -> bool:
    """Tell whether an item of this status is all it should be."""
    return status == "completed"


def advance_status(status: str, to: str) -> str:
    """Return the new status of an item, or refuse a step that the table does not have."""
    if to not in ITEM_STATUS_TRANSITIONS[status]:
        raise RemoteProtocolError(f"an item cannot go from {status} to {to}")
    return to


class RuleViolation(NamedTuple):
    """A broken rule, and where."""

    rule: str
    detail: str
    position: int

    def __str__(self) -> str:
        return f"event {self.position}: {RULES[self.rule]} {self.detail} [{self.rule}]"
