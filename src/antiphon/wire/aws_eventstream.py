"""AWS's binary event stream, decoded: messages of headers and a payload.

A message is its prelude (the length of all of it, the length of its headers, a checksum of these
two), its headers, its payload, and a checksum of everything before. Numbers are big-endian.
"""

import struct
from collections.abc import Callable, Mapping
from struct import Struct as Packed
from zlib import crc32

from msgspec import Struct

MAX_MESSAGE = 1024 * 1024

HeaderValue = bool | int | bytes | str
"""A header's value. A timestamp is its milliseconds, a UUID its 16 bytes."""

_PRELUDE = Packed(">III")
_LENGTHS = Packed(">II")
_CHECKSUM = Packed(">I")
_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
_MAX_CACHED_HEADERS = 100  # how many heads a decoder remembers
_MAX_CACHED_BYTES = 256  # and how long each may be


class EventStreamError(ValueError):
    """Bytes that are not an event stream, or a message that is too large."""


class EventStreamMessage(Struct, frozen=True, gc=False):
    """One message. Messages share cached headers: do not change them."""

    headers: Mapping[str, HeaderValue]
    payload: bytes


class Decoder:
    """Decodes one stream of messages; unusable after an error."""

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        self._max_message = max_message
        self._rest = bytearray()
        self._length = 0  # of the message that is being received, once it is known
        # All messages of a stream have one of a few sets of headers, so each set is parsed once.
        self._cached_headers: dict[bytes, Mapping[str, HeaderValue]] = {b"": {}}

    def feed(self, chunk: bytes) -> list[EventStreamMessage]:
        """Return the messages that a chunk completes."""
        rest = self._rest
        rest += chunk
        messages: list[EventStreamMessage] = []
        start = 0
        while len(rest) - start >= (self._length or _PRELUDE.size):
            if not self._length:
                self._length = self._read_length(rest, start)
                continue
            messages.append(self._read_message(bytes(rest[start : start + self._length])))
            start += self._length
            self._length = 0
        del rest[:start]
        return messages

    def close(self) -> list[EventStreamMessage]:
        """Return nothing: the checksum of an incomplete message cannot be checked."""
        return []

    def _read_length(self, data: bytearray, start: int) -> int:
        """Return the length of the message that starts here."""
        length, head, checksum = _PRELUDE.unpack_from(data, start)
        # The lengths have a checksum of their own: a damaged one could make us wait for ever.
        if crc32(data[start : start + _LENGTHS.size]) != checksum:
            raise EventStreamError("The bytes are not an event stream, or were damaged in transit.")
        # Checked before the message arrives, so that it is never buffered.
        if length > self._max_message:
            raise EventStreamError(
                f"A message has {length} bytes, more than {self._max_message}. Raise the limit if it should pass."
            )
        if length < head + _OVERHEAD:
            raise EventStreamError("A message is shorter than its headers.")
        return length

    def _read_message(self, data: bytes) -> EventStreamMessage:
        body = len(data) - _CHECKSUM.size
        if crc32(data[:body]) != _CHECKSUM.unpack_from(data, body)[0]:
            raise EventStreamError("A message was damaged in transit: its checksum is wrong.")
        end = _PRELUDE.size + _LENGTHS.unpack_from(data)[1]
        head = data[_PRELUDE.size : end]
        headers = self._cached_headers.get(head)
        if headers is None:
            headers = _read_headers(head)
            # Bounded, because a hostile server could send new headers in every message.
            if len(head) <= _MAX_CACHED_BYTES and len(self._cached_headers) < _MAX_CACHED_HEADERS:
                self._cached_headers[head] = headers
        return EventStreamMessage(headers, data[end:body])


HeaderReader = Callable[[bytes, int], tuple[HeaderValue, int]]
"""Reads a value at a position; returns it and the position after it."""


def _read_headers(head: bytes) -> Mapping[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    place = 0
    try:
        while place < len(head):
            encoded, place = _read_sized(head, place, _U8)
            name = encoded.decode()
            if name in headers:
                raise EventStreamError(f"The header {name!r} comes twice.")
            read = _READERS.get(head[place])
            if read is None:
                raise EventStreamError(f"A header has the unknown type {head[place]}.")
            headers[name], place = read(head, place + 1)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise EventStreamError("The headers of a message cannot be read.") from None
    return headers


def _read_sized(data: bytes, place: int, size: Packed) -> tuple[bytes, int]:
    start = place + size.size
    end = start + size.unpack_from(data, place)[0]
    return _slice(data, start, end), end


def _slice(data: bytes, start: int, end: int) -> bytes:
    # Slicing would silently return fewer bytes.
    if end > len(data):
        raise IndexError
    return data[start:end]


def _read_bytes(data: bytes, place: int) -> tuple[HeaderValue, int]:
    return _read_sized(data, place, _U16)


def _read_text(data: bytes, place: int) -> tuple[HeaderValue, int]:
    value, place = _read_sized(data, place, _U16)
    return value.decode(), place


def _read_uuid(data: bytes, place: int) -> tuple[HeaderValue, int]:
    return _slice(data, place, place + 16), place + 16


def _number_reader(form: str) -> HeaderReader:
    packed = Packed(form)
    return lambda data, place: (packed.unpack_from(data, place)[0], place + packed.size)


_U8, _U16 = Packed(">B"), Packed(">H")
_READERS: dict[int, HeaderReader] = {
    0: lambda data, place: (True, place),
    1: lambda data, place: (False, place),
    2: _number_reader(">b"),
    3: _number_reader(">h"),
    4: _number_reader(">i"),
    5: _number_reader(">q"),
    6: _read_bytes,
    7: _read_text,
    8: _number_reader(">q"),
    9: _read_uuid,
}
