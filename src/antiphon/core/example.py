"""The smallest value that satisfies a JSON Schema.

A schema is flattened: references, `allOf` and one choice of each `anyOf` and `oneOf` become one
level of demands. Values are then proposed by its most telling keyword (`enum`, `default`,
`examples`, `type`), and the first that keeps to its limits is taken. A reference met again inside
itself ends that branch, so recursion stops at null, at an empty array, at an omitted property.

What is named neither here nor in `core/schema.py` (`not`, `if`, `contains`) is not looked at.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar, NamedTuple

from antiphon.core.pattern import MAX_LENGTH, matching
from antiphon.core.schema import Schema, combine, fits, is_array, is_object, read, resolve, same
from antiphon.core.value import join

MAX_DEPTH = 64
MAX_STEPS = 10_000
"""How many schemas may be opened and values proposed before the search gives up."""

MAX_ITEMS = 100
"""How long an array may have to be, and how many values are proposed where any would do."""


class Unsatisfiable(ValueError):  # noqa: N818 - it says of the schema what it is
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
            for value in search.values(search.root, _Place()):
                return value
            stuck = search.stuck or ""
    except (OverflowError, RecursionError) as error:
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
        return self._replace(path=join(self.path, name), name=name)

    def item(self, index: int) -> "_Place":
        return self._replace(path=f"{self.path}[{index}]")


class _Search:
    """One search; each generator gives the best value first, and nothing if there is none."""

    def __init__(self, root: Schema, hint: str, visits: int) -> None:
        self.root = root
        self.topic = topic(hint)[:MAX_LENGTH]
        self.visits = visits
        self.steps = 0
        self.stuck: str | None = None

    def step(self, place: _Place, count: int = 1) -> None:
        """Count some work, and stop when it has been too much."""
        self.steps += count
        if self.steps > MAX_STEPS:
            raise Unsatisfiable(place.path, "the schema is too large to search")

    def values(self, schema: object, place: _Place) -> Iterator[object]:
        """Find values that a schema allows, or leave a note of where it got stuck."""
        found = False
        for flat, inner in self.flatten([schema], {}, place):
            for value in self.proposals(flat, inner):
                self.step(place)
                if fits(value, flat):
                    found, self.stuck = True, None
                    yield value
        if not found and self.stuck is None:
            self.stuck = place.path

    def flatten(
        self, todo: list[Any], flat: Schema, place: _Place
    ) -> Iterator[tuple[Schema, _Place]]:
        """Join schemas that hold together, once for each choice among their alternatives."""
        self.step(place)
        if not todo:
            yield flat, place
            return
        schema, *rest = todo
        schema = {} if schema is True else schema
        if not is_object(schema) or place.depth >= MAX_DEPTH:
            return
        place = place._replace(depth=place.depth + 1)
        if isinstance(ref := schema.get("$ref"), str):
            if place.refs.count(ref) >= self.visits:
                return
            place = place._replace(refs=(*place.refs, ref))
            rest = [resolve(self.root, ref), *rest]
        if is_array(members := schema.get("allOf")):
            rest = [*members, *rest]
        flat = combine(flat, read(schema))
        for any_of in _choices(schema.get("anyOf")):
            for one_of in _choices(schema.get("oneOf")):
                yield from self.flatten([*any_of, *one_of, *rest], flat, place)

    def proposals(self, flat: Schema, place: _Place) -> Iterator[object]:
        """Propose values by the most telling keyword there is."""
        if "enum" in flat:
            yield from map(deepcopy, flat["enum"])
            return
        if "default" in flat:
            yield deepcopy(flat["default"])
        yield from map(deepcopy, flat.get("examples", ()))
        for name in sorted(flat.get("type", [_spoken_of(flat)]), key="null".__eq__):
            yield from self.PROPOSE[name](self, flat, place)

    # --- one method per type ---

    def _strings(self, flat: Schema, place: _Place) -> Iterator[object]:
        least, most = flat.get("minLength", 0), flat.get("maxLength", MAX_LENGTH)
        if "pattern" in flat:
            self.step(place, len(flat["pattern"]))
            yield from matching(flat["pattern"], least)
        elif template := _FORMATS.get(flat.get("format", "")):
            yield from map(template.format, range(1, 29))
        elif least <= MAX_LENGTH:
            text = self.topic or place.name
            for ending in ("", *map(str, range(2, MAX_ITEMS))):
                yield (text[: max(0, most - len(ending))] + ending).ljust(least, ".")

    def _numbers(self, flat: Schema, place: _Place) -> Iterator[object]:
        del place
        step = flat.get("multipleOf", 1)
        least = [flat[key] for key in ("minimum", "exclusiveMinimum") if key in flat]
        most = [flat[key] for key in ("maximum", "exclusiveMaximum") if key in flat]
        nearest = min([max([0, *least]), *most])
        rounds = nearest // step
        for distance in range(MAX_ITEMS):
            yield _whole((rounds + distance) * step)
            yield _whole((rounds - distance) * step)
        yield from least
        yield from most
        if least and most:
            yield (max(least) + min(most)) / 2

    def _booleans(self, flat: Schema, place: _Place) -> Iterator[object]:
        del flat, place
        yield from (False, True)

    def _nulls(self, flat: Schema, place: _Place) -> Iterator[object]:
        del flat, place
        yield None

    def _arrays(self, flat: Schema, place: _Place) -> Iterator[object]:
        least, most = flat.get("minItems", 0), flat.get("maxItems", MAX_ITEMS)
        prefix, items = flat.get("prefixItems", []), flat.get("items", True)
        array: list[object] = []
        if least > MAX_ITEMS:
            return
        while len(array) <= min(most, MAX_ITEMS):
            if len(array) >= least:
                yield [*array]
            schema = prefix[len(array)] if len(array) < len(prefix) else items
            for value in self.values(schema, place.item(len(array))):
                if not (flat.get("uniqueItems") and any(same(value, other) for other in array)):
                    array.append(value)
                    break
            else:
                return

    def _objects(self, flat: Schema, place: _Place) -> Iterator[object]:
        properties, others = flat.get("properties", {}), flat.get("additionalProperties", True)
        required = list(dict.fromkeys(flat.get("required", ())))
        optional = (name for name in properties if name not in required)
        names = [*required, *optional][: max(len(required), flat.get("minProperties", 0))]
        found: dict[str, object] = {}
        streams = {n: self.values(properties.get(n, others), place.property(n)) for n in names}
        for name, values in streams.items():
            for value in values:
                found[name] = value
                break
            else:
                return
        yield found
        for name, values in streams.items():
            yield from ({**found, name: value} for value in values)

    PROPOSE: ClassVar[dict[str, Callable[..., Iterator[object]]]] = {
        "string": _strings,
        "number": _numbers,
        "integer": _numbers,
        "boolean": _booleans,
        "null": _nulls,
        "array": _arrays,
        "object": _objects,
    }


def _choices(members: object) -> list[list[Any]]:
    """Return the alternatives of a union, each as a list; a missing one has one that is empty."""
    return [[member] for member in members] if is_array(members) else [[]]


def _spoken_of(flat: Schema) -> str:
    return next((name for name, keys in _SPEAKING.items() if flat.keys() & set(keys)), "string")


def _whole(number: float) -> float:
    return int(number) if number % 1 == 0 else number
