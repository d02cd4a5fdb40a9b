"""The smallest value that satisfies a JSON Schema.

A schema is flattened: behind its references, in `allOf` and in one choice of each `anyOf` and
`oneOf` stand the demands on one value. Values are then proposed by the most telling keyword
(`enum`, `default`, `examples`, `type`), and the first that keeps to every limit is taken. A
reference met again inside itself ends that branch, so recursion stops at null, at an empty array,
at an omitted property.

Values that the schema itself tells are held against its type and limits only: what they contain,
and whether they match a `pattern`, is trusted. What neither this file nor `json_schema.py` names
(`not`, `if`, `contains`) is not looked at.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from antiphon.protocol.json_schema import (
    Demands,
    Schema,
    is_array,
    is_object,
    resolve_reference,
)
from antiphon.protocol.pattern import MAX_LENGTH, matching
from antiphon.protocol.struct import join_path

MAX_DEPTH = 64
MAX_NAME = 64
"""How much of a property's name a path shows."""

MAX_STEPS = 10_000
"""How much may be opened, proposed and compared before the search gives up."""

MAX_ITEMS = 100
"""How long an array may have to be, and how many values are proposed where any would do."""


class Unsatisfiable(ValueError):
    """A schema for which no value was found; the path is the place in the value."""

    def __init__(
        self, path: str, reason: str = "no value was found that the schema allows"
    ) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path


def example(schema: Mapping[str, object], *, hint: str = "") -> object:
    """Return the smallest value a schema allows, its plain strings taken from the hint."""
    stuck = ""
    try:
        for visits in (1, 2, 3):  # a reference inside itself: not at all, then as little as needed
            search = _Search(dict(schema), hint, visits)
            for value in search.values([search.root], _Place()):
                return value
            stuck = search.stuck or ""
            if not search.cut:
                break
    except Unsatisfiable:
        raise
    except (ArithmeticError, RecursionError, ValueError) as error:  # numbers and values without end
        raise Unsatisfiable(stuck, "the schema holds a number or a value out of reach") from error
    raise Unsatisfiable(stuck)


def topic(hint: str) -> str:
    """Return what a question is about: a name after a preposition, or else all of it.

    >>> topic("What's the weather in San Francisco?")
    'San Francisco'
    """
    words = hint.split()
    for index, word in enumerate(words):
        if word.lower() in ("in", "for", "of") and (name := _name(words[index + 1 :])):
            return name
    return hint.strip()


def _name(words: list[str]) -> str:
    """Return the capitalised words at the start, up to the end of their clause."""
    name: list[str] = []
    for word in words:
        bare = word.strip(".,;:!?\"'()")
        if not bare[:1].isupper():
            break
        name.append(bare)
        if not word.endswith(bare):
            break
    return " ".join(name)


_FORMATS = {
    "date": "2025-01-{:02}",
    "date-time": "2025-01-{:02}T12:00:00Z",
    "time": "12:00:{:02}Z",
    "duration": "P{}D",
    "email": "user{}@example.com",
    "uri": "https://example.com/{}",
    "uuid": "00000000-0000-4000-8000-{:012}",
    "hostname": "host{}.example.com",
    "ipv4": "192.0.2.{}",
    "ipv6": "2001:db8::{}",
}
"""A month of values for each format."""

