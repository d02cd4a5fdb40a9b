"""A foreign stream of JSON, read to its end."""

from typing import Any

from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event
from antiphon.protocol.foreign.lenient import LENIENT
from antiphon.protocol.foreign.reader import ForeignReader
from antiphon.protocol.foreign.strict import ForeignChecker
from antiphon.protocol.struct import JsonObject

Json = dict[str, Any]


def make_reader(*, strict: bool = False, after: int = -1, checker: ForeignChecker | None = None) -> ForeignReader:
    """Return a reader; a strict one raises the first broken rule."""
    checker = ForeignChecker(strict=True, after=after) if strict else checker
    return ForeignReader(read_error=read_nested_error, checker=checker, after=after)


def read_nested_error(raw: JsonObject) -> ErrorPayload:
    """Read the error of an `error` event."""
    return LENIENT.read(ErrorPayload, raw.get("error"))


def read_stream(events: list[Json], **options: Any) -> tuple[list[Event], ForeignReader]:
    """Read a whole stream; return its events and the reader."""
    reader = make_reader(**options)
    read = [event for raw in events for event in reader.feed(dict(raw))]
    reader.close()
    return read, reader
