"""The nulls of strict form, taken back.

In strict form every property is required, and one that was optional may be null instead. So a null
where a property is optional means that it was left out, even if null is a value it may have.
"""

from antiphon.adapters.validity import SchemaValidator
from antiphon.core.schema import Schema, is_array, is_object, resolve_reference

MAX_NULL_DEPTH = 256
"""How far a schema is followed; it may go round in circles."""

_DEFINITION_KEYS = ("$defs", "definitions")


def drop_optional_nulls(value: object, schema: Schema) -> object:
    """Leave out the properties that are null and optional."""
    return _NullDropper(schema).drop(value, schema)


class _NullDropper:
    """What the unions of one schema make of one value.

    Each is asked once about each value within: asked again for every way that leads there, a union
    of objects that hold such objects would take a time that doubles with every level.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._definitions = {key: root[key] for key in _DEFINITION_KEYS if key in root}
        self._validators: dict[int, SchemaValidator] = {}
        self._results: dict[tuple[int, int], tuple[object, object]] = {}
        """What was made of a value, by the union; the value is held, so that its id stays its."""

    def drop(self, value: object, schema: object, depth: int = 0) -> object:
        """Leave out the properties that are null and optional."""
        if not is_object(schema) or depth > MAX_NULL_DEPTH:
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self.drop(value, resolve_reference(self._root, ref), depth + 1)
        for member in _array_at(schema, "allOf"):
            value = self.drop(value, member, depth + 1)
        if members := [*_array_at(schema, "anyOf"), *_array_at(schema, "oneOf")]:
            place = id(value), id(schema)
            if place not in self._results:
                self._results[place] = value, self._drop_as_member(members, value, depth)
            _, value = self._results[place]
        if is_array(value) and "items" in schema:
            return [self.drop(entry, schema["items"], depth + 1) for entry in value]
        if is_object(value) and is_object(properties := schema.get("properties")):
            optional = properties.keys() - set(_array_at(schema, "required"))
            return {
                name: self.drop(member, properties.get(name), depth + 1)
                for name, member in value.items()
                if member is not None or name not in optional
            }
        return value

    def _drop_as_member(self, members: list[object], value: object, depth: int) -> object:
        """Take the nulls back as the first member would that allows the rest."""
        for member in filter(is_object, members):
            rest = self.drop(value, member, depth + 1)
            if self._validator(member).is_valid(rest):
                return rest
        return value

    def _validator(self, member: Schema) -> SchemaValidator:
        if id(member) not in self._validators:
            self._validators[id(member)] = SchemaValidator({**self._definitions, **member})
        return self._validators[id(member)]


def _array_at(schema: Schema, key: str) -> list[object]:
    return value if is_array(value := schema.get(key)) else []
