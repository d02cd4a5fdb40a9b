"""Checks foreign streams: every event goes to the protocol's checker as it was sent.

What a server may do differently without harm is tolerated: OpenAI's names, encrypted content that
changes from event to event, fields that only repeat the request.
"""

import re
from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.checker import StreamChecker
from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import (
    DeltaEvent,
    Event,
    ExtensionEvent,
    LifecycleEvent,
    OutputItemAdded,
    OutputItemDone,
    PartEvent,
)
from antiphon.protocol.foreign.lenient import add_slug, extension_event_type
from antiphon.protocol.items import Content, ExtensionAnnotation, ExtensionContent, Item, Message, OutputText, Reasoning
from antiphon.protocol.response import Response
from antiphon.protocol.rules import RuleViolation
from antiphon.protocol.struct import InvalidValueError, JsonObject, as_object, as_string

MAX_PROBLEMS_SHOWN = 3
SLUG = "foreign:"
ANNOTATION = ExtensionAnnotation(type=f"{SLUG}annotation")

# A status that does not exist breaks a rule of its own. Most of a response repeats the request, and
# every server has its own idea of how.
TOLERATED_MISFITS = re.compile(
    r"annotations|^annotation\.|logprobs|obfuscation|\.(type|status)$|^response\.(?!id|error|incomplete_details|output)"
)
"""The paths of values that may have any shape."""


class ForeignChecker(StreamChecker):
    """Checks one stream event by event, or one whole response.

    Collects one problem for each broken rule; with `strict` the first one raises
    RemoteProtocolError. `after` is the number of the last event that came before: of the rest of a
    stream only the numbers can be checked. `extensions` says whether unknown events are checked.
    """

    def __init__(self, *, strict: bool, after: int = -1, extensions: bool = True) -> None:
        super().__init__()
        self.problems: list[str] = []
        self._strict = strict
        self._extensions = extensions
        self._broken_rules: set[str] = set()
        self._is_checking = after < 0
        self._last_number = after

    def check(self, sent: JsonObject, event: Event, misfits: Sequence[InvalidValueError]) -> None:
        """Check an event as it was read, which includes what did not fit, and as it was sent."""
        name, number = as_string(sent.get("type")), sent.get("sequence_number")
        self._position += 1
        if type(number) is not int:
            # The other rules are still worth checking, so this is no reason to stop.
            self._add("number", self._shape_problem(name, "sequence_number: this field is required"))
            number = self._last_number + 1
        self._check_number(number)
        if not self._is_checking:
            return
        if misfit := _find_problem(misfits):
            # The state is unknown from here on: later events would seem to break rules.
            self._is_checking = False
            self._add("shape", self._shape_problem(name, str(misfit)))
        # Some servers send "response.cancelled", which the specification does not have.
        elif not isinstance(event, ExtensionEvent) and name != "response.cancelled":
            self._check_event(_strip_event(event, sent, misfits))
        elif self._extensions:
            self._check_event(ExtensionEvent(type=extension_event_type(name), sequence_number=0))

    def check_deltas(self, event: DeltaEvent, texts: list[str]) -> None:
        """Check deltas in a row that differ from the event checked last only in their text.

        They are checked as one event, so that checking a long text costs next to nothing.
        """
        self._position += len(texts)
        self._last_number += len(texts)
        if self._is_checking:
            self._check_event(replace(event, delta="".join(texts)))

    def check_response(self, sent: JsonObject, response: Response, misfits: Sequence[InvalidValueError]) -> None:
        """Check a whole response, which no events led up to."""
        if misfit := _find_problem(misfits):
            self._add("shape", f"The response has the wrong shape: {misfit} [shape]")
        else:
            self.check_whole(_strip_response(response, sent, misfits))

    def close(self) -> None:
        """Check that the stream may end here."""
        if self._is_checking:
            super().close()

    def summary(self) -> str:
        """Return the first problems in full, and the number of the others."""
        shown = " ".join(self.problems[:MAX_PROBLEMS_SHOWN])
        more = len(self.problems) - MAX_PROBLEMS_SHOWN
        return f"{shown} And {more} more." if more > 0 else shown

    def _shape_problem(self, sent: str, reason: str) -> str:
        name = f" ({sent[:80]})" if sent else ""
        return f"event {self._position}{name} has the wrong shape: {reason} [shape]"

    def _report(self, rule: str, detail: str) -> None:
        self._add(rule, str(RuleViolation(rule, detail, self._position)))

    def _add(self, rule: str, problem: str) -> None:
        if self._strict:
            raise RemoteProtocolError(problem)
        if rule not in self._broken_rules:
            self._broken_rules.add(rule)
            self.problems.append(problem)


def _find_problem(misfits: Sequence[InvalidValueError]) -> InvalidValueError | None:
    return next((misfit for misfit in misfits if not TOLERATED_MISFITS.search(misfit.path)), None)


def _strip_event(event: Event, sent: JsonObject, misfits: Sequence[InvalidValueError]) -> Event:
    """Return an event without the values in which servers may differ."""
    if isinstance(event, OutputItemAdded | OutputItemDone):
        return replace(event, item=_strip_item(event.item))
    if isinstance(event, PartEvent):
        return replace(event, part=_strip_part(event.part))
    if isinstance(event, LifecycleEvent):
        return replace(event, response=_strip_response(event.response, as_object(sent["response"]), misfits))
    return event


def _strip_response(response: Response, sent: JsonObject, misfits: Sequence[InvalidValueError]) -> Response:
    output = [_strip_item(item) for item in response.output]
    # The reader has made up a status that is missing, and counts that do not fit.
    status = as_string(sent.get("status", "in_progress"))
    return replace(response, status=status, output=output, usage=None if misfits else response.usage)


def _strip_item(item: Item) -> Item:
    match item:
        case Message():
            return replace(item, content=[_strip_part(part) for part in item.content])
        case Reasoning():
            # Encrypted content may change from event to event, and an empty `content` means none.
            content = [_strip_part(part) for part in item.content or []] or UNSET
            summary = [_strip_part(part) for part in item.summary]
            return replace(item, content=content, summary=summary, encrypted_content=UNSET, status=UNSET)
        case _:
            return item


def _strip_part(part: Content) -> Content:
    match part:
        case OutputText():
            # Only the number of annotations is compared: their types are the servers' own.
            return replace(part, annotations=[ANNOTATION] * len(part.annotations), logprobs=UNSET)
        case ExtensionContent():
            return replace(part, type=add_slug(part.type, SLUG))
        case _:
            return part
