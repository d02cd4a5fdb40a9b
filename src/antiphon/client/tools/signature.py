"""A function's signature, read as the JSON Schema of its arguments, and as the way back from JSON.

A parameter is described by its annotation (`Annotated[int, "how many"]`, `msgspec.Meta`, pydantic's
`Field`) or by the docstring; without an annotation it takes any JSON. One that is annotated
`ToolContext` is not the model's to fill.
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from antiphon.client.tools import docstring
from antiphon.client.tools.annotations import converter, plain, schemas
from antiphon.client.tools.context import ToolContext
from antiphon.client.tools.pydantic_types import is_field
from antiphon.core.schema import Schema
from antiphon.core.value import ShapeError, join

Function = Callable[..., Any]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """What a function takes, as a model is told it."""

    def __init__(self, function: Function) -> None:
        docs = docstring.read(inspect.getdoc(function))
        found = _parameters(function)
        self.description = docs.description or None
        self.context = context_of(found)
        self._parameters = {n: p for n, p in found.items() if n != self.context}
        annotations = {n: p.annotation for n, p in self._parameters.items()}
        members, definitions = schemas(annotations)
        self._converters = {name: converter(a) for name, a in annotations.items()}
        for name, parameter in self._parameters.items():
            members[name] = _described(members[name], parameter, docs.parameters.get(name))
        self.schema: Schema = {
            "type": "object",
            "properties": members,
            "required": [n for n, p in self._parameters.items() if p.default is p.empty],
            "additionalProperties": False,
        }
        if definitions:
            self.schema["$defs"] = definitions

    def convert(self, given: Schema) -> dict[str, object]:
        """Turn a call's JSON into the values that the function takes, or raise ShapeError."""
        values: dict[str, object] = {}
        for name, raw in given.items():
            try:
                values[name] = self._converters[name](raw)
            except ShapeError as error:
                raise ShapeError(_below(name, error.path), error.reason) from None
        return values


def _below(name: str, path: str) -> str:
    return f"{name}{path}" if path.startswith("[") or not path else join(name, path)


def parameters(function: Function) -> dict[str, inspect.Parameter]:
    """Return a function's parameters, their annotations evaluated.

    Raises NameError or TypeError for annotations, ValueError for a builtin without a signature.
    """
    inner = inspect.unwrap(function)
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    hints = get_type_hints(inner, include_extras=True)
    found = inspect.signature(function).parameters
    return {n: p.replace(annotation=hints.get(n, p.annotation)) for n, p in found.items()}


def context_of(found: dict[str, inspect.Parameter]) -> str | None:
    """Return the name of the parameter that takes the ToolContext, if one does."""
    return next((name for name, p in found.items() if ToolContext in _members(p.annotation)), None)


def _members(annotation: object) -> tuple[object, ...]:
    return (annotation, *get_args(annotation))


def _parameters(function: Function) -> dict[str, inspect.Parameter]:
    """Return the parameters, each fit to be filled by a model; raises TypeError."""
    try:
        found = parameters(function)
    except NameError as error:
        raise TypeError(f"an annotation cannot be evaluated: {error}; define it before") from error
    except ValueError as error:
        raise TypeError(f"no signature is known: {error}; wrap it in a function") from error
    for name, parameter in found.items():
        if parameter.kind not in _NAMED:
            raise TypeError(
                f"'{name}' is {parameter.kind.description}; a model names every argument, "
                "so give each one a parameter with a name"
            )
    return {name: _explicit(parameter) for name, parameter in found.items()}


def _explicit(parameter: inspect.Parameter) -> inspect.Parameter:
    """Say in full what a parameter leaves to convention: any JSON, pydantic's `= Field(...)`."""
    annotation, default = parameter.annotation, parameter.default
    if annotation in (parameter.empty, object):
        annotation = Any
    if is_field(default):
        annotation = Annotated[annotation, default]
        default = default.get_default(call_default_factory=True)
        default = parameter.empty if parameter.default.is_required() else default
    return parameter.replace(annotation=annotation, default=default)


def _described(schema: Schema, parameter: inspect.Parameter, told: str | None) -> Schema:
    """Add what the annotation and the docstring say, and the default."""
    more: Schema = {}
    texts = [m for m in get_args(parameter.annotation)[1:] if isinstance(m, str)]
    if get_origin(parameter.annotation) is not Annotated:
        texts = []
    if description := schema.get("description") or next(iter(texts), told):
        more["description"] = description
    if parameter.default is not parameter.empty:
        with suppress(TypeError):  # JSON may have no word for it; the parameter stays optional
            more["default"] = plain(parameter.default)
    return {**schema, **more}
