"""The nulls of strict form, taken back.

In strict form every property is required, and one that was optional may be null instead. So a null
where a property is optional means that it was left out, even if null is a value it may have.
"""

from antiphon.client.tools.validity import Validity
from antiphon.core.schema import Schema, is_array, is_object, resolve

MAX_DEPTH = 256
"""How far a schema is followed; it may go round in circles."""

_DEFINITIONS = ("$defs", "definitions")


def without_nulls(value: object, schema: object, root: Schema, depth: int = 0) -> object:
    """Leave out the properties that are null and optional."""
    if not is_object(schema) or depth > MAX_DEPTH:
        return value
    if isinstance(ref := schema.get("$ref"), str):
        value = without_nulls(value, resolve(root, ref), root, depth + 1)
    for member in _list(schema, "allOf"):
        value = without_nulls(value, member, root, depth + 1)
    if members := [*_list(schema, "anyOf"), *_list(schema, "oneOf")]:
        value = _in_union(value, members, root, depth)
    if is_array(value) and "items" in schema:
        return [without_nulls(entry, schema["items"], root, depth + 1) for entry in value]
    if is_object(value) and is_object(properties := schema.get("properties")):
        optional = properties.keys() - set(_list(schema, "required"))
        return {
            name: without_nulls(member, properties.get(name), root, depth + 1)
            for name, member in value.items()
            if member is not None or name not in optional
        }
    return value


def _list(schema: Schema, key: str) -> list[object]:
    return value if is_array(value := schema.get(key)) else []


def _in_union(value: object, members: list[object], root: Schema, depth: int) -> object:
    """Take the nulls back as the first member would that allows the rest."""
    definitions = {key: root[key] for key in _DEFINITIONS if key in root}
    for member in filter(is_object, members):
        rest = without_nulls(value, member, root, depth + 1)
        if Validity({**definitions, **member}).allows(rest):
            return rest
    return value
