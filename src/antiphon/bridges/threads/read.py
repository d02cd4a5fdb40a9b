"""Reads thread events from JSON lines, as `vtcode exec --json` and `codex exec --json` write them."""

from collections.abc import Iterable, Iterator
from typing import cast

from antiphon.bridges.threads.events import EVENT_CLASSES, OtherEvent, ThreadEvent
from antiphon.protocol.struct import InvalidValueError, as_object, as_string, decode, join_path
from antiphon.wire import json

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def decode_thread_event(raw: object, path: str = "") -> ThreadEvent:
    """Decode a thread event from JSON builtins; raises InvalidValueError."""
    fields = as_object(raw)
    if "type" not in fields and "schema_version" in fields:
        # The log of VT Code's harness wraps each event, to name the version of its schema.
        raw, path = fields.get("event"), join_path(path, "event")
    kind = EVENT_CLASSES.get(as_string(as_object(raw).get("type")), OtherEvent)
    return cast("ThreadEvent", decode(kind, raw, path))


def read_line(line: bytes) -> ThreadEvent:
    """Read one line of a log; raises JSONError or InvalidValueError."""
    return decode_thread_event(json.decode_foreign(line.removeprefix(BYTE_ORDER_MARK)))


def read_thread_events(lines: Iterable[bytes]) -> Iterator[ThreadEvent]:
    """Yield the event of each line that is not blank; raises InvalidValueError, which names the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield read_line(line)
        except json.JSONError as error:
            raise InvalidValueError(f"line {number}", f"{error} Each line has to be one event.") from None
        except InvalidValueError as error:
            raise InvalidValueError(f"line {number}", str(error)) from None
