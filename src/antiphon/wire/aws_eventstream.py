"""AWS's binary event stream, decoded: messages of headers and a payload.

A message is its prelude (the length of all of it, the length of its headers, a checksum of these
two), its headers, its payload, and a checksum of everything before. Numbers are big-endian.
"""

import struct
from collections.abc import Mapping
from io import BytesIO
from struct import Struct as Packed
from typing import Any
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
        length, head, checksum = _PRELUDE.unpack_from(data, start)
        # The lengths have a checksum of their own: a damaged one could make us wait for ever.
        if crc32(data[start : start + _LENGTHS.size]) != checksum:
            raise EventStreamError("The bytes are not an event stream, or were damaged in transit.")
        # Checked before the message arrives, so that it is never buffered.
        if length > self._max_message:
            size = f"{length} bytes, more than {self._max_message}"
            raise EventStreamError(f"A message has {size}. Raise the limit if it should pass.")
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


# The types of values: booleans; numbers, timestamps and UUIDs; bytes and text with their length.
_BOOLEANS = {0: True, 1: False}
_FIXED_SIZE = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q", 9: ">16s"}
_BYTES, _TEXT = 6, 7


def _read_headers(head: bytes) -> Mapping[str, HeaderValue]:
    source = BytesIO(head)

    def read(layout: str) -> Any:
        (value,) = struct.unpack(layout, source.read(struct.calcsize(layout)))
        return value

    headers: dict[str, HeaderValue] = {}
    try:
        while source.tell() < len(head):
            name = read(f"{read('B')}s").decode()
            if name in headers:
                raise EventStreamError(f"The header {name!r} comes twice.")
            kind = read("B")
            if kind in _BOOLEANS:
                headers[name] = _BOOLEANS[kind]
            elif kind in _FIXED_SIZE:
                headers[name] = read(_FIXED_SIZE[kind])
            elif kind in (_BYTES, _TEXT):
                value = read(f"{read('>H')}s")
                headers[name] = value.decode() if kind == _TEXT else value
            else:
                raise EventStreamError(f"A header has the unknown type {kind}.")
    except (struct.error, UnicodeDecodeError):
        raise EventStreamError("The headers of a message cannot be read.") from None
    return headers
