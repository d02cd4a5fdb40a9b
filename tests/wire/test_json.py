"""Strict JSON: errors and limits."""

import json as stdlib
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.wire.json import JSONError, decode, decode_foreign, decode_lenient, decode_unique, encode

# Characters that mislead a counter which does not know where strings end.
tricky = st.text('[]{},:"\\ \n\0aé😀')
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | tricky
values: st.SearchStrategy[Any] = st.recursive(
    scalars.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(tricky, inner, max_size=4),
    max_leaves=20,
)
fragments = st.lists(
    st.binary(max_size=2)
    | st.sampled_from(rb'[ ] { } , : " \ \" \ud83d \ude00 \u0000 "k": 1 - . e999 NaN Infinity null'.split())
    | st.sampled_from([b" ", b"\n", b"\xef\xbb\xbf", b"\xed\xa0\x80", '"é"'.encode()])
).map(b"".join)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def structure(value: Any) -> int:
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        return 1 + max(len(inner) - 1, 0) + sum(map(structure, inner))
    return 0


def error_of(data: bytes) -> str:
    with pytest.raises(JSONError) as caught:
        decode(data)
    return str(caught.value)


REFUSED = {
    b"": "it is empty",
    b" \n": "it is empty",
    b"NaN": "invalid character (byte 0)",
    b"[Infinity]": "invalid character (byte 1)",
    b"[-Infinity]": "invalid character (byte 2)",
    b"1e999": "number out of range",
    b"[-1e999]": "number out of range - at `$[0]`",
    b"1" * 5_000: "integer value out of range",
    rb'["\ud83d", "and more text"]': "unexpected end of escaped utf-16 surrogate pair (byte 8)",
    rb'"\ude00"': "invalid utf-16 surrogate pair (byte 7)",
    rb'"\ud83d\ud83d"': "invalid utf-16 surrogate pair (byte 13)",
    rb'"\ud83d"': "it ends too early, or inside a surrogate pair (byte 8)",
    b'{"a":': "it ends too early, or inside a surrogate pair (byte 5)",
    b'["ok", "\xff"]': "invalid UTF-8 (byte 8)",
    b'{"\xc0\x80": 1}': "invalid UTF-8 (byte 2)",
    b'"\xed\xa0\x80"': "invalid UTF-8 (byte 1)",
    b"\xef\xbb\xbf{}": "it starts with a byte order mark",
    "{}".encode("utf-16"): "it starts with a byte order mark",
    "{}".encode("utf-16-be"): "invalid character (byte 0)",
    b"{} {}": "trailing characters (byte 4)",
    b"[1,]": "trailing comma in array (byte 3)",
    b"'a'": "invalid character (byte 0)",
    b"01": "invalid number (byte 1)",
    b'"a\nb"': "invalid character (byte 2)",
    b'"\0"': "invalid character (byte 1)",
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.items())
def test_invalid_json_is_rejected_with_a_reason(data: bytes, reason: str) -> None:
    assert error_of(data) == f"Invalid JSON: {reason}. Send exactly one JSON value in UTF-8."


def test_unusual_but_valid_json_is_accepted() -> None:
    data = rb' {"\u0000": "\u0000", "a": 1, "a": 2, "emoji": "\ud83d\ude00", "tiny": 1e-999} '
    assert decode(data) == {"\0": "\0", "a": 2, "emoji": "😀", "tiny": 0.0}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_bytes_type_is_accepted(kind: type) -> None:
    assert decode(kind(b'{"a":[1]}')) == {"a": [1]}
    assert decode_lenient(kind(b'{"a":[1]}')) == {"a": [1]}
    with pytest.raises(JSONError):
        decode(kind(b'{"a":[1]'))
    assert decode_lenient(kind(rb'{"a":"\ud83d"}')) == {"a": "\ud83d"}


def test_128_levels_are_accepted_and_129_rejected() -> None:
    nested: object = 1
    for _ in range(64):
        nested = {"]}": [nested]}
    data = encode(nested)
    assert decode(data) == nested
    refused = "The JSON nests deeper than 128 levels. Flatten it."
    assert error_of(b"[" + data + b"]") == refused
    assert error_of(b"[" * 129) == refused
    assert error_of(b"[" * 100_000) == refused


