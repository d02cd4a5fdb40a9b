"""What bridges to agent frameworks share: names, the conversation, the client's functions, warnings and errors."""

from collections.abc import Collection, Iterator, Mapping

from antiphon.adapters import errors
from antiphon.agents.agent import Turn
from antiphon.bridges.frameworks import to_agent_name
from antiphon.protocol import parts
from antiphon.protocol.context import find_unpaired_call_ids, repair_unpaired
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.items import Item
from antiphon.protocol.request import Request
from antiphon.protocol.tools import FunctionTool, may_call

MODEL_FIELDS = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_output_tokens",
    "max_tool_calls",
    "parallel_tool_calls",
    "reasoning",
    "text.format",
    "text.verbosity",
    "top_logprobs",
    "stop",
    "seed",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
    "user",
)
"""The fields of a request that tell a model how to answer."""

DEFAULTS = Request()


def choose_name(name: str | None, own_name: str | None, default: str) -> str:
    """Return the given name, or else the framework agent's own as one word without slashes."""
    return name or to_agent_name(own_name or "") or default


def paired_items(turn: Turn) -> list[Item]:
    """Return the whole conversation, in which every call has its output: most models reject a call without one."""
    return repair_unpaired(turn.items, find_unpaired_call_ids(turn.items))


def client_functions(turn: Turn, own_names: Collection[str]) -> list[FunctionTool]:
    """Return the functions of the client that may be called.

    Raises RequestError if one has the name of a tool of the agent: a call could mean either.
    """
    for index, tool in enumerate(turn.tools):
        if isinstance(tool, FunctionTool) and tool.name in own_names and may_call(tool, turn.tool_choice):
            raise RequestError(
                f"The agent has a tool '{tool.name}' of its own. Offer yours under another name.",
                param=f"tools[{index}].name",
                code="duplicate_tool",
            )
    return turn.functions


def unsupported_warnings(turn: Turn, supported: Collection[str]) -> Iterator[parts.Warn]:
    """Yield a warning for each field that the client has set and that the agent does not obey, and for hosted tools."""
    for name in MODEL_FIELDS:
        if name not in supported and read_field(turn.request, name) != read_field(DEFAULTS, name):
            message = f"The agent '{turn.model}' does not obey '{name}'; it was ignored."
            yield parts.Warn("unsupported_parameter", message, name)
    for index, tool in enumerate(turn.tools):
        if not isinstance(tool, FunctionTool):
            message = f"The agent '{turn.model}' can call functions only; the tool '{tool.type}' was left out."
            yield parts.Warn("unsupported_tool", message, f"tools[{index}]")


def read_field(request: Request, path: str) -> object:
    """Return the value of a field in MODEL_FIELDS."""
    value: object = request
    for name in path.split("."):
        value = getattr(value, name)
    return value


def model_error(status: int, body: object, headers: Mapping[str, str] | None = None) -> UpstreamError:
    """Build the error for an error that the model of an agent has answered, with the same status."""
    headers = headers or {}
    error = errors.infer_code(errors.parse_error(body))
    message = errors.redact(error.message or f"it answered {status} and did not say why.")
    return UpstreamError(
        f"The agent's model failed: {message}",
        status=errors.client_status(status),
        type=errors.error_type(status),
        code=error.code and errors.redact(error.code, errors.MAX_NAME_LENGTH),
        retryable=errors.is_retryable(status, headers, error),
        headers=errors.retry_headers(headers),
    )
