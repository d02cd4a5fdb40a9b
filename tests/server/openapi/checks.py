"""Checks of what the server sends by the schemas of its own OpenAPI document."""

from functools import cache
from typing import Any

import jsonschema_rs

from antiphon.server.middleware import DOOR_PREFIXES
from antiphon.server.openapi.document import build_document

DOCUMENT: dict[str, Any] = build_document(DOOR_PREFIXES, "1")


def check_component(name: str, value: object) -> None:
    """Refuse a value that its component does not describe."""
    _validator(name).validate(value)


@cache
def _validator(name: str) -> Any:
    return validator_of({"$ref": f"#/components/schemas/{name}"})


def validator_of(schema: dict[str, Any]) -> Any:
    """Return the validator of a schema in the document."""
    return jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]})


def describe_operation(method: str, path: str) -> dict[str, Any]:
    """Return an operation of the document."""
    return DOCUMENT["paths"][path][method.lower()]


def check_answer(method: str, path: str, status: int, body: object) -> None:
    """Refuse an answer that its operation does not describe."""
    answers = describe_operation(method, path)["responses"]
    answer = answers["200"] if status == 200 else DOCUMENT["components"]["responses"]["Error"]
    validator_of(answer["content"]["application/json"]["schema"]).validate(body)


def check_events(method: str, path: str, events: list[Any]) -> None:
    """Refuse events that their operation does not describe."""
    validator = validator_of(
        describe_operation(method, path)["responses"]["200"]["content"]["text/event-stream"]["x-event-schema"]
    )
    for event in events:
        validator.validate(event)
