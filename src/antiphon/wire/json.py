"""JSON bytes to plain values and back, as strict as RFC 8259.

Depth and number of values are limited before anything is parsed, because a few megabytes of
`[[],[],…]` keep any parser busy for a second. `\\u0000` is legal and accepted. A client may not
repeat a key in an object; elsewhere the last one wins.
"""

import json
import math
import re
from collections import Counter
from itertools import accumulate

import msgspec

from antiphon.protocol.struct import as_object
from antiphon.protocol.surrogates import repair_value

Buffer = bytes | bytearray | memoryview

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[{,"))
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: +1 +1 -1 -1


LARGE_FOREIGN = 1024 * 1024
MAX_FOREIGN_STRUCTURE = 1_000_000
"""How many of `[`, `{` and `,` a provider's text above that size may hold outside strings."""


class JSONError(ValueError):
    """Bytes that are not JSON, or a value that JSON cannot express; `key` is the key that is repeated, if any."""

    key: str | None = None


def decode(data: Buffer, *, max_depth: int = 128, max_structure: int = 200_000) -> object:
    """Parse exactly one JSON text, or raise JSONError.

    The limits are how deep it may nest, and how many of `[`, `{` and `,` it may hold outside strings.
    """
    text = bytes(data)
    _check_structure(text, max_depth, max_structure)
    try:
        return _parse(text)
    except JSONError as error:
        raise JSONError(f"{error} Send exactly one JSON value in UTF-8.") from error


def decode_unique(data: Buffer) -> object:
    """Parse a client's message: like `decode`, but raise JSONError also if an object repeats a key."""
    value, text = decode(data), bytes(data)
    # msgspec keeps only the last of equal keys, so a colon is lost with each other one: encoding the value and
    # counting costs a fraction of a parser that sees the keys, except where there are few keys. Only an
    # escaped colon changes the count otherwise.
    colons = text.count(b":")
    is_escaped = b"\\" in text and rb"\u003" in text
    if is_escaped or colons < len(text) // 1000 or colons != _encoder.encode(value).count(b":"):
        _key_decoder.decode(text.decode())
    return value


ESCAPES = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..|\\.", re.DOTALL)
"""The escapes of a JSON string: a pair of surrogates, one alone, or any other."""
LONE_ESCAPE_LENGTH = 6


def replace_lone_surrogates(data: bytes) -> bytes:
    """Return a JSON text with U+FFFD for each escape of half a surrogate pair."""
    # JavaScript's `slice` makes halves, and `JSON.stringify` writes them as escapes.
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return ESCAPES.sub(lambda found: rb"\ufffd" if len(found[0]) == LONE_ESCAPE_LENGTH else found[0], data)


def decode_lenient(data: Buffer) -> object:
    """Parse a provider's chunk, which may contain one half of a surrogate pair.

    Some providers split an emoji between two chunks; the lone half is for the caller to join.
    """
    try:
        return _parse(data)
    except JSONError as refusal:
        text = bytes(data)
        if b"\\ud" not in text.lower():
            raise
        try:
            return _surrogate_decoder.decode(text.decode())
        except (ValueError, RecursionError):
            raise refusal from None


def check_foreign(data: bytes) -> None:
    """Check that a large text of a provider does not fill the memory when it is parsed; raises JSONError."""
    if sum(map(data.count, (b"[", b"{", b","))) > MAX_FOREIGN_STRUCTURE:
        bare = _remove_strings(data, MAX_FOREIGN_STRUCTURE)
        if bare is None or len(bare.translate(None, _NOT_STRUCTURE)) > MAX_FOREIGN_STRUCTURE:
            raise JSONError(f"It holds more than {MAX_FOREIGN_STRUCTURE} brackets and commas.")


def decode_foreign(data: bytes) -> object:
    """Parse a whole message of a provider; halves of surrogate pairs are replaced.

    Only a top-level `delta` keeps them: the next message may hold the other half.
    """
    if len(data) > LARGE_FOREIGN:
        check_foreign(data)
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = decode_lenient(data)
    delta = as_object(value).get("delta")
    repaired = repair_value(value)
    return as_object(repaired) | {"delta": delta} if isinstance(delta, str) else repaired


def encode(value: object) -> bytes:
    """Encode a plain value as compact JSON; NaN and the infinities become null."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise JSONError(
            f"Cannot write JSON: a string holds half of a surrogate pair at index {error.start}. "
            "Join it with its other half, or drop it."
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise JSONError(f"Cannot write JSON: {error}. Give plain JSON values.") from error


def _check_structure(text: bytes, max_depth: int, max_structure: int) -> None:
    """Check that a text is not too expensive to parse; raises JSONError."""
    # Nearly every text passes this cheap test; brackets in strings only make its count too high.
    openings = text.count(b"[") + text.count(b"{")
    if openings <= max_depth and openings + text.count(b",") <= max_structure:
        return
    bare = _remove_strings(text, max_structure)
    if bare is None or len(bare.translate(None, _NOT_STRUCTURE)) > max_structure:
        raise JSONError(f"The JSON holds more than {max_structure} brackets and commas. Send fewer or larger values.")
    steps = memoryview(bare.translate(_STEPS, _NOT_BRACKETS)).cast("b")
    # There are at most `max_structure` openings: after twice as many brackets comes a syntax error.
    if max(accumulate(steps[: 2 * max_structure + 1]), default=0) > max_depth:
        raise JSONError(f"The JSON nests deeper than {max_depth} levels. Flatten it.")


def _remove_strings(text: bytes, max_structure: int) -> bytes | None:
    """Remove all strings from a text; None if it has more strings than `max_structure` allows.

    The result is exact up to the first syntax error, and nothing after an error is parsed.
    """
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Each bracket or comma makes room for one key and one value; each string has two quotes.
    quotes = 2 * (2 * max_structure + 1)
    pieces = unescaped.split(b'"', quotes + 1)
    return b"".join(pieces[::2]) if len(pieces) <= quotes + 1 else None


def _parse(data: Buffer) -> object:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = _reason(bytes(data), error)
        raise JSONError(f"Invalid JSON: {reason}.") from error


def _reason(text: bytes, error: Exception) -> str:
    """Return what is wrong with a text, and where if that is known."""
    if not text.strip():
        return "it is empty"
    if text.startswith(_BYTE_ORDER_MARKS):
        return "it starts with a byte order mark"
    if isinstance(error, RecursionError):
        return "it nests too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"invalid UTF-8 (byte {_first_bad_byte(text)})"
    reason = str(error).removeprefix("JSON is malformed: ")
    if reason == "Input data was truncated":  # msgspec also reports half a pair near the end so
        return f"it ends too early, or inside a surrogate pair (byte {len(text)})"
    return reason[0].lower() + reason[1:]


def _first_bad_byte(text: bytes) -> int:
    """Return the position of the first byte that is not UTF-8; msgspec counts per string."""
    try:
        return len(text.decode())
    except UnicodeDecodeError as error:
        return error.start


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise JSONError(f"Number out of range: {number}.")
    return value


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0][:80]
        error = JSONError(f"An object has the key '{key}' twice. Send each key once.")
        error.key = key
        raise error


# "NaN" and "Infinity" reach `_parse_finite` as constants, 1e999 as a float.
_surrogate_decoder = json.JSONDecoder(parse_constant=_parse_finite, parse_float=_parse_finite)
# Numbers are not needed, and Python limits the digits of an integer.
_key_decoder = json.JSONDecoder(object_pairs_hook=_check_keys, parse_int=len, parse_float=len)
_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
