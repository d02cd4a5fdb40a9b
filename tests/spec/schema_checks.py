"""Independent checks of what we emit, by models and schemas that others derived from the spec.

Every value is read twice: by the models of PyPI's `openresponses-types`, in strict mode; and, where
the specification's own OpenAPI file lies beside the repository, by `jsonschema`. Those models let a
null pass for any optional field, which the specification does not, so nulls are looked for here.

Extensions (`slug:name`) are outside the specification's closed unions and are taken out first.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

import openresponses_types as models
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

SCHEMA = Path(__file__).parents[3] / "shared/spec/openapi-2026-04-24.json"

ITEM = models.Message | models.FunctionCall | models.FunctionCallOutput | models.ReasoningBody | models.CompactionBody


def check_response(response: object) -> None:
    """Refuse a response that is not the specification's."""
    _check(models.ResponseResource, "ResponseResource", response)


def check_item(item: object) -> None:
    """Refuse an item that is not the specification's."""
    _check(ITEM, "ItemField", item)


def check_compact_resource(resource: object) -> None:
    """Refuse a compacted conversation that is not the specification's."""
    _check(models.CompactResource, "CompactResource", resource)


def check_event(event: object) -> None:
    """Refuse an event that is not the specification's; an extension's is let pass."""
    fields = cast("dict[str, object]", event)
    name = str(fields.get("type"))
    if is_extension(fields) or any(is_extension(fields.get(n)) for n in ("item", "annotation")):
        return
    kind = _event_models().get(name)
    assert kind, f"'{name}' is not an event of the specification"
    _check(kind, kind.__name__, event)


def check_error_body(message: object) -> None:
    """Refuse a WebSocket's error message that is not the specification's; its param may be null."""
    fields = cast("dict[str, Any]", message)
    error = {name: fields["error"][name] for name in fields["error"] if name != "param"}
    _check(models.WebSocketErrorEvent, "WebSocketErrorEvent", fields | {"error": error})


def is_extension(value: object) -> bool:
    """Tell whether a JSON value is an extension's."""
    return isinstance(value, dict) and ":" in str(cast("dict[str, object]", value).get("type"))


def _check(kind: object, name: str, value: object) -> None:
    value = _without_extensions(value)
    text = json.dumps(value)
    try:
        read = _type_adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise AssertionError(f"{name}: {error}\n{text}") from None
    nulls = _find_nulls(read, name)
    assert not nulls, f"null where the field should be left out: {', '.join(nulls)}\n{text}"
    if SCHEMA.exists():
        problems = [_describe_error(error) for error in schema_validator(name).iter_errors(cast("Any", value))]
        assert not problems, f"{name}: {'; '.join(problems)}\n{text}"


def _without_extensions(value: object) -> object:
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return [_without_extensions(entry) for entry in entries if not is_extension(entry)]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if is_extension(fields.get("tool_choice")):
            fields = fields | {"tool_choice": "auto"}
        return {name: _without_extensions(member) for name, member in fields.items()}
    return value


def _find_nulls(value: object, path: str) -> list[str]:
    """Return the paths of optional fields that were written as null."""
    if isinstance(value, list):
        entries = enumerate(cast("list[object]", value))
        return [null for index, entry in entries for null in _find_nulls(entry, f"{path}[{index}]")]
    if not isinstance(value, BaseModel):
        return []
    found: list[str] = []
    for name, field in type(value).model_fields.items():
        member = getattr(value, name)
        if member is None and name in value.model_fields_set and not field.is_required():
            found.append(f"{path}.{name}")
        found += _find_nulls(member, f"{path}.{name}")
    return found


def _describe_error(error: Any) -> str:
    return f"{error.json_path}: {error.message}"


@cache
def _type_adapter(kind: Any) -> TypeAdapter[object]:
    return TypeAdapter(kind)


@cache
def _event_models() -> dict[str, type[BaseModel]]:
    """Return the model of each event, by the event's type."""
    kinds = [kind for name, kind in vars(models).items() if name.endswith("StreamingEvent")]
    return {str(*kind.model_fields["type"].annotation): kind for kind in kinds}


@cache
def _openapi_document() -> dict[str, Any]:
    return json.loads(SCHEMA.read_bytes())


@cache
def schema_validator(name: str) -> Draft202012Validator:
    """Return the OpenAPI file's own reader of one of its schemas."""
    reference = {"$ref": f"#/components/schemas/{name}", "components": _openapi_document()["components"]}
    return Draft202012Validator(reference)
