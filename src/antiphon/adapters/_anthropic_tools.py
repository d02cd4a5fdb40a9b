"""What Claude may call, what it must, and the shape of its answer.

Dialect notes: an `input_schema` is an object's; a schema that is enforced has only closed objects
and no limits on numbers, lengths or counts. What cannot be enforced is told in the description.
"""

from typing import Any

from antiphon.adapters._anthropic_wire import SLUG
from antiphon.adapters._claude import Claude
from antiphon.adapters.base import Prompt
from antiphon.adapters.forced import NAME as ANSWER
from antiphon.core.request import JsonSchemaFormat, Request
from antiphon.core.schema import Schema, is_array, is_object
from antiphon.core.tools import (
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
    Tool,
    must_call,
)

WEB_SEARCH = frozenset(
    f"openai:web_search{suffix}"
    for suffix in ("", "_2025_08_26", "_preview", "_preview_2025_03_11")
)
EMPTY: Schema = {"type": "object", "properties": {}}
WEB_SEARCH_TOOL: dict[str, object] = {"type": "web_search_20250305", "name": "web_search"}
"""The version that every model has which can search at all."""


# --- tools ----------------------------------------------------------------------------------------


def tools(prompt: Prompt) -> list[dict[str, object]]:
    """Write the tools."""
    return [_tool(prompt, tool, index) for index, tool in enumerate(prompt.request.tools)]


def _tool(prompt: Prompt, tool: Tool, index: int) -> dict[str, object]:
    if isinstance(tool, ExtensionTool):
        return _hosted(prompt, tool, index)
    schema = EMPTY | (tool.parameters or {})
    if tool.strict:
        schema = enforceable(prompt, schema, f"tools[{index}].parameters")
    told: dict[str, object] = {"name": tool.name}
    if tool.description:
        told["description"] = tool.description
    return told | {"input_schema": schema} | ({"strict": True} if tool.strict else {})


def _hosted(prompt: Prompt, tool: ExtensionTool, index: int) -> dict[str, object]:
    extra: Schema = dict(tool.extra or {})
    if tool.type not in WEB_SEARCH:
        return {**extra, "type": tool.type.removeprefix(SLUG)}
    told = dict(WEB_SEARCH_TOOL)
    if is_object(where := extra.get("user_location")):
        told["user_location"] = {"type": "approximate"} | where
    if is_object(filters := extra.get("filters")):
        names = ("allowed_domains", "blocked_domains")
        told |= {name: filters[name] for name in names if filters.get(name)}
    if extra.get("search_context_size"):
        message = f"'{prompt.model}' decides itself how much of a page it reads."
        prompt.warn("unsupported_parameter", message, f"tools[{index}].search_context_size")
    return told


# --- the choice -----------------------------------------------------------------------------------


def tool_choice(prompt: Prompt, claude: Claude) -> dict[str, object] | None:
    """Write what must be called, if anything has to be said about it."""
    request = prompt.request
    if not request.tools:
        return None
    if must_call(request.tool_choice) and not claude.obeys:
        if demand(request, claude) is None:
            message = f"The model '{prompt.model}' cannot be made to call a tool. Use 'auto'."
            raise prompt.refuse(message, "tool_choice")
        chosen: dict[str, object] = {"type": "auto"}
    else:
        chosen = _chosen(request)
    if not request.parallel_tool_calls and chosen["type"] != "none":
        return chosen | {"disable_parallel_tool_use": True}
    return None if chosen == {"type": "auto"} else chosen


def _chosen(request: Request) -> dict[str, object]:
    match request.tool_choice:
        case "required":
            return {"type": "any"}
        case FunctionToolChoice(name=name):
            return {"type": "tool", "name": name}
        case ExtensionToolChoice() as choice:
            return {"type": "tool", "name": _name_of(request, choice)}
        case "none":
            return {"type": "none"}
        case _:
            return {"type": "auto"}


def _name_of(request: Request, choice: ExtensionToolChoice) -> object:
    """Return what the model calls a hosted tool by."""
    if choice.type in WEB_SEARCH:
        return WEB_SEARCH_TOOL["name"]
    named = choice.get("name")
    offered = (tool.get("name") for tool in request.tools if tool.type == choice.type)
    return named or next(offered, None) or choice.type.removeprefix(SLUG)


def demand(request: Request, claude: Claude) -> str | None:
    """Ask for the answer's own tool in words, of a model that cannot be made to call it.

    Whether it did is seen at the end, where the answer is held against its schema.
    """
    last, choice = request.tools[-1] if request.tools else None, request.tool_choice
    if claude.obeys or not isinstance(last, FunctionTool) or last.name.rstrip("_") != ANSWER:
        return None
    if choice not in ("required", FunctionToolChoice(name=last.name)):
        return None
    return f"Never answer in text. Give the final answer by calling the tool '{last.name}'."


# --- schemas --------------------------------------------------------------------------------------

LIMITS = frozenset(
    """minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
    minItems maxItems uniqueItems minProperties maxProperties contains minContains maxContains
    """.split()
)
FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())
MEMBERS = ("properties", "$defs", "definitions")
MAX_DEPTH = 64


def format_of(prompt: Prompt) -> dict[str, object] | None:
    """Write the schema that the answer must satisfy, if there is one."""
    format = prompt.request.text.format
    if not isinstance(format, JsonSchemaFormat):
        return None
    if not format.schema:
        raise prompt.refuse("A format of JSON needs a schema.", "text.format.schema")
    schema = enforceable(prompt, format.schema, "text.format.schema")
    return {"type": "json_schema", "schema": schema}


def enforceable(prompt: Prompt, schema: Schema, param: str) -> Schema:
    """Return a schema as Anthropic can enforce it, and say what it cannot."""
    loose: set[str] = set()
    made = _closed(schema, loose, 0)
    if loose:
        names = ", ".join(f"'{name}'" for name in sorted(loose))
        message = f"{names} cannot be enforced; the model was told of it in the description."
        prompt.warn("schema_relaxed", message, param)
    return made if is_object(made) else schema


def _closed(schema: Any, loose: set[str], depth: int) -> Any:
    """Close every object, and turn what cannot be enforced into words."""
    if not is_object(schema) or depth > MAX_DEPTH:
        return schema
    made: Schema = {}
    told: list[str] = []
    for key, value in schema.items():
        if _is_loose(key, value):
            told.append(f"{key}: {value}")
            loose.add(key)
        elif key in MEMBERS and is_object(value):
            made[key] = {name: _closed(value[name], loose, depth + 1) for name in value}
        elif key in ("anyOf", "oneOf", "allOf") and is_array(value):
            made["anyOf" if key == "oneOf" else key] = [_closed(v, loose, depth + 1) for v in value]
        else:
            made[key] = _closed(value, loose, depth + 1) if key == "items" else value
    if schema.get("type") == "object" or "properties" in schema:
        made.setdefault("additionalProperties", False)
    if told:
        words = f"({', '.join(told)})"
        made["description"] = f"{made.get('description') or ''} {words}".lstrip()
    return made


def _is_loose(key: str, value: object) -> bool:
    if key == "minItems":
        return value not in (0, 1)
    return key in LIMITS or (key == "format" and value not in FORMATS)
