"""What Claude may call, what it must, and the shape of its answer.

Dialect notes: an `input_schema` is an object's; a schema that is enforced has only closed objects
and no limits on numbers, lengths or counts. What cannot be enforced is told in the description.
"""

from typing import Any

from antiphon.adapters.anthropic.models import Claude
from antiphon.adapters.anthropic.wire_types import SLUG
from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import EMPTY_SCHEMA, history_tool_names
from antiphon.adapters.json_access import JsonObject, drop_empty
from antiphon.adapters.json_via_tool import ANSWER_TOOL_NAME as ANSWER
from antiphon.protocol.json_schema import Schema, is_array, is_object
from antiphon.protocol.request import JsonSchemaFormat, Request
from antiphon.protocol.tools import (
    WEB_SEARCH_TYPES,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
    Tool,
    must_call,
)

MAX_TOOL_NAME = 128
WEB_SEARCH_TOOL: JsonObject = {"type": "web_search_20250305", "name": "web_search"}
"""The version that every model has which can search at all."""

DOMAIN_FILTERS = ("allowed_domains", "blocked_domains")


# --- tools ----------------------------------------------------------------------------------------


def encode_tools(prompt: Prompt) -> list[JsonObject]:
    """Write the tools; without any, those that the history needs."""
    offered = [_encode_tool(prompt, tool, index) for index, tool in enumerate(prompt.request.tools)]
    names = history_tool_names(prompt, MAX_TOOL_NAME)
    return offered + [{"name": name, "input_schema": EMPTY_SCHEMA} for name in names]


def _encode_tool(prompt: Prompt, tool: Tool, index: int) -> JsonObject:
    if isinstance(tool, ExtensionTool):
        return _encode_hosted_tool(prompt, tool, index)
    schema = EMPTY_SCHEMA | (tool.parameters or {})
    if tool.strict:
        schema = relax_schema(prompt, schema, f"tools[{index}].parameters")
    told: JsonObject = {"name": tool.name, "description": tool.description, "input_schema": schema}
    return drop_empty(told | {"strict": tool.strict or None})


def _encode_hosted_tool(prompt: Prompt, tool: ExtensionTool, index: int) -> JsonObject:
    extra: Schema = dict(tool.extra or {})
    if tool.type not in WEB_SEARCH_TYPES:
        return {**extra, "type": tool.type.removeprefix(SLUG)}
    return WEB_SEARCH_TOOL | _encode_web_search(prompt, extra, f"tools[{index}]")


def _encode_web_search(prompt: Prompt, options: Schema, place: str) -> JsonObject:
    """Write how to search, and say what of it cannot be written."""
    told: JsonObject = {}
    left: list[str] = []
    for name, value in options.items():
        match name, value:
            case ("external_web_access", True) | (_, None):
                pass  # so it is anyway
            case "user_location", _ if is_object(value):
                told[name] = {"type": "approximate"} | value
            case "filters", _ if is_object(value):
                told |= {key: value[key] for key in DOMAIN_FILTERS if value.get(key)}
                left += [f"{name}.{key}" for key in value if key not in DOMAIN_FILTERS]
            case _:
                left.append(name)
    for name in left:
        message = f"Anthropic's search has no '{name}'; it searches as it does by itself."
        prompt.warn("unsupported_parameter", message, f"{place}.{name}")
    return told


# --- the choice -----------------------------------------------------------------------------------


def encode_tool_choice(prompt: Prompt, claude: Claude) -> JsonObject | None:
    """Write what must be called, if anything has to be said about it."""
    request = prompt.request
    if not request.tools:
        return {"type": "none"} if history_tool_names(prompt) else None
    asked = must_call(request.tool_choice) and not claude.supports_forced_tools  # in words
    chosen: JsonObject = {"type": "auto"} if asked else _encode_choice(request)
    if not request.parallel_tool_calls and chosen["type"] != "none":
        return chosen | {"disable_parallel_tool_use": True}
    return None if chosen == {"type": "auto"} else chosen


def _encode_choice(request: Request) -> JsonObject:
    match request.tool_choice:
        case "required":
            return {"type": "any"}
        case FunctionToolChoice(name=name):
            return {"type": "tool", "name": name}
        case ExtensionToolChoice() as choice:
            return {"type": "tool", "name": _hosted_tool_name(request, choice)}
        case "none":
            return {"type": "none"}
        case _:
            return {"type": "auto"}


