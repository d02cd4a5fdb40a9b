"""One frame as an event: of either dialect, by any server, read leniently.

Reasoning has three spellings and one name here; what only OpenAI knows carries the slug `openai:`.
What is no event that we know comes through as an `ExtensionEvent`, with its fields in `extra`.
"""

from typing import cast, get_args

from msgspec import UNSET

from antiphon.adapters.fields import Fields, fields_of, given, list_of, without
from antiphon.client.errors import broken, payload_of, unlike
from antiphon.client.lenient import decoded, items_in, lenient
from antiphon.core.events import Delta, Error, Event, ExtensionEvent
from antiphon.core.response import Response
from antiphon.core.surrogates import mend
from antiphon.core.value import Value, type_names
from antiphon.wire.dialects import canonical, canonical_item

SPELLINGS = ("response.reasoning_text.", "response.reasoning_content.")
OURS = "response.reasoning."

SPECIFIED: dict[str, type[Value]] = {
    name: kind for kind in get_args(Event) for name in type_names(kind)
}
KINDS: dict[str, type[Value]] = {
    **SPECIFIED,
    **{
        name.replace(OURS, other): kind
        for other in SPELLINGS
        for name, kind in SPECIFIED.items()
        if name.startswith(OURS)
    },
    "response.cancelled": SPECIFIED["response.incomplete"],
}
"""The class of each event, by every name that it goes by."""

TYPES: dict[str, str] = {name: type_names(kind)[0] for name, kind in KINDS.items()}
"""The specification's name of each of them."""

DELTAS: dict[str, tuple[type[Value], str]] = {
    name: (kind, TYPES[name]) for name, kind in KINDS.items() if kind in get_args(Delta)
}

STATUSES = {
    "response.created": "in_progress",
    "response.queued": "queued",
    "response.in_progress": "in_progress",
    "response.completed": "completed",
    "response.failed": "failed",
    "response.incomplete": "incomplete",
}
"""The status that a response has if it does not say."""

OBJECTS = ("response", "item", "part", "annotation")
WORDS = ("delta", "text", "refusal", "arguments")
"""What an event must have to be one: these hold objects, those hold text."""

UNREADABLE = "antiphon:unreadable"


def read_event(raw: object, number: int) -> Event:
    """Read an event from JSON; `number` is its own if it does not say one."""
    fields = dict(fields_of(raw))
    fields.pop("stream_id", None)  # the lane is the socket's affair
    told = fields.get("sequence_number")
    number = told if type(told) is int and told >= 0 else number
    name = fields.get("type")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is Error:
        return Error(sequence_number=number, error=payload_of(fields))
    if kind is None or not _is_whole(kind, fields):
        return _stranger(raw, number)
    fields |= {"type": TYPES[str(name)], "sequence_number": number}
    return cast("Event", lenient(kind, _canonical(fields)))


def unreadable(data: bytes, number: int) -> Event:
    """Return the event for a frame that is no JSON."""
    extra: Fields = {"data": mend(data.decode(errors="replace"))}
    return ExtensionEvent(type=UNREADABLE, sequence_number=number, extra=extra)


def read_response(raw: object, status: str = "completed") -> Response:
    """Read a response of any server."""
    fields = {"status": status} | given(fields_of(canonical(raw)))
    return lenient(Response, fields | {"output": items_in(fields.get("output"))})


def whole_response(body: bytes, who: str) -> Response:
    """Read a response that came in one piece; raises UpstreamError for what is none."""
    fields = fields_of(decoded(body))
    if not {"id", "output"} & fields.keys():
        if "error" in fields:
            raise broken(payload_of(fields))
        raise unlike(who, body, "a response")
    return read_response(fields)


def _is_whole(kind: type[Value], fields: Fields) -> bool:
    named = kind.__struct_fields__
    return all(isinstance(fields.get(name), dict) for name in OBJECTS if name in named) and all(
        isinstance(fields.get(name), str) for name in WORDS if name in named
    )


def _stranger(raw: object, number: int) -> Event:
    fields = fields_of(raw)
    name = fields.get("type")
    if not isinstance(name, str):
        return ExtensionEvent(type=UNREADABLE, sequence_number=number, extra={"data": raw})
    rest = without(fields, ["type", "sequence_number", "stream_id"])
    return ExtensionEvent(type=name, sequence_number=number, extra=rest or UNSET)


def _canonical(fields: Fields) -> Fields:
    """Give what only OpenAI knows its slug, wherever an event holds it."""
    changes: Fields = {}
    if isinstance(fields.get("response"), dict):
        status = STATUSES.get(str(fields["type"]), "in_progress")
        changes["response"] = read_response(fields["response"], status)
    if isinstance(fields.get("item"), dict):
        changes["item"] = canonical_item(fields["item"])
    if isinstance(fields.get("part"), dict):
        changes["part"] = _inside({"content": [fields["part"]]}, "content")
    if isinstance(fields.get("annotation"), dict):
        held: Fields = {"content": [{"annotations": [fields["annotation"]]}]}
        changes["annotation"] = _inside(fields_of(_inside(held, "content")), "annotations")
    return fields | changes


def _inside(held: Fields, name: str) -> object:
    (only,) = list_of(fields_of(canonical_item(held)).get(name))
    return only
