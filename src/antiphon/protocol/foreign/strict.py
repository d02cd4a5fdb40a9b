"""Checks foreign streams: every event goes to the protocol's checker as it was sent.

What a server may do differently without harm is normalized first: OpenAI's names, encrypted content
that changes from event to event, fields that only repeat the request.
"""

from typing import get_args

from antiphon.protocol.checker import StreamChecker
from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import Event, ExtensionEvent, decode_event
from antiphon.protocol.foreign.lenient import add_item_slugs, add_slug, canonical_event_type, extension_event_type
from antiphon.protocol.items import Content, Item
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.rules import RULES, RuleViolation
from antiphon.protocol.struct import (
    InvalidValueError,
    JsonObject,
    as_array,
    as_object,
    as_string,
    decode,
    decode_as,
    omit,
    type_names,
)

EVENT_TYPES, ITEM_TYPES, CONTENT_TYPES = (
    frozenset(name for kind in get_args(union) for name in type_names(kind)) for union in (Event, Item, Content)
)
MAX_PROBLEMS_SHOWN = 3
SLUG = "foreign:"


class ForeignChecker:
    """Checks one stream event by event, or one whole response.

    Collects one problem for each broken rule; with `strict` the first one raises
    RemoteProtocolError. `after` is the number of the last event that came before: of the rest of a
    stream only the numbers can be checked. `extensions` says whether unknown events are checked.
    """

    def __init__(self, *, strict: bool, after: int = -1, extensions: bool = True) -> None:
        self.problems: list[str] = []
        self._strict = strict
        self._extensions = extensions
        self._broken_rules: set[str] = set()
        self._checker = StreamChecker()
        self._is_checking = after < 0
        self._checked = 0
        self._position = -1
        self._number = after

    def check(self, raw: JsonObject) -> None:
        """Check an event as it was sent."""
        sent = as_string(raw.get("type"))
        self._check_number(raw.get("sequence_number"), sent)
        known = canonical_event_type(sent)
        if known in EVENT_TYPES:
            self._check_event(raw | {"type": known})
        elif self._extensions:
            self._check_event(raw | {"type": extension_event_type(sent)})

    def check_deltas(self, raw: JsonObject, texts: list[str]) -> None:
        """Check deltas in a row that differ from the event checked last only in their text.

        They are checked as one event, so that checking a long text costs next to nothing.
        """
        self._position += len(texts)
        self._number += len(texts)
        known = canonical_event_type(as_string(raw.get("type")))
        self._check_event(raw | {"type": known, "delta": "".join(texts)})

    def check_response(self, raw: JsonObject) -> None:
        """Check a whole response, which no events led up to."""
        try:
            response = decode(Response, _normalize_response(raw))
        except InvalidValueError as error:
            self._add("shape", f"The response has the wrong shape: {error} [shape]")
            return
        for rule, detail, _ in self._checker.check_response(response):
            self._add(rule, f"{RULES[rule]} {detail} [{rule}]")

    def close(self) -> None:
        """Check that the stream may end here."""
        if self._is_checking:
            self._add_violations(self._checker.close())

    def summary(self) -> str:
        """Return the first problems in full, and the number of the others."""
        shown = " ".join(self.problems[:MAX_PROBLEMS_SHOWN])
        more = len(self.problems) - MAX_PROBLEMS_SHOWN
        return f"{shown} And {more} more." if more > 0 else shown

    def _check_number(self, number: object, sent: str) -> None:
        self._position += 1
        if type(number) is not int:
            # The other rules are still worth checking, so this is no reason to stop.
            self._add("number", self._shape_problem(sent, "sequence_number: this field is required"))
            number = self._number + 1
        if number != self._number + 1:
            rule = "sequence-increases" if number <= self._number else "sequence-gapless"
            detail = f"{number} follows {self._number}."
            self._add_violations([RuleViolation(rule, detail, self._position)])
        self._number = max(number, self._number)

    def _check_event(self, raw: JsonObject) -> None:
        if not self._is_checking:
            return
        # Numbers are checked above; the protocol's checker sees runs of deltas as one event.
        values = _normalize_event(raw) | {"sequence_number": self._checked}
        try:
            is_known = raw["type"] in EVENT_TYPES
            event = decode_event(values) if is_known else decode(ExtensionEvent, values)
        except InvalidValueError as error:
            # The state is unknown from here on: later events would seem to break rules.
            self._is_checking = False
            self._add("shape", self._shape_problem(as_string(raw["type"]), str(error)))
            return
        self._checked += 1
        self._add_violations(self._checker.feed(event))

    def _shape_problem(self, sent: str, reason: str) -> str:
        name = f" ({sent[:80]})" if sent else ""
        return f"event {self._position}{name} has the wrong shape: {reason} [shape]"

    def _add_violations(self, violations: list[RuleViolation]) -> None:
        for violation in violations:
            self._add(violation.rule, str(violation._replace(position=self._position)))

    def _add(self, rule: str, problem: str) -> None:
        if self._strict:
            raise RemoteProtocolError(problem)
        if rule not in self._broken_rules:
            self._broken_rules.add(rule)
            self.problems.append(problem)


def _normalize_event(raw: JsonObject) -> JsonObject:
    """Return an event without the fields in which servers may differ."""
    changes: JsonObject = {}
    if "response" in raw:
        changes["response"] = _normalize_response(as_object(raw["response"]))
    if "item" in raw:
        changes["item"] = _normalize_item(as_object(raw["item"]))
    if "part" in raw:
        changes["part"] = _normalize_part(as_object(raw["part"]))
    if "annotation" in raw:
        changes["annotation"] = {"type": f"{SLUG}annotation"}
    if raw["type"] == "error":
        changes["error"] = {"type": "error", "message": ""}
    return omit(raw, ("logprobs", "obfuscation")) | changes


def _normalize_response(raw: JsonObject) -> JsonObject:
    # All other fields repeat the request, and every server has its own idea of how.
    names = ("id", "status", "error", "incomplete_details")
    kept = {name: raw[name] for name in names if name in raw}
    output = [_normalize_item(as_object(item)) for item in as_array(raw.get("output"))]
    kept |= {"created_at": 0, "model": "", "output": output, "usage": None}
    try:
        return kept | {"usage": decode_as(ResponseUsage, raw.get("usage"))}
    except InvalidValueError:
        return kept


def _normalize_item(raw: JsonObject) -> JsonObject:
    item = dict(as_object(add_item_slugs(raw)))
    item["type"] = _add_slug_if_unknown(item.get("type"), ITEM_TYPES)
    for name in ("content", "summary"):
        if isinstance(item.get(name), list):
            item[name] = [_normalize_part(as_object(part)) for part in as_array(item[name])]
    # Encrypted content may change from event to event, and an empty `content` means none.
    if item["type"] == "reasoning":
        item = omit(item, ("encrypted_content", "status"))
        item = {name: value for name, value in item.items() if value or name != "content"}
    return item


def _normalize_part(raw: JsonObject) -> JsonObject:
    part = omit(raw, ("logprobs", "annotations"))
    part["type"] = _add_slug_if_unknown(raw.get("type"), CONTENT_TYPES)
    if part["type"] == "output_text":
        # Only their number is compared: their types are the servers' own.
        annotations = as_array(raw.get("annotations"))
        part["annotations"] = [{"type": f"{SLUG}annotation"}] * len(annotations)
    return part


def _add_slug_if_unknown(type: object, known: frozenset[str]) -> str:
    name = as_string(type)
    return name if name in known else add_slug(name, SLUG)
