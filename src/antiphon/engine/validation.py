"""Checks of a request before its response begins, and warnings of what nothing uses."""

import re
from collections.abc import Iterable, Sequence

from antiphon.protocol import parts, tools
from antiphon.protocol.errors import RequestError, suggest_closest
from antiphon.protocol.items import ExtensionContent, FunctionCallOutput, InputImage, Item, Message
from antiphon.protocol.request import Request
from antiphon.protocol.struct import ProtocolStruct, as_array, join_path, list_unknown_fields

EQUIVALENT_FIELDS = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "functions": "tools",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "system": "instructions",
}
"""Fields of other protocols, and their names here."""

MAX_SUGGESTIONS = 20
"""For how many unknown fields a similar name is looked for, which takes some time."""


def check_request(request: Request) -> None:
    """Raise RequestError for a request that is incomplete, contradictory or unsupported."""
    if not request.model or not (request.input or request.previous_response_id or request.conversation):
        param = "input" if request.model else "model"
        message = "A request needs 'model' and 'input'. GET /v1/models lists the models."
        if param == "input" and request.get("messages"):
            message = "You sent 'messages'. Send them to POST /v1/chat/completions, or rename them to 'input'."
        for name in list_unknown_fields(request)[:MAX_SUGGESTIONS]:
            if meant := suggest_closest(name, [param]):
                message = f"A request needs '{param}'. You sent '{name[:80]}'.{meant}"
        raise RequestError(message, param=param, code="missing_required_parameter")
    # OpenAI's stored prompt templates: ignoring one would drop the instructions in silence.
    if request.get("prompt") is not None:
        message = "Prompt templates are not supported. Send the text itself in 'instructions'."
        raise RequestError(message, param="prompt", code="unsupported_parameter")
    if request.conversation and request.previous_response_id:
        raise RequestError(
            "Give 'conversation' or 'previous_response_id', not both: each says what came before.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    for name in () if request.store else ("background", "conversation"):
        if getattr(request, name):
            raise RequestError(
                f"'{name}' needs the response to be stored. Leave 'store' out, or set it to true.",
                param=name,
                code="store_required",
            )
    check_tool_choice(request)
    check_images(request.input)


IMAGE_URL = re.compile(r"data:[^,]{0,256},|(?:https?|gs|s3)://[^\s/]", re.IGNORECASE)


def check_images(items: Sequence[Item], name: str = "input") -> None:
    """Raise RequestError for an image without a source, or with a source that is no URL of the web."""
    for index, item in enumerate(items):
        field = "output" if isinstance(item, FunctionCallOutput) else "content"
        for number, part in enumerate(as_array(getattr(item, field, None))):
            if not isinstance(part, InputImage) or (part.image_url is None and part.get("file_id")):
                continue
            if not IMAGE_URL.match(part.image_url or ""):
                param = f"{name}[{index}].{field}[{number}].image_url"
                found = f"'{part.image_url[:80]}' is no URL of an image" if part.image_url else "An image has no URL"
                message = f"{found}. Send an http(s) URL, or 'data:image/png;base64,…'."
                raise RequestError(message, param=param, code="invalid_value")


def check_tool_choice(request: Request) -> None:
    """Raise RequestError for a tool choice that the offered tools cannot satisfy."""
    choice = request.tool_choice
    if choice == "auto":
        return
    named: list[tools.SpecificToolChoice] = []
    if isinstance(choice, tools.FunctionToolChoice | tools.ExtensionToolChoice):
        named = [choice]
    elif isinstance(choice, tools.AllowedTools):
        named = choice.tools
    for tool in named:
        if not any(tools.choice_names_tool(offered, tool) for offered in request.tools):
            name = (tools.tool_name(tool) or tool.type)[:80]
            raise RequestError(
                f"tool_choice names '{name}', which is not offered. Add it to 'tools'.",
                param="tool_choice",
                code="invalid_value",
            )
    if tools.must_call(choice) and not request.tools:
        raise RequestError(
            "tool_choice asks for a call, but there are no tools. Add some, or use 'auto'.",
            param="tool_choice",
            code="invalid_value",
        )


def warn_of_unused_fields(request: Request) -> list[parts.Warn]:
    """Return a warning for each unknown field of a request, except in extensions."""
    holders: list[tuple[str, ProtocolStruct | None]] = [
        ("", request),
        ("text", request.text),
        ("text.format", request.text.format),
        ("reasoning", request.reasoning),
        ("stream_options", request.stream_options),
    ]
    holders += (
        (f"tools[{index}]", tool) for index, tool in enumerate(request.tools) if isinstance(tool, tools.FunctionTool)
    )
    found: list[parts.Warn] = []
    for path, value in holders:
        for name in list_unknown_fields(value) if value and value.extra else ():
            meant = EQUIVALENT_FIELDS.get(name) if not path else None
            hint = f" Did you mean '{meant}'?" if meant else ""
            if value and not meant and len(found) < MAX_SUGGESTIONS:
                hint = suggest_closest(name, value.__struct_fields__)
            found.append(make_unused_field_warning(name, join_path(path, name), hint))
    return found + warn_of_unused_content(request.input)


def warn_of_unused_content(items: Iterable[Item]) -> list[parts.Warn]:
    """Return a warning for each unknown field of message content, where it occurs first."""
    paths: dict[str, str] = {}
    for index, item in enumerate(items):
        # An assistant message may come back with any field that its provider has added.
        if isinstance(item, Message) and item.role != "assistant":
            for number, part in enumerate(item.content):
                if isinstance(part, ExtensionContent):
                    continue
                for name in list_unknown_fields(part):
                    # The features of an adapter report a file that it cannot send.
                    if name != "file_id":
                        paths.setdefault(name, f"input[{index}].content[{number}].{name}")
    return [make_unused_field_warning(name, path) for name, path in paths.items()]


def make_unused_field_warning(name: str, param: str, hint: str = "") -> parts.Warn:
    """Return the warning for an unknown field."""
    message = f"The field '{name}' is not used by this server.{hint}"
    return parts.Warn("unused_parameter", message, param)


def warn_of_unpaired_calls(call_ids: Iterable[str]) -> list[parts.Warn]:
    """Return a warning for each call without output and each output without call."""
    message = "The call '{}' has no output, or the output no call; it was repaired for the model."
    return [parts.Warn("unanswered_call", message.format(call_id), "input") for call_id in sorted(call_ids)]