_SPEAKING = {
    "object": ("properties", "required", "minProperties"),
    "array": ("items", "prefixItems", "minItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The keywords by which a schema without a `type` gives it away."""


class _Place(NamedTuple):
    """Where in the value the search is, and inside which references."""

    path: str = ""
    name: str = "text"
    refs: tuple[str, ...] = ("#",)
    depth: int = 0

    def property(self, name: str) -> "_Place":
        return self._replace(path=join_path(self.path, name[:MAX_NAME]), name=name)

    def item(self, index: int) -> "_Place":
        return self._replace(path=f"{self.path}[{index}]")


class _Search:
    """One search; each generator gives the best value first, and nothing if there is none."""

    def __init__(self, root: Schema, hint: str, visits: int) -> None:
        self.root = root
        self.topic = topic(hint[:MAX_LENGTH])
        self.visits = visits
        self.steps = 0
        self.cut = False
        """Whether a reference was not followed for the sake of `visits`."""
        self.stuck: str | None = None
        """The innermost place for which nothing was found, until something is."""

    def step(self, place: _Place, count: int = 1) -> None:
        """Count some work, and stop when it has been too much."""
        self.steps += count
        if self.steps > MAX_STEPS:
            raise Unsatisfiable(place.path, "the schema is too large to search")

    def values(self, schemas: list[object], place: _Place) -> Iterator[object]:
        """Find values that several schemas allow, or leave a note of where it got stuck."""
        found = False
        for demands, inner in self.flatten(schemas, Demands(), place):
            for value in self.proposals(demands, inner):
                self.step(place)
                if demands.allow(value):
                    found, self.stuck = True, None
                    yield value
        if not found and self.stuck is None:
            self.stuck = place.path

    def flatten(
        self, schemas: list[object], demands: Demands, place: _Place
    ) -> Iterator[tuple[Demands, _Place]]:
        """Gather the demands of schemas, once for each choice among their alternatives."""
        self.step(place, 1 + len(schemas))
        schemas = [schema for schema in schemas if schema is not True]
        if not schemas:
            yield demands, place
            return
        schema, *rest = schemas
        if not is_object(schema) or place.depth >= MAX_DEPTH:
            return
        self.step(place, _size(schema) // 100)  # what is behind a reference is read every time
        place = place._replace(depth=place.depth + 1)
        if isinstance(ref := schema.get("$ref"), str):
            if place.refs.count(ref) >= self.visits:
                self.cut = True
                return
            place = place._replace(refs=(*place.refs, ref))
            rest = [resolve_reference(self.root, ref), *rest]
        if is_array(members := schema.get("allOf")):
            rest = [*members, *rest]
        for any_of in _choices(schema.get("anyOf")):
            for one_of in _choices(schema.get("oneOf")):
                yield from self.flatten([*any_of, *one_of, *rest], demands & schema, place)

    def proposals(self, demands: Demands, place: _Place) -> Iterator[object]:
        """Propose values by the most telling keyword there is."""
        told = [*demands.every("default"), *chain(*demands.every("examples"))]
        lists = [*demands.every("enum"), *([value] for value in demands.every("const"))]
        if lists:
            several = told or lists[1:]
            told = self.common([*told, *lists[0]], lists, place) if several else lists[0]
        yield from (self.copy(value, place) for value in told)
        if lists:
            return
        names = demands.types() if "type" in demands else [_spoken_of(demands)]
        for name in sorted(names, key="null".__eq__):
            yield from self.of_type(name, demands, place)

    def common(self, values: list[Any], lists: list[list[Any]], place: _Place) -> list[Any]:
        """Return the values that all lists have too."""
        for others in lists:
            known = {self.text(other, place) for other in others}
            values = [value for value in values if self.text(value, place) in known]
        return values

    def text(self, value: object, place: _Place) -> str:
        """Write a value in the one way that makes equal values equal: true is not 1."""
        text = json.dumps(value, sort_keys=True)
        self.step(place, 1 + len(text) // 100)
        return text

    def copy(self, value: object, place: _Place) -> object:
        """Copy a value out of the schema, which stays the caller's."""
        self.step(place, 1 + len(value) // 100 if isinstance(value, str) else 1)
        if is_object(value):
            return {name: self.copy(member, place) for name, member in value.items()}
        return [self.copy(member, place) for member in value] if is_array(value) else value

    def of_type(self, name: str, demands: Demands, place: _Place) -> Iterator[object]:
        """Propose values of one type."""
        match name:
            case "string":
                yield from self._strings(demands, place)
            case "number" | "integer":
                yield from _numbers(demands)
            case "boolean":
                yield from (False, True)
            case "array":
                yield from self._arrays(demands, place)
            case "object":
                yield from self._objects(demands, place)
            case _:
                yield None

    def _strings(self, demands: Demands, place: _Place) -> Iterator[object]:
        least = max(demands.every("minLength"), default=0)
        most = min(demands.every("maxLength"), default=MAX_LENGTH)
        patterns = set(demands.every("pattern"))
        formats = [name for name in demands.every("format") if name in _FORMATS]
        if len(patterns) == 1:
            self.step(place, len(pattern := patterns.pop()))
            yield from matching(pattern, least)
        elif patterns or least > MAX_LENGTH:
            return
        elif formats:
            yield from map(_FORMATS[formats[0]].format, range(1, 29))
        else:
            text = self.topic or place.name
            for ending in ("", *map(str, range(2, MAX_ITEMS))):
                yield (text[: max(0, most - len(ending))] + ending).ljust(least, ".")

    def _arrays(self, demands: Demands, place: _Place) -> Iterator[object]:
        least = max(demands.every("minItems"), default=0)
        most = min(demands.every("maxItems"), default=MAX_ITEMS)
        unique = any(demands.every("uniqueItems"))
        array: dict[str, object] = {}
        while least <= MAX_ITEMS and len(array) <= min(most, MAX_ITEMS):
            if len(array) >= least:
                yield [*array.values()]
            index = len(array)
            for value in self.values(demands.item(index), place.item(index)):
                key = self.text(value, place) if unique else str(index)
                if key not in array:
                    array[key] = value
                    break
            else:
                return

    def _objects(self, demands: Demands, place: _Place) -> Iterator[object]:
        required = demands.names("required")
        least = max(len(required), *demands.every("minProperties"), 0)
        names = list(dict.fromkeys(required + demands.names("properties")))[:least]
        streams = {n: self.values(demands.property(n), place.property(n)) for n in names}
        found: dict[str, object] = {}
        for name, values in streams.items():
            for value in values:
                found[name] = value
                break
            else:
                return
        yield found
        for name, values in streams.items():
            yield from ({**found, name: value} for value in values)


def _numbers(demands: Demands) -> Iterator[object]:
    """Propose the whole steps around the allowed number nearest to 0, then what lies between."""
    least = demands.every("minimum") + demands.every("exclusiveMinimum")
    most = demands.every("maximum") + demands.every("exclusiveMaximum")
    step = max(demands.every("multipleOf"), default=1)
    nearest = min([max([0, *least]), *most]) // step
    for distance in range(MAX_ITEMS):
        yield _whole((nearest + distance) * step)
        yield _whole((nearest - distance) * step)
    yield from least + most
    if least and most:
        yield (max(least) + min(most)) / 2


def _choices(members: object) -> Iterator[list[object]]:
    """Return the alternatives of a union, each as a list; without a union there is an empty one."""
    if is_array(members):
        yield from ([member] for member in members)
    else:
        yield []


def _size(schema: Schema) -> int:
    return sum(len(v) for v in schema.values() if isinstance(v, str) or is_array(v) or is_object(v))


def _spoken_of(demands: Demands) -> str:
    speaking = (name for name, keys in _SPEAKING.items() if any(key in demands for key in keys))
    return next(speaking, "string")


def _whole(number: float) -> float:
    return int(number) if number % 1 == 0 else number
