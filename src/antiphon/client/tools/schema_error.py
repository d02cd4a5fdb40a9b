"""A server's refusal of a tool's schema, explained: which tool, where in it, what to do."""

import re
from collections.abc import Sequence

from antiphon.client.tools import strict_schema
from antiphon.client.tools.tool import NON_STRICT_ADVICE
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.tools import FunctionTool

_PARAM = re.compile(r"tools(?:\[(\d{1,6})\]|\.(\d{1,6}))(?:.*?parameters\.(?P<path>.+))?")
_CONTEXT = re.compile(r"context=\(([^()]*)\)")
_QUOTED = re.compile(r"['\"`]([^'\"`]{1,64})['\"`]")
_REJECTED_STATUSES = (400, 422)


def explain_schema_error(error: UpstreamError, tools: Sequence[FunctionTool]) -> UpstreamError:
    """Name the tool that a server refused, if it is about one; any other error stays as it is."""
    tool = _find_tool(error, tools) if error.status in _REJECTED_STATUSES else None
    if tool is None:
        return error
    told = error.payload
    advice = f", or be content with less: {NON_STRICT_ADVICE}" if tool.strict else " or its schema"
    return UpstreamError(
        f"{told.message.rstrip('. ')}. The tool '{tool.name}' was refused{_locate_problem(error, tool)}. "  # noqa: E501
        f"Change its annotations{advice}.",
        status=error.status,
        type=told.type,
        code=told.code,
        param=told.param,
        retryable=error.retryable,
        headers=error.headers,
    )


def _find_tool(error: UpstreamError, tools: Sequence[FunctionTool]) -> FunctionTool | None:
    """Find the tool that an error speaks of, by its place or by its name."""
    told = error.payload
    if found := _PARAM.match(told.param or ""):
        index = int(found[1] or found[2])
        return tools[index] if index < len(tools) else None
    about = f"{told.param} {told.code} {told.message}".lower()
    if not any(word in about for word in ("schema", "tool", "function")):
        return None
    quoted = _QUOTED.findall(told.message)
    return next((tool for tool in tools if tool.name in quoted), None)


def _locate_problem(error: UpstreamError, tool: FunctionTool) -> str:
    """Say where in the schema: what strict mode cannot express, or else what the server names."""
    problems = strict_schema.make_strict(tool.parameters or {"type": "object"}).problems
    if problems:
        return f"; strict mode rejects {strict_schema.StrictSchemaError(problems)}"
    param = _PARAM.match(error.payload.param or "")
    context = _CONTEXT.search(error.payload.message)
    steps = _QUOTED.findall(context[1]) if context else []
    path = (param and param["path"]) or ".".join(steps)
    return f" at {path}" if path else ""
