"""Types for the parameters of tools, and a tool with three of them."""

from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import NotRequired, TypedDict

import msgspec
from pydantic import BaseModel, Field

from antiphon.client.tools.tool import tool

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclass
class Home:
    """Where one lives."""

    street: str
    zip: str = "0000"
    tags: list[str] = field(default_factory=list)


class Span(msgspec.Struct):
    first: date
    last: date | None = None


class Options(TypedDict):
    verbose: bool
    limit: NotRequired[int]


class Person(BaseModel):
    """A person."""

    name: str = Field(description="in full")
    age: int = 18
    parent: "Person | None" = None


@dataclass
class Family:
    head: Person


@tool
def weather(city: str, days: int = 1, unit: Unit = Unit.CELSIUS) -> str:
    """Look up the weather.

    Args:
        city: where
        days: how many days ahead
    """
    return f"{city} {days} {unit.name}"
