"""Results of tools as output for the model."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath

import msgspec
import pytest
from msgspec import UNSET
from pydantic import BaseModel

from antiphon.client.tools.execute import build_output
from antiphon.protocol.items import InputFile, InputImage, InputText, ItemReference


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


class Place(msgspec.Struct):
    city: str


class City(BaseModel):
    name: str


IMAGE = InputImage(image_url="data:image/png;base64,AA==")
FILE = InputFile(filename="a.txt", file_data="QQ==")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("half \ud83d", "half \N{REPLACEMENT CHARACTER}"),
        (None, ""),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ((1, "b"), '[1,"b"]'),
        ({1}, "[1]"),
        ([], "[]"),
        (Point(1), '{"x":1}'),
        (Place("Oslo"), '{"city":"Oslo"}'),
        (City(name="Oslo"), '{"name":"Oslo"}'),
        ({"a": City(name="Oslo"), "b": PurePosixPath("c")}, '{"a":{"name":"Oslo"},"b":"c"}'),
        (ItemReference(id="i", extra={"more": 1}), '{"type":"item_reference","id":"i","more":1}'),
        (Color.RED, "red"),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.50"), "1.50"),
        ({(1, 2): 3}, '{"(1, 2)":3}'),
        ({"half": "\ud83d"}, "{'half': '\\ud83d'}"),
        (IMAGE, [IMAGE]),
        ([InputText(text="look"), IMAGE], [InputText(text="look"), IMAGE]),
        ((FILE,), [FILE]),
    ],
)
def test_a_result_becomes_output(value: object, expected: object):
    assert build_output(value) == expected


def test_content_among_other_values_is_data():
    assert build_output([FILE, 1]) == '[{"type":"input_file","filename":"a.txt","file_data":"QQ=="},1]'
    assert FILE.extra is UNSET


def test_a_recursive_value_becomes_its_repr():
    loop: list[object] = []
    loop.append(loop)
    assert build_output(loop) == "[[...]]"
