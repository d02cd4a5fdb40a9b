"""A prompt as a request of Ollama's chat API.

Dialect notes: arguments of calls are objects, not strings; images are bare base64; there is no tool
choice. Reasoning is plain text and is sent back in `thinking`, but only to the server it came from,
which the mark in its seal shows.
"""

from collections.abc import Mapping

from antiphon.adapters import media
from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    ConversationTurn,
    encode_pieces,
    split_turns,
)
from antiphon.adapters.features import EFFORTS_LOW_TO_HIGH, nearest_effort, wants_logprobs
from antiphon.adapters.json_access import JsonObject, drop_empty, drop_none, parse_arguments
from antiphon.protocol.content import Content, InputImage, content_text
from antiphon.protocol.items import FunctionCallOutput, Message, Reasoning
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat, Request
from antiphon.protocol.tools import FunctionTool


def encode_body(prompt: Prompt) -> JsonObject:
    """Encode a prompt; raises RequestError."""
    request = prompt.request
    body: JsonObject = {
        "model": prompt.model,
        "messages": encode_messages(prompt),
        "stream": prompt.stream,
        "options": encode_options(request),
        "format": encode_format(request),
        "think": encode_think(prompt),
        "tools": [encode_tool(tool) for tool in request.tools if isinstance(tool, FunctionTool)],
        "logprobs": wants_logprobs(request) or None,
        "top_logprobs": request.top_logprobs or None,
        # By default Ollama drops the start of a long conversation without a word.
        "truncate": False if request.truncation == "disabled" else None,
    }
    return drop_empty(body)


def encode_messages(prompt: Prompt) -> list[JsonObject]:
    """Encode a conversation as messages; raises RequestError."""
    messages: list[JsonObject] = []
    if prompt.request.instructions:
        messages.append({"role": "system", "content": prompt.request.instructions})
    names: dict[str, str] = {}
    for turn in split_turns(prompt.items):
        if turn.role == "assistant":
            names |= {call.call_id: call.name for call in turn.calls}
            messages += encode_assistant(turn)
        elif turn.role == "tool":
            messages += [encode_tool_result(prompt, output, names) for output in turn.outputs]
        else:
            for item in turn.items:
                if isinstance(item, Message):
                    messages.append({"role": turn.role, **encode_content(prompt, item)})
    # Ollama takes a request without messages as a command to load the model.
    if not messages:
        raise prompt.unsupported_error(EMPTY_CONVERSATION, "input")
    return messages


def encode_assistant(turn: ConversationTurn) -> list[JsonObject]:
    """Encode a turn of the assistant; its own reasoning is sent back only beside calls."""
    texts = [item.text for item in turn.items if isinstance(item, Message)]
    text = "\n".join(filter(None, texts))
    if not (text or turn.calls):
        return []
    message: JsonObject = {"role": "assistant"}
    if text:
        message["content"] = text
    if calls := turn.calls:
        thinking = [
            content_text(part)
            for item in turn.items
            if isinstance(item, Reasoning) and item.encrypted_content
            for part in item.content or []
        ]
        if any(thinking):
            message["thinking"] = "".join(thinking)
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "function": {"name": call.name, "arguments": parse_arguments(call.arguments)},
            }
            for call in calls
        ]
    return [message]


def encode_tool_result(
    prompt: Prompt, item: FunctionCallOutput, names: Mapping[str, str]
) -> JsonObject:
    """Encode the output of a tool."""
    message: JsonObject = {"role": "tool", "tool_name": names.get(item.call_id, "")}
    return message | {"tool_call_id": item.call_id, **encode_content(prompt, item)}


def encode_content(prompt: Prompt, item: Message | FunctionCallOutput) -> JsonObject:
    """Encode the content of an item: all text as one string, and the images beside it."""
    images: list[str] = []

    def encode_part(part: Content) -> list[str]:
        if isinstance(part, InputImage):
            images.append(media.read_image(part).data)
        text = content_text(part)
        return [text] if text else []

    text = "\n".join(encode_pieces(prompt, item, encode_part))
    return {"content": text, **drop_empty({"images": images})}


def encode_tool(tool: FunctionTool) -> JsonObject:
    """Encode a function."""
    function = drop_empty({"name": tool.name, "description": tool.description})
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def encode_options(request: Request) -> JsonObject:
    """Encode the sampling options that the request sets."""
    fields = {
        "num_predict": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "stop": request.stop,
    }
    return drop_none(fields)


def encode_format(request: Request) -> object:
    """Encode the text format: a schema, `json`, or None for plain text."""
    match request.text.format:
        case JsonSchemaFormat(schema=schema):
            return schema or "json"
        case JsonObjectFormat():
            return "json"
        case _:
            return None


def encode_think(prompt: Prompt) -> bool | str | None:
    """Encode the reasoning effort: three levels for gpt-oss, on or off for all other models."""
    reasoning = prompt.request.reasoning
    if reasoning is None:
        return None
    if reasoning.summary:
        message = "Ollama has no reasoning summaries; the reasoning itself is sent."
        prompt.warn("unsupported_parameter", message, "reasoning.summary")
    effort = reasoning.effort
    if effort is None:
        return None
    if prompt.model.rpartition("/")[2].startswith("gpt-oss"):  # it cannot be switched off
        return nearest_effort(prompt, effort, EFFORTS_LOW_TO_HIGH)
    if effort == "none":
        return False
    nearest_effort(prompt, effort, {effort: "on"})
    return True
