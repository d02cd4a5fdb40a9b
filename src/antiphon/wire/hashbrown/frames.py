"""Length-prefixed frames, both ways: a length of four bytes, and as many bytes of JSON.

The length is big-endian. A frame's JSON is an object with a `type`. There is nothing else in a
stream: no head, no separator, no last word.
"""

import struct
from typing import cast

from antiphon.protocol.struct import encode as encode_json
from antiphon.wire import json

MAX_FRAME = 16 * 1024 * 1024

Frame = dict[str, object]

_LENGTH = struct.Struct(">I")


class FrameError(ValueError):
    """Bytes that are no frames, or a frame larger than we are willing to hold."""


class Decoder:
    """Hears one stream of frames; after an error it is of no further use."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that this chunk completes."""
        rest = self._rest
        rest += chunk
        frames: list[Frame] = []
        start = 0
        while (body := start + _LENGTH.size) <= len(rest):
            end = body + self._read_length(start)
            if end > len(rest):
                break
            frames.append(_decode_frame(bytes(rest[body:end])))
            start = end
        del rest[:start]
        return frames

    def close(self) -> None:
        """Raise FrameError if the stream has ended inside a frame."""
        if self._rest:
            raise FrameError(f"The stream ended with {len(self._rest)} bytes of a frame.")

    def _read_length(self, start: int) -> int:
        (length,) = _LENGTH.unpack_from(self._rest, start)
        if length > self._max_frame:
            raise FrameError(
                f"A frame has {length} bytes, more than {self._max_frame}. "
                "Raise the limit if it should pass."
            )
        return length


def encode_frame(value: object) -> bytes:
    """Write one frame."""
    return add_length(encode_json(value))


def add_length(data: bytes) -> bytes:
    """Write a frame whose JSON is written already."""
    return _LENGTH.pack(len(data)) + data


def _decode_frame(data: bytes) -> Frame:
    try:
        value = json.decode(data)
    except json.JSONError as error:
        raise FrameError(f"A frame is not valid JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(cast("Frame", value).get("type"), str):
        raise FrameError("A frame is no object with a 'type'.")
    return cast("Frame", value)