def test_an_array_bomb_is_rejected_before_it_is_parsed() -> None:
    bomb = b"[" + b"[]," * 2_700_000 + b"[]]"
    refused = "The JSON holds more than 200000 brackets and commas. Send fewer or larger values."
    assert error_of(bomb) == refused
    # A parser would stop at its first byte and complain of that.
    assert error_of(b"!" + bomb) == refused
    assert error_of(b'["' + b'","' * 2_000_000 + b'"]') == refused


def test_structure_at_the_limit_is_accepted() -> None:
    assert decode(b"[" + b"1," * 199_999 + b"1]") == [1] * 200_000
    pairs = b",".join(b'"%d":"[,"' % n for n in range(200_000))
    assert decode(b"{" + pairs + b"}") == {str(n): "[," for n in range(200_000)}
    with pytest.raises(JSONError):
        decode(b"[" + b"1," * 200_000 + b"1]")


@pytest.mark.parametrize("text", ["[" * 300_000, "{,]" * 300_000, '"[\\' * 100_000, "\\" * 300_001])
def test_brackets_in_strings_do_not_count(text: str) -> None:
    value = {"key" + text: text, "list": [text]}
    assert decode(encode(value)) == value


def test_64_mib_of_base64_in_one_string_is_accepted() -> None:
    text = "QUJD" * (16 * 1024 * 1024)
    assert decode(b'"' + text.encode() + b'"') == text


@given(values)
def test_limits_match_the_parsed_value(value: Any) -> None:
    data = stdlib.dumps(value, ensure_ascii=False).encode()
    max_depth, max_structure = depth(value), structure(value)
    assert decode(data, max_depth=max_depth, max_structure=max_structure) == value
    if max_depth:
        with pytest.raises(JSONError, match="nests deeper"):
            decode(data, max_depth=max_depth - 1, max_structure=max_structure)
        with pytest.raises(JSONError, match="brackets and commas"):
            decode(data, max_depth=max_depth, max_structure=max_structure - 1)


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_json_of_the_standard_library_is_decoded(value: Any, ascii: bool, indent: int | None) -> None:
    text = stdlib.dumps(value, ensure_ascii=ascii, indent=indent)
    # Compared as text, which tells 1 from 1.0 and from true.
    assert stdlib.dumps(decode(text.encode())) == stdlib.dumps(value)
    assert stdlib.dumps(decode_lenient(text.encode())) == stdlib.dumps(value)


@given(st.binary() | fragments)
@example(b"[" * 100_000)
@example(b'["\\ud83d' + b"[" * 100_000)
def test_any_bytes_are_a_value_or_a_json_error(data: bytes) -> None:
    try:
        value = decode(data, max_depth=10**9, max_structure=10**9)
    except JSONError:
        pass
    else:
        assert value == stdlib.loads(data)
        assert stdlib.loads(encode(value)) == value
    try:
        value = decode_lenient(data)
    except JSONError:
        pass
    else:
        assert value == stdlib.loads(data)


def test_half_a_surrogate_pair_is_kept() -> None:
    first = decode_lenient(rb'{"text": "hi \ud83d", "chance": 0.5}')
    second = decode_lenient(rb'{"text": "\uDE00!"}')
    assert (first, second) == ({"text": "hi \ud83d", "chance": 0.5}, {"text": "\ude00!"})


@pytest.mark.parametrize(
    "data",
    [
        rb'["\ud83d", NaN]',
        rb'["\ud83d", -Infinity]',
        rb'["\ud83d", 1e999]',
        rb'["\ud83d"] 1',
        rb'["\ud83d"',
        b'["\\ud83d", "\xff"]',
        b'\xef\xbb\xbf"\\ud83d"',
        '"\\ud83d"'.encode("utf-16"),
        rb'["\ud83d", ' + b"[" * 100_000 + b"]" * 100_000 + b"]",
        b"[" * 100_000 + b"]" * 100_000,
        b"NaN",
        b"",
    ],
)
def test_half_a_surrogate_pair_excuses_no_other_error(data: bytes) -> None:
    with pytest.raises(JSONError, match=r"^Invalid JSON: (?!.*Send exactly).*\.$"):
        decode_lenient(data)


