"""A foreign answer before the rulebook.

The rulebook judges events one by one, and every stream is mostly deltas: those of one text are put
together and judged as one, so that judging costs next to nothing. What a server may do differently
without harm is evened out first: OpenAI's names, seals that change, fields that only repeat the
request. An event that cannot be read by the letter is a problem too, and the last one looked for.
"""

from typing import cast

from msgspec import Struct

from antiphon.adapters.fields import Fields, fields_of, list_of, string, without
from antiphon.adapters.responses.items import CONTENT_TYPES, ITEM_TYPES, slugged, types_in
from antiphon.core.events import Event, decode_event
from antiphon.core.judge import Rulebook
from antiphon.core.response import Response, Usage
from antiphon.core.rules import RULES
from antiphon.core.surrogates import mend
from antiphon.core.value import ShapeError, read
from antiphon.wire.dialects import canonical_item

KNOWN = types_in(Event)
RAW = ("response.reasoning_text.", "response.reasoning_content.")
TOLD = 3
"""How many broken rules a warning names."""


class Delta(Struct, gc=False):
    """What every event may have, and all that a delta needs; nothing is taken for granted."""

    type: str = ""
    item_id: object = None
    output_index: object = None
    content_index: object = None
    summary_index: object = None
    delta: object = None
    logprobs: object = None
    sequence_number: object = None


class Judge:
    """Judges one stream as it comes, or one response in one piece."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._book = Rulebook()
        self._rules: set[str] = set()
        self._reading = True
        self._fed = 0
        self._position = -1
        self._number = -1
        self._run: Delta | None = None
        self._run_position = 0
        self._pieces: list[str] = []

    def delta(self, delta: Delta) -> None:
        """Judge more of a text."""
        self._count(delta.sequence_number)
        run = self._run
        if (
            run is not None
            and run.type == delta.type
            and run.item_id == delta.item_id
            and run.output_index == delta.output_index
            and run.content_index == delta.content_index
            and run.summary_index == delta.summary_index
        ):
            self._pieces.append(cast("str", delta.delta))
            return
        self._flush()
        self._run, self._run_position = delta, self._position
        self._pieces = [cast("str", delta.delta)]

    def event(self, type: str, raw: Fields) -> None:
        """Judge anything else."""
        self._count(raw.get("sequence_number"))
        self._flush()
        if type := specified(type):
            self._feed(raw | {"type": type}, self._position)

    def whole(self, raw: Fields) -> None:
        """Judge a response in one piece, which no event has led up to."""
        try:
            response = cast("Response", read(Response, _response(raw)))
        except ShapeError as error:
            self._problem("shape", f"The response has the wrong shape: {error}.")
            return
        for rule, detail, _ in self._book.whole(response):
            self._problem(rule, f"{RULES[rule]} {detail} [{rule}]")

    def verdict(self) -> str:
        """Say what was wrong, the first of it in full; nothing if nothing was."""
        more = len(self.problems) - TOLD
        return " ".join(self.problems[:TOLD]) + (f" And {more} more." if more > 0 else "")

    def _count(self, number: object) -> None:
        self._position += 1
        if number == self._number + 1:
            self._number += 1
        elif not isinstance(number, int):
            self._problem("sequence_number", "Events have no sequence_number.")
        else:
            rule = "sequence-increases" if number <= self._number else "sequence-gapless"
            self._problem(rule, f"Event {self._position} has the number {number}. [{rule}]")
            self._number = max(number, self._number)

    def _flush(self) -> None:
        if (run := self._run) is None:
            return
        self._run = None
        names = ("item_id", "output_index", "content_index", "summary_index")
        place = {name: value for name in names if (value := getattr(run, name)) is not None}
        raw: Fields = {"type": specified(run.type), "delta": mend("".join(self._pieces)), **place}
        self._feed(raw, self._run_position)

    def _feed(self, raw: Fields, position: int) -> None:
        if not self._reading:
            return
        try:
            event = decode_event(evened(raw) | {"sequence_number": self._fed})
        except ShapeError as error:
            self._problem(
                "shape", f"Event {position} ({raw['type']}) has the wrong shape: {error}."
            )
            self._reading = False
            return
        self._fed += 1
        for violation in self._book.feed(event):
            self._problem(violation.rule, str(violation._replace(position=position)))

    def _problem(self, rule: str, detail: str) -> None:
        if rule not in self._rules:
            self._rules.add(rule)
            self.problems.append(detail)


def specified(type: str) -> str:
    """Return the specification's name of an event, if it has one."""
    for other in RAW:
        if type.startswith(other):
            type = type.replace(other, "response.reasoning.", 1)
    return type if type in KNOWN else ""


# --- what may differ ------------------------------------------------------------------------------


def evened(raw: Fields) -> Fields:
    """Return an event without what is no matter of order."""
    changes: Fields = {}
    if "response" in raw:
        changes["response"] = _response(fields_of(raw["response"]))
    if "item" in raw:
        changes["item"] = _item(fields_of(raw["item"]))
    if "part" in raw:
        changes["part"] = _part(fields_of(raw["part"]))
    if "annotation" in raw:
        changes["annotation"] = {"type": "responses:note"}
    if raw["type"] == "error":
        changes["error"] = {"type": "error", "message": ""}
    return without(raw, ["logprobs", "obfuscation"]) | changes


def _response(raw: Fields) -> Fields:
    names = ("id", "status", "error", "incomplete_details")
    kept = {name: raw[name] for name in names if name in raw}
    output = [_item(fields_of(item)) for item in list_of(raw.get("output"))]
    kept |= {"created_at": 0, "model": "", "output": output}
    try:
        kept["usage"] = read(Usage, raw.get("usage"))
    except ShapeError:
        kept["usage"] = None
    return kept


def _item(raw: Fields) -> Fields:
    named = fields_of(canonical_item(raw))
    named = named | {"type": slugged(string(named.get("type")), ITEM_TYPES)}
    for name in ("content", "summary"):
        if isinstance(named.get(name), list):
            named[name] = [_part(fields_of(part)) for part in list_of(named[name])]
    if named["type"] == "reasoning":
        named = without(named, ["encrypted_content", "status"])
        named = {n: named[n] for n in named if named[n] or n != "content"}
    return named


def _part(raw: Fields) -> Fields:
    notes = len(list_of(raw.get("annotations")))
    kept = without(raw, ["logprobs", "annotations"])
    kept |= {"type": slugged(string(raw.get("type")), CONTENT_TYPES)}
    if kept["type"] == "output_text":
        kept["annotations"] = [{"type": "responses:note"}] * notes
    return kept
