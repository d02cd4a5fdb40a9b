"""The OpenAPI document: the operations at all doors, and the schemas of their bodies, answers and events."""

import re
from collections.abc import Iterable

from antiphon.protocol.request import WebSocketCreate
from antiphon.protocol.struct import JsonObject
from antiphon.server.openapi.operations import DOOR_OPERATIONS, ROOT_OPERATIONS, ErrorBody, ListOf, Operation, Parameter
from antiphon.server.openapi.schemas import SchemaBuilder

DESCRIPTION = """Open Responses in front of every model and every agent.

The same operations exist at each door. `/v1` speaks the dialect of the Open Responses specification, `/openai/v1` and
`/openai` that of OpenAI: events of reasoning are `response.reasoning_text.*`, OpenAI's types have no slug, errors
have a `detail`. Operations marked `x-extension` are in neither. Streams are Server-Sent Events, `[DONE]` the last."""

PATH_PARAMETER = re.compile(r"\{(\w+)\}")


def build_document(doors: Iterable[str], version: str) -> JsonObject:
    """Return the OpenAPI document of an application with doors at some prefixes."""
    schemas = SchemaBuilder()
    # First what clients send: it decides which fields of a shared type are required.
    for operation in (*DOOR_OPERATIONS, *ROOT_OPERATIONS):
        if operation.body is not None:
            schemas.input_schema(operation.body)
    message = schemas.input_schema(WebSocketCreate)
    paths: dict[str, JsonObject] = {}
    for prefix in doors:
        _add_paths(paths, prefix, DOOR_OPERATIONS, schemas)
        paths[f"{prefix}/responses"]["x-websocket"] = {
            "summary": "Many requests and their responses on one connection",
            "message": message,
        }
    _add_paths(paths, "", ROOT_OPERATIONS, schemas)
    error = {"description": "An error", "content": {"application/json": {"schema": schemas.schema(ErrorBody)}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Antiphon", "version": version, "description": DESCRIPTION},
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {"Error": error},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _add_paths(
    paths: dict[str, JsonObject], prefix: str, operations: Iterable[Operation], schemas: SchemaBuilder
) -> None:
    for operation in operations:
        door = prefix.strip("/").replace("/", "_")
        path = paths.setdefault(prefix + operation.path, {})
        path[operation.method.lower()] = _describe(operation, f"{door}_{operation.id}".lstrip("_"), schemas)


def _describe(operation: Operation, id: str, schemas: SchemaBuilder) -> JsonObject:
    content: JsonObject = {}
    if operation.answer is not None:
        content["application/json"] = {"schema": _answer_schema(operation.answer, schemas)}
    if operation.stream is bytes:
        content[operation.stream_type] = {"schema": {"type": "string"}}
    elif operation.stream is not None:
        # OpenAPI 3.1 cannot say what the events of a stream are.
        event = schemas.schema(operation.stream)
        content[operation.stream_type] = {"schema": {"type": "string"}, "x-event-schema": event}
    described: JsonObject = {
        "operationId": id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            *(_path_parameter(name) for name in PATH_PARAMETER.findall(operation.path)),
            *map(_query_parameter, operation.parameters),
        ],
        "responses": {
            "200": {"description": operation.summary, "content": content},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if operation.body is not None:
        body = {"application/json": {"schema": schemas.schema(operation.body)}}
        described["requestBody"] = {"required": not operation.body_is_optional, "content": body}
    if operation.is_extension:
        described["x-extension"] = True
    return described


def _path_parameter(name: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameter(parameter: Parameter) -> JsonObject:
    fields: JsonObject = {"name": parameter.name, "in": "query", "description": parameter.description}
    return fields | {"schema": parameter.schema, "style": parameter.style, "explode": True}


def _answer_schema(answer: object, schemas: SchemaBuilder) -> JsonObject:
    if not isinstance(answer, ListOf):
        return schemas.schema(answer)
    rows = {"type": "array", "items": schemas.schema(answer.row)}
    properties: JsonObject = {"object": {"const": "list"}, "data": rows}
    if answer.has_cursors:
        cursor = {"type": ["string", "null"]}
        properties |= {"first_id": cursor, "last_id": cursor, "has_more": {"type": "boolean"}}
    return {"type": "object", "properties": properties, "required": [*properties]}
