"""An encoder of AWS's event stream, for tests of the decoder and of Bedrock."""

import struct
from collections.abc import Mapping
from zlib import crc32

from antiphon.wire.aws_eventstream import HeaderValue


def encode(headers: Mapping[str, HeaderValue], payload: bytes) -> bytes:
    """Encode one message; every integer is encoded as a long."""
    head = b"".join(map(_encode_header, headers, headers.values()))
    lengths = struct.pack(">II", len(head) + len(payload) + 16, len(head))
    message = lengths + struct.pack(">I", crc32(lengths)) + head + payload
    return message + struct.pack(">I", crc32(message))


def _encode_header(name: str, value: HeaderValue) -> bytes:
    encoded_name = name.encode()
    match value:
        case bool():
            encoded_value = bytes([0 if value else 1])
        case int():
            encoded_value = b"\x05" + struct.pack(">q", value)
        case bytes():
            encoded_value = b"\x06" + struct.pack(">H", len(value)) + value
        case str():
            data = value.encode()
            encoded_value = b"\x07" + struct.pack(">H", len(data)) + data
    return bytes([len(encoded_name)]) + encoded_name + encoded_value
