"""A foreign answer before the rulebook.

The rulebook judges events one by one, and every stream is mostly deltas: those of one text are put
together and judged as one, so that judging costs next to nothing. What a server may do differently
without harm is evened out first: OpenAI's names, seals that change, fields that only repeat the
request. An event that cannot be read by the letter is a problem too, and the last one looked for.
"""

from typing import cast

from msgspec import Struct

from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    as_string,
    omit,
)
from antiphon.adapters.open_responses.item_values import (
    CONTENT_TYPES,
    ITEM_TYPES,
    add_slug,
    types_in,
)
from antiphon.protocol.checker import StreamChecker
from antiphon.protocol.events import Event, decode_event
from antiphon.protocol.foreign.openai_types import add_item_slugs
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.rules import RULES
from antiphon.protocol.struct import InvalidValueError, decode_as
from antiphon.protocol.surrogates import repair_surrogates

EVENT_TYPES = types_in(Event)
REASONING_PREFIXES = ("response.reasoning_text.", "response.reasoning_content.")
MAX_PROBLEMS_SHOWN = 3
"""How many broken rules a warning names."""


class DeltaFields(Struct, gc=False):
    """What every event may have, and all that a delta needs; nothing is taken for granted."""

    type: str = ""
    item_id: object = None
    output_index: object = None
    content_index: object = None
    summary_index: object = None
    delta: object = None
    logprobs: object = None
    sequence_number: object = None


class ForeignStreamChecker:
    """Judges one stream as it comes, or one response in one piece."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._checker = StreamChecker()
        self._rules: set[str] = set()
        self._is_checking = True
        self._count_checked = 0
        self._position = -1
        self._number = -1
        self._run_start: DeltaFields | None = None
        self._run_position = 0
        self._pieces: list[str] = []

    def delta(self, delta: DeltaFields) -> None:
        """Judge more of a text."""
        self._count(delta.sequence_number)
        run = self._run_start
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
        self._run_start, self._run_position = delta, self._position
        self._pieces = [cast("str", delta.delta)]

    def event(self, type: str, raw: JsonObject) -> None:
        """Judge anything else."""
        self._count(raw.get("sequence_number"))
        self._flush()
        if type := canonical_event_type(type):
            self._feed(raw | {"type": type}, self._position)

    def whole(self, raw: JsonObject) -> None:
        """Judge a response in one piece, which no event has led up to."""
        try:
            response = cast("Response", decode_as(Response, _normalize_response(raw)))
        except InvalidValueError as error:
            self._problem("shape", f"The response has the wrong shape: {error}.")
            return
        for rule, detail, _ in self._checker.check_response(response):
            self._problem(rule, f"{RULES[rule]} {detail} [{rule}]")

    def summary(self) -> str:
        """Say what was wrong, the first of it in full; nothing if nothing was."""
        more = len(self.problems) - MAX_PROBLEMS_SHOWN
        return " ".join(self.problems[:MAX_PROBLEMS_SHOWN]) + (
            f" And {more} more." if more > 0 else ""
        )

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
        if (run := self._run_start) is None:
            return
        self._run_start = None
        names = ("item_id", "output_index", "content_index", "summary_index")
        place = {name: value for name in names if (value := getattr(run, name)) is not None}
        raw: JsonObject = {
            "type": canonical_event_type(run.type),
            "delta": repair_surrogates("".join(self._pieces)),
            **place,
        }
        self._feed(raw, self._run_position)

    def _feed(self, raw: JsonObject, position: int) -> None:
        if not self._is_checking:
            return
        try:
            event = decode_event(normalize_event(raw) | {"sequence_number": self._count_checked})
        except InvalidValueError as error:
            self._problem(
                "shape", f"Event {position} ({raw['type']}) has the wrong shape: {error}."
            )
            self._is_checking = False
            return
        self._count_checked += 1
        for violation in self._checker.feed(event):
            self._problem(violation.rule, str(violation._replace(position=position)))

    def _problem(self, rule: str, detail: str) -> None:
        if rule not in self._rules:
            self._rules.add(rule)
            self.problems.append(detail)


def canonical_event_type(type: str) -> str:
    """Return the specification's name of an event, if it has one."""
    for other in REASONING_PREFIXES:
        if type.startswith(other):
            type = type.replace(other, "response.reasoning.", 1)
    return type if type in EVENT_TYPES else ""


# --- what may differ ------------------------------------------------------------------------------


def normalize_event(raw: JsonObject) -> JsonObject:
    """Return an event without what is no matter of order."""
    changes: JsonObject = {}
    if "response" in raw:
        changes["response"] = _normalize_response(as_object(raw["response"]))
    if "item" in raw:
        changes["item"] = _normalize_item(as_object(raw["item"]))
    if "part" in raw:
        changes["part"] = _normalize_part(as_object(raw["part"]))
    if "annotation" in raw:
        changes["annotation"] = {"type": "responses:note"}
    if raw["type"] == "error":
        changes["error"] = {"type": "error", "message": ""}
    return omit(raw, ["logprobs", "obfuscation"]) | changes


def _normalize_response(raw: JsonObject) -> JsonObject:
    names = ("id", "status", "error", "incomplete_details")
    kept = {name: raw[name] for name in names if name in raw}
    output = [_normalize_item(as_object(item)) for item in as_array(raw.get("output"))]
    kept |= {"created_at": 0, "model": "", "output": output}
    try:
        kept["usage"] = decode_as(ResponseUsage, raw.get("usage"))
    except InvalidValueError:
        kept["usage"] = None
    return kept


def _normalize_item(raw: JsonObject) -> JsonObject:
    named = as_object(add_item_slugs(raw))
    named = named | {"type": add_slug(as_string(named.get("type")), ITEM_TYPES)}
    for name in ("content", "summary"):
        if isinstance(named.get(name), list):
            named[name] = [_normalize_part(as_object(part)) for part in as_array(named[name])]
    if named["type"] == "reasoning":
        named = omit(named, ["encrypted_content", "status"])
        named = {n: named[n] for n in named if named[n] or n != "content"}
    return named


def _normalize_part(raw: JsonObject) -> JsonObject:
    notes = len(as_array(raw.get("annotations")))
    kept = omit(raw, ["logprobs", "annotations"])
    kept |= {"type": add_slug(as_string(raw.get("type")), CONTENT_TYPES)}
    if kept["type"] == "output_text":
        kept["annotations"] = [{"type": "responses:note"}] * notes
    return kept