def _hosted_tool_name(request: Request, choice: ExtensionToolChoice) -> object:
    """Return what the model calls a hosted tool by."""
    if choice.type in WEB_SEARCH_TYPES:
        return WEB_SEARCH_TOOL["name"]
    named = choice.get("name")
    offered = (tool.get("name") for tool in request.tools if tool.type == choice.type)
    return named or next(offered, None) or choice.type.removeprefix(SLUG)


def forced_call_instruction(prompt: Prompt, claude: Claude) -> str | None:
    """Ask in words for a call that a model cannot be made to make; raises RequestError.

    Words can bring about only the answer's own tool. Whether they did is seen at the end, where the
    answer is held against its schema.
    """
    tools, choice = prompt.request.tools, prompt.request.tool_choice
    if claude.supports_forced_tools or not (tools and must_call(choice)):
        return None
    name = tools[-1].name if isinstance(tools[-1], FunctionTool) else ""
    if name.rstrip("_") == ANSWER and choice in ("required", FunctionToolChoice(name=name)):
        return f"Never answer in text. Give the final answer by calling the tool '{name}'."
    message = f"The model '{prompt.model}' cannot be made to call a tool. Use 'auto'."
    raise prompt.unsupported_error(message, "tool_choice")


# --- schemas --------------------------------------------------------------------------------------

UNENFORCEABLE_KEYWORDS = frozenset(
    """minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
    minItems maxItems uniqueItems minProperties maxProperties contains minContains maxContains
    """.split()
)
ENFORCEABLE_FORMATS = tuple(
    "date-time time date duration email hostname uri ipv4 ipv6 uuid".split()
)
"""What a `format` may be; no set, since a stranger's may be a list."""
SCHEMA_MAPS = ("properties", "$defs", "definitions")
MAX_SCHEMA_DEPTH = 64


def encode_format(prompt: Prompt) -> JsonObject | None:
    """Write the schema that the answer must satisfy, if there is one."""
    format = prompt.request.text.format
    if not (isinstance(format, JsonSchemaFormat) and format.schema):
        return None
    schema = relax_schema(prompt, format.schema, "text.format.schema")
    return {"type": "json_schema", "schema": schema}


def relax_schema(prompt: Prompt, schema: Schema, param: str) -> Schema:
    """Return a schema as Anthropic can enforce it, and say what it cannot."""
    loose: set[str] = set()
    made = _relax(schema, loose, 0)
    if loose:
        names = ", ".join(f"'{name}'" for name in sorted(loose))
        message = f"{names} cannot be enforced; the model was told of it in the description."
        prompt.warn("schema_relaxed", message, param)
    return made if is_object(made) else schema


def _relax(schema: Any, relaxed: set[str], depth: int) -> Any:
    """Close every object, and turn what cannot be enforced into words."""
    if not is_object(schema) or depth > MAX_SCHEMA_DEPTH:
        return schema
    made: Schema = {}
    told: list[str] = []
    for key, value in _replace_one_of(schema).items():
        if _is_unenforceable(key, value):
            told.append(f"{key}: {value}")
            relaxed.add(key)
        elif key in SCHEMA_MAPS and is_object(value):
            made[key] = {name: _relax(value[name], relaxed, depth + 1) for name in value}
        elif key in ("anyOf", "allOf") and is_array(value):
            made[key] = [_relax(v, relaxed, depth + 1) for v in value]
        else:
            made[key] = _relax(value, relaxed, depth + 1) if key == "items" else value
    if schema.get("type") == "object" or "properties" in schema:
        made.setdefault("additionalProperties", False)
    if told:
        words = f"({', '.join(told)})"
        made["description"] = f"{made.get('description') or ''} {words}".lstrip()
    return made


def _replace_one_of(schema: Schema) -> Schema:
    """Say `oneOf` as `anyOf`; where there is one already, under `allOf`, so that both hold."""
    if not is_array(schema.get("oneOf")):
        return schema
    rest = {key: schema[key] for key in schema if key != "oneOf"}
    either: Schema = {"anyOf": schema["oneOf"]}
    if "anyOf" not in rest:
        return rest | either
    others = rest.get("allOf")
    return rest | {"allOf": [*(others if is_array(others) else ()), either]}


def _is_unenforceable(key: str, value: object) -> bool:
    if key == "minItems":
        return value not in (0, 1)
    return key in UNENFORCEABLE_KEYWORDS or (key == "format" and value not in ENFORCEABLE_FORMATS)
