"""The JSON of block events, one per line: as `llm_client` writes them, and as its recorder does.

A recording begins with a line about the run; each other line holds an event, encoded as a string, and when it came.
The reader takes such lines and bare events alike. It ignores unknown fields and keeps unknown events; for anything
else that does not fit it raises JSONError, or InvalidValueError, which says where.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar, get_args

from msgspec import Struct
from msgspec.structs import asdict, fields

from antiphon.bridges.blocks.events import (
    Block,
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    Count,
    DeltaType,
    Error,
    Ping,
    RefusalBlock,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.protocol.struct import InvalidValueError, JsonObject, as_object, decode_as, join_path
from antiphon.wire import json

S = TypeVar("S", bound=Struct)


class RunInfo(Struct, frozen=True):
    """What a recording says about its run."""

    timestamp: Count = 0
    model: str = ""
    description: str = ""


class RecordedEvent(Struct, frozen=True):
    """An event, and how many milliseconds after the start of its run it came."""

    event: BlockEvent
    elapsed_ms: Count = 0


EVENT_CLASSES: dict[str, type[BlockEvent]] = {
    kind.__name__: kind for kind in (Ping, Usage, Status, Error, BlockStart, BlockDelta, BlockStop, BlockAbort)
}
"""The events by name, in the order of their numbers in a recording."""

DELTA_TYPES: dict[str, DeltaType] = {name: name for name in get_args(DeltaType)}

BLOCK_CLASSES: dict[str, type[Block]] = {
    kind.block_type: kind for kind in (TextBlock, ThinkingBlock, RefusalBlock, ToolUseBlock, ToolResultBlock)
}


def read_line(line: bytes) -> RunInfo | RecordedEvent:
    """Read one line of a log or a recording; raises JSONError or InvalidValueError."""
    value = json.decode_lenient(line)
    wrapper = as_object(value)
    if "data" in wrapper:
        data = wrapper["data"]
        # Text that is not UTF-8 is no JSON, which the parser then says.
        inner = json.decode_lenient(data.encode(errors="surrogatepass")) if isinstance(data, str) else data
        elapsed = decode_as(Count, wrapper.get("elapsed_ms", 0), "elapsed_ms")
        return RecordedEvent(decode_block_event(inner, "data"), elapsed)  # pyright: ignore[reportArgumentType] - a Count
    if wrapper.keys() & {"timestamp", "model", "description"}:
        return _decode_fields(RunInfo, wrapper, "")
    return RecordedEvent(decode_block_event(value))


def decode_block_event(raw: object, path: str = "") -> BlockEvent:
    """Decode an event from JSON builtins; raises InvalidValueError."""
    name, value = _decode_variant(raw, path, "the name of the event")
    place = join_path(path, name[:80])
    match name:
        case "BlockStart":
            given = _decode_object(value, place)
            return BlockStart(_decode_index(given, place), _decode_block(given, place))
        case "BlockDelta":
            given = _decode_object(value, place)
            place_of_delta = join_path(place, "delta")
            name, text = _decode_variant(given.get("delta"), place_of_delta, "the type of the delta")
            if name not in DELTA_TYPES:
                raise _unknown_name_error(place_of_delta, name, DELTA_TYPES)
            if not isinstance(text, str):
                raise InvalidValueError(join_path(place_of_delta, name), "expected a string")
            return BlockDelta(_decode_index(given, place), DELTA_TYPES[name], text)
        case "Status":
            return _decode_fields(Status, {"status": value} if isinstance(value, str) else value, place)
        case _:
            kind = EVENT_CLASSES.get(name)
            return _decode_fields(kind, value, place) if kind else UnknownEvent(name, value)


def encode_block_event(event: BlockEvent) -> bytes:
    """Encode an event as one line of JSON, without its newline."""
    return json.encode(_to_json(event))


def encode_recording(info: RunInfo, events: Iterable[RecordedEvent]) -> Iterator[bytes]:
    """Encode a recording, line by line, without newlines."""
    yield json.encode(asdict(info))
    for recorded in events:
        event = recorded.event
        name = type(event).__name__
        number = list(EVENT_CLASSES).index(name) if name in EVENT_CLASSES else len(EVENT_CLASSES)
        data = encode_block_event(event).decode()
        yield json.encode({"elapsed_ms": recorded.elapsed_ms, "event_type": f"Discriminant({number})", "data": data})


def _to_json(event: BlockEvent) -> JsonObject:
    match event:
        case BlockStart(index=index, block=block):
            fields = asdict(block)
            metadata = {block.block_type: fields} if fields else block.block_type
            return {"BlockStart": {"index": index, "block_type": block.block_type, "metadata": metadata}}
        case BlockDelta(index=index, text=text):
            return {"BlockDelta": {"index": index, "delta": {event.type: text}}}
        case UnknownEvent(name=name, value=value):
            return {name: value}
        case _:
            return {type(event).__name__: asdict(event)}


def _decode_variant(raw: object, path: str, meaning: str) -> tuple[str, object]:
    """Return the name and the value of a variant; one without fields may be its name alone."""
    if isinstance(raw, str):
        return raw, {}
    given = as_object(raw)
    if len(given) != 1:
        raise InvalidValueError(path, f"expected an object with one key, {meaning}")
    return next(iter(given.items()))


def _decode_object(raw: object, path: str) -> JsonObject:
    given = as_object(raw)
    if given is not raw:
        raise InvalidValueError(path, "expected an object")
    return given


def _decode_fields(kind: type[S], raw: object, path: str) -> S:
    given, values = _decode_object(raw, path), JsonObject()
    for info in fields(kind):
        place = join_path(path, info.name)
        if info.name in given:
            values[info.name] = decode_as(info.type, given[info.name], place)
        elif info.required:
            raise InvalidValueError(place, "this field is required")
    return kind(**values)


def _decode_index(given: JsonObject, path: str) -> int:
    if "index" not in given:
        raise InvalidValueError(join_path(path, "index"), "this field is required")
    index = decode_as(Count, given["index"], join_path(path, "index"))
    assert isinstance(index, int)  # noqa: S101 - decoded as one
    return index


def _decode_block(given: JsonObject, path: str) -> Block:
    # A block without fields may have no metadata.
    source = "metadata" if given.get("metadata") is not None else "block_type"
    place = join_path(path, source)
    name, value = _decode_variant(given.get(source), place, "the type of the block")
    if name not in BLOCK_CLASSES:
        raise _unknown_name_error(place, name, BLOCK_CLASSES)
    return _decode_fields(BLOCK_CLASSES[name], value, join_path(place, name))


def _unknown_name_error(path: str, name: str, known: Iterable[str]) -> InvalidValueError:
    return InvalidValueError(path, f"unknown name '{name[:80]}'; known: {', '.join(known)}")