def test_values_are_encoded_compactly() -> None:
    value = {"a": [1, 2.5, None, True], "é": "😀\n"}
    assert encode(value) == '{"a":[1,2.5,null,true],"é":"😀\\n"}'.encode()
    assert encode([float("nan"), float("inf")]) == b"[null,null]"


@given(values)
def test_encoded_values_are_decoded(value: Any) -> None:
    assert stdlib.dumps(decode(encode(value))) == stdlib.dumps(value)


def test_values_that_json_cannot_express_are_rejected() -> None:
    endless: list[object] = []
    endless.append(endless)
    refusals: list[str] = []
    for value in ({"a": "x\ud83d"}, object(), {None: 1}, endless):
        with pytest.raises(JSONError) as caught:
            encode(value)
        refusals.append(str(caught.value))
    assert refusals == [
        "Cannot write JSON: a string holds half of a surrogate pair at index 1. "
        "Join it with its other half, or drop it.",
        "Cannot write JSON: Encoding objects of type object is unsupported. Give plain JSON values.",
        "Cannot write JSON: Only dicts with str-like or number-like keys are supported. Give plain JSON values.",
        "Cannot write JSON: maximum recursion depth exceeded while serializing an object. Give plain JSON values.",
    ]


def test_closing_brackets_are_counted_only_as_far_as_they_can_match(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0

    def count_steps(steps: Iterable[int]) -> Iterator[int]:
        nonlocal counted
        for total in accumulate(steps):
            counted += 1
            yield total

    monkeypatch.setattr("antiphon.wire.json.accumulate", count_steps)
    with pytest.raises(JSONError, match="nests deeper than 128 levels"):
        decode(b"[" * 129 + b"]" * 1_000_000)
    with pytest.raises(JSONError, match="Invalid JSON"):
        decode(b"[" + b"[]," * 200 + b"]" * 1_000_000)
    assert counted <= 2 * 400_001


@pytest.mark.parametrize("many", [b"{},", b"[],", b'"",', b'"k":1,'])
def test_a_large_text_of_a_provider_with_too_many_values_is_rejected_before_it_is_parsed(many: bytes) -> None:
    text = b'{"a":[' + many * 1_100_000
    with pytest.raises(JSONError, match="more than 1000000 brackets and commas"):
        decode_foreign(text)


def test_brackets_in_the_strings_of_a_large_text_do_not_count() -> None:
    text = b'{"a":"' + b'[{,\\"' * 500_000 + b'"}'
    assert decode_foreign(text) == {"a": '[{,"' * 500_000}


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b'{"model":"a","model":"b"}', "model"),
        (b'{"a":{"b":1,"\\u0062":2}}', "b"),
        (b'[{"x":"\\u003a:","c":1,"c":{"d":2}}]', "c"),  # an escaped colon makes up for a lost one
        (b'[{"c":"' + b"x" * 5000 + b'","c":1}]', "c"),
        (b'{"a":1%s,"a":2}' % (b"0" * 30), "a"),
    ],
)
def test_a_client_may_not_repeat_a_key(data: bytes, key: str) -> None:
    with pytest.raises(JSONError, match=f"^An object has the key '{key}' twice. Send each key once.$") as caught:
        decode_unique(data)
    assert caught.value.key == key
    decode(data)  # the arguments that a model writes, for example


@given(values)
def test_unique_keys_are_accepted_however_they_are_written(value: Any) -> None:
    for text in (stdlib.dumps(value), stdlib.dumps(value, ensure_ascii=False, indent=1)):
        try:
            expected = decode(text.encode())
        except JSONError:  # a number out of range
            continue
        assert decode_unique(text.encode()) == expected


@given(values, values, values)
def test_a_repeated_key_is_found_at_any_place(first: Any, second: Any, beside: Any) -> None:
    text = f'{{"beside": {stdlib.dumps(beside)}, "in": [{{"k": {stdlib.dumps(first)}, "k": {stdlib.dumps(second)}}}]}}'
    with pytest.raises(JSONError):
        decode_unique(text.encode())
