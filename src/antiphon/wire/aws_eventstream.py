"""AWS's binary event stream, decoded: messages of headers and a payload.

A message is its prelude (the length of all of it, the length of its headers, a checksum of these
two), its headers, its payload, and a checksum of everything before. Numbers are big-endian.
"""

import struct
from collections.abc import Mapping
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


_NAME_LENGTH, _VALUE_LENGTH = Packed(">B"), Packed(">H")
# The types of values: booleans; numbers, timestamps and UUIDs; bytes and text with their length.
_BOOLEANS = {0: True, 1: False}
_FIXED_SIZE = {2: Packed(">b"), 3: Packed(">h"), 4: Packed(">i"), 5: Packed(">q"), 8: Packed(">q"), 9: Packed(">16s")}
_BYTES, _TEXT = 6, 7


def _read_headers(head: bytes) -> Mapping[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    place = 0
    try:
        while place < len(head):
            encoded, place = _read_sized(head, place, _NAME_LENGTH)
            name = encoded.decode()
            if name in headers:
                raise EventStreamError(f"The header {name!r} comes twice.")
            headers[name], place = _read_value(head, place)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise EventStreamError("The headers of a message cannot be read.") from None
    return headers


def _read_value(data: bytes, place: int) -> tuple[HeaderValue, int]:
    """Read a header's type and value; return the value and the position after it."""
    kind, place = data[place], place + 1
    if kind in _BOOLEANS:
        return _BOOLEANS[kind], place
    if packed := _FIXED_SIZE.get(kind):
        return packed.unpack_from(data, place)[0], place + packed.size
    if kind not in (_BYTES, _TEXT):
        raise EventStreamError(f"A header has the unknown type {kind}.")
    value, place = _read_sized(data, place, _VALUE_LENGTH)
    return value.decode() if kind == _TEXT else value, place


def _read_sized(data: bytes, place: int, length: Packed) -> tuple[bytes, int]:
    start = place + length.size
    end = start + length.unpack_from(data, place)[0]
    # Slicing would silently return fewer bytes.
    if end > len(data):
        raise IndexError
    return data[start:end], end
