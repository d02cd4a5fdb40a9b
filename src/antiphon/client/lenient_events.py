"""One frame as an event: of either dialect, by any server, read leniently.

Reasoning has three spellings and one name here; what only OpenAI knows carries the slug `openai:`.
What is no event that we know comes through as an `ExtensionEvent`, with its fields in `extra`.
"""

from typing import cast, get_args

from msgspec import UNSET

from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    drop_none,
    omit,
)
from antiphon.client.errors import decode_error_payload, stream_error, unexpected_body_error
from antiphon.client.lenient_values import parse_json, read_items, read_value
from antiphon.protocol.events import (
    DeltaEvent,
    ErrorEvent,
    Event,
    ExtensionEvent,
)
from antiphon.protocol.foreign.openai_types import add_item_slugs, add_slugs
from antiphon.protocol.response import Response
from antiphon.protocol.struct import ProtocolStruct, type_names
from antiphon.protocol.surrogates import repair_surrogates

REASONING_PREFIXES = ("response.reasoning_text.", "response.reasoning_content.")
REASONING_PREFIX = "response.reasoning."

SPECIFIED_CLASSES: dict[str, type[ProtocolStruct]] = {
    name: kind for kind in get_args(Event) for name in type_names(kind)
}
EVENT_CLASSES: dict[str, type[ProtocolStruct]] = {
    **SPECIFIED_CLASSES,
    **{
        name.replace(REASONING_PREFIX, other): kind
        for other in REASONING_PREFIXES
        for name, kind in SPECIFIED_CLASSES.items()
        if name.startswith(REASONING_PREFIX)
    },
    "response.cancelled": SPECIFIED_CLASSES["response.incomplete"],
}
"""The class of each event, by every name that it goes by."""

CANONICAL_TYPES: dict[str, str] = {
    name: type_names(kind)[0] for name, kind in EVENT_CLASSES.items()
}
"""The specification's name of each of them."""

DELTA_CLASSES: dict[str, tuple[type[ProtocolStruct], str]] = {
    name: (kind, CANONICAL_TYPES[name])
    for name, kind in EVENT_CLASSES.items()
    if kind in get_args(DeltaEvent)
}

DEFAULT_STATUSES = {
    "response.created": "in_progress",
    "response.queued": "queued",
    "response.in_progress": "in_progress",
    "response.completed": "completed",
    "response.failed": "failed",
    "response.incomplete": "incomplete",
}
"""The status that a response has if it does not say."""

OBJECT_FIELDS = ("response", "item", "part", "annotation")
TEXT_FIELDS = ("delta", "text", "refusal", "arguments")
"""What an event must have to be one: these hold objects, those hold text."""

UNREADABLE_TYPE = "antiphon:unreadable"


def read_event(raw: object, number: int) -> Event:
    """Read an event from JSON; `number` is its own if it does not say one."""
    fields = dict(as_object(raw))
    fields.pop("stream_id", None)  # the lane is the socket's affair
    told = fields.get("sequence_number")
    number = told if type(told) is int and told >= 0 else number
    name = fields.get("type")
    kind = EVENT_CLASSES.get(name) if isinstance(name, str) else None
    if kind is ErrorEvent:
        return ErrorEvent(sequence_number=number, error=decode_error_payload(fields))
    if kind is None or not _has_required_fields(kind, fields):
        return _unknown_event(raw, number)
    fields |= {"type": CANONICAL_TYPES[str(name)], "sequence_number": number}
    return cast("Event", read_value(kind, _canonical(fields)))


def unreadable_event(data: bytes, number: int) -> Event:
    """Return the event for a frame that is no JSON."""
    extra: JsonObject = {"data": repair_surrogates(data.decode(errors="replace"))}
    return ExtensionEvent(type=UNREADABLE_TYPE, sequence_number=number, extra=extra)


def read_response(raw: object, status: str = "completed") -> Response:
    """Read a response of any server."""
    fields = {"status": status} | drop_none(as_object(add_slugs(raw)))
    return read_value(Response, fields | {"output": read_items(fields.get("output"))})


def parse_response(body: bytes, who: str) -> Response:
    """Read a response that came in one piece; raises UpstreamError for what is none."""
    fields = as_object(parse_json(body))
    if not {"id", "output"} & fields.keys():
        if "error" in fields:
            raise stream_error(decode_error_payload(fields))
        raise unexpected_body_error(who, body, "a response")
    return read_response(fields)


def _has_required_fields(kind: type[ProtocolStruct], fields: JsonObject) -> bool:
    named = kind.__struct_fields__
    return all(
        isinstance(fields.get(name), dict) for name in OBJECT_FIELDS if name in named
    ) and all(isinstance(fields.get(name), str) for name in TEXT_FIELDS if name in named)


def _unknown_event(raw: object, number: int) -> Event:
    fields = as_object(raw)
    name = fields.get("type")
    if not isinstance(name, str):
        return ExtensionEvent(type=UNREADABLE_TYPE, sequence_number=number, extra={"data": raw})
    rest = omit(fields, ["type", "sequence_number", "stream_id"])
    return ExtensionEvent(type=name, sequence_number=number, extra=rest or UNSET)


def _canonical(fields: JsonObject) -> JsonObject:
    """Give what only OpenAI knows its slug, wherever an event holds it."""
    changes: JsonObject = {}
    if isinstance(fields.get("response"), dict):
        status = DEFAULT_STATUSES.get(str(fields["type"]), "in_progress")
        changes["response"] = read_response(fields["response"], status)
    if isinstance(fields.get("item"), dict):
        changes["item"] = add_item_slugs(fields["item"])
    if isinstance(fields.get("part"), dict):
        changes["part"] = _canonical_entry({"content": [fields["part"]]}, "content")
    if isinstance(fields.get("annotation"), dict):
        held: JsonObject = {"content": [{"annotations": [fields["annotation"]]}]}
        changes["annotation"] = _canonical_entry(
            as_object(_canonical_entry(held, "content")), "annotations"
        )
    return fields | changes


def _canonical_entry(held: JsonObject, name: str) -> object:
    (only,) = as_array(as_object(add_item_slugs(held)).get(name))
    return only
