"""The nulls of strict form, taken back.

In strict form every property is required, and one that was optional may be null instead. So a null
where a property is optional means that it was left out, even if null is a value it may have.
"""

from antiphon.adapters.validity import Validity
from antiphon.core.schema import Schema, is_array, is_object, resolve

MAX_DEPTH = 256
"""How far a schema is followed; it may go round in circles."""

_DEFINITIONS = ("$defs", "definitions")


def without_nulls(value: object, schema: Schema) -> object:
    """Leave out the properties that are null and optional."""
    return _Unions(schema).without(value, schema)


class _Unions:
    """What the unions of one schema make of one value.

    Each is asked once about each value within: asked again for every way that leads there, a union
    of objects that hold such objects would take a time that doubles with every level.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._definitions = {key: root[key] for key in _DEFINITIONS if key in root}
        self._members: dict[int, Validity] = {}
        self._chosen: dict[tuple[int, int], tuple[object, object]] = {}
        """What was made of a value, by the union; the value is held, so that its id stays its."""

    def without(self, value: object, schema: object, depth: int = 0) -> object:
        """Leave out the properties that are null and optional."""
        if not is_object(schema) or depth > MAX_DEPTH:
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self.without(value, resolve(self._root, ref), depth + 1)
        for member in _list(schema, "allOf"):
            value = self.without(value, member, depth + 1)
        if members := [*_list(schema, "anyOf"), *_list(schema, "oneOf")]:
            place = id(value), id(schema)
            if place not in self._chosen:
                self._chosen[place] = value, self._as_one_of(members, value, depth)
            _, value = self._chosen[place]
        if is_array(value) and "items" in schema:
            return [self.without(entry, schema["items"], depth + 1) for entry in value]
        if is_object(value) and is_object(properties := schema.get("properties")):
            optional = properties.keys() - set(_list(schema, "required"))
            return {
                name: self.without(member, properties.get(name), depth + 1)
                for name, member in value.items()
                if member is not None or name not in optional
            }
        return value

    def _as_one_of(self, members: list[object], value: object, depth: int) -> object:
        """Take the nulls back as the first member would that allows the rest."""
        for member in filter(is_object, members):
            rest = self.without(value, member, depth + 1)
            if self._validity(member).allows(rest):
                return rest
        return value

    def _validity(self, member: Schema) -> Validity:
        if id(member) not in self._members:
            self._members[id(member)] = Validity({**self._definitions, **member})
        return self._members[id(member)]


def _list(schema: Schema, key: str) -> list[object]:
    return value if is_array(value := schema.get(key)) else []
