"""The smallest values of openai-python's own types: what OpenAI's server may send.

A value is made of what its type requires and nothing else, and openai-python has accepted it. So
whatever a new release of that client adds is tried without a change here.
"""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent
from pydantic import BaseModel

SCALARS: dict[object, object] = {str: "text", int: 0, float: 0.0, bool: True, object: "text"}
UNIONS = (Union, types.UnionType)


def events() -> dict[str, type[BaseModel]]:
    """Return every event of a stream, by its type."""
    return {smallest(kind)["type"]: kind for kind in members(ResponseStreamEvent)}


def items() -> dict[str, type[BaseModel]]:
    """Return every item that a response may hold, by its type."""
    return {smallest(kind)["type"]: kind for kind in members(ResponseOutputItem)}


def members(union: object) -> Iterator[type[BaseModel]]:
    """Give the classes of a union, however it is wrapped."""
    if isinstance(union, type) and issubclass(union, BaseModel):
        yield union
    elif get_origin(union) is Annotated:
        yield from members(get_args(union)[0])
    else:
        for member in get_args(union):
            yield from members(member)


def smallest(kind: type[BaseModel], **fields: object) -> dict[str, Any]:
    """Make the JSON of a value; raises ValidationError for what its type does not take."""
    required = {
        info.alias or name: value_of(info.annotation) for name, info in kind.model_fields.items() if info.is_required()
    }
    accepted = kind.model_validate(required | fields)
    return accepted.model_dump(mode="json", by_alias=True, exclude_unset=True)


def complete(kind: type[BaseModel], **fields: object) -> dict[str, Any]:
    """Make the same with null for every field that may be left out, as OpenAI likes to write."""
    accepted = kind.model_validate(smallest(kind, **fields))
    return accepted.model_dump(mode="json", by_alias=True)


def value_of(annotation: Any) -> object:
    """Make some value of a type: the first that a union names."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return inner[0]
    if origin is Annotated or origin in UNIONS:
        return value_of(inner[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return smallest(annotation)
    return {} if origin is dict else []


def response(status: str) -> dict[str, Any]:
    """Make a response of OpenAI's, with null for whatever may be null."""
    return complete(Response, id="resp_1", status=status, model="gpt-5")
