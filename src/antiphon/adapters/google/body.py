"""What Gemini is asked: the body of `generateContent`, all but the conversation in it."""

from msgspec import UNSET

from antiphon.adapters.base import Prompt
from antiphon.adapters.fields import JsonObject, drop_empty, drop_none
from antiphon.adapters.google.conversation import ConversationEncoder
from antiphon.adapters.google.thinking import encode_thinking
from antiphon.adapters.options import service_tier_name, wants_logprobs
from antiphon.core.request import JsonObjectFormat, JsonSchemaFormat
from antiphon.core.tools import (
    WEB_SEARCH_TYPES,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
)

SERVICE_TIERS = {"flex": "flex", "priority": "priority"}


def encode_body(prompt: Prompt) -> JsonObject:
    """Write a prompt as a body."""
    system, contents = ConversationEncoder(prompt).encode()
    fields: JsonObject = {
        "contents": contents,
        "systemInstruction": {"parts": system} if system else None,
        "tools": encode_tools(prompt),
        "toolConfig": encode_tool_config(prompt),
        "generationConfig": encode_generation_config(prompt),
        "serviceTier": service_tier_name(prompt, SERVICE_TIERS),
    }
    return drop_empty(fields)


def encode_generation_config(prompt: Prompt) -> JsonObject:
    """Write how the answer is to be made."""
    request = prompt.request
    config: JsonObject = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "seed": request.seed,
        "stopSequences": request.stop or None,
        "maxOutputTokens": request.max_output_tokens,
        "responseLogprobs": wants_logprobs(request) or None,
        "logprobs": request.top_logprobs or None,
        "thinkingConfig": encode_thinking(prompt),
    }
    match request.text.format:
        case JsonSchemaFormat(schema=schema) if schema:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        case JsonSchemaFormat() | JsonObjectFormat():
            config["responseMimeType"] = "application/json"
        case _:
            pass
    return drop_none(config)


def encode_tools(prompt: Prompt) -> list[JsonObject]:
    """Write the functions as one tool, and each hosted tool as another."""
    offered = prompt.request.tools
    functions = [encode_function(tool) for tool in offered if isinstance(tool, FunctionTool)]
    written: list[JsonObject] = [{"functionDeclarations": functions}] if functions else []
    if prompt.request.tool_choice != "none":  # which reaches functions only
        for index, tool in enumerate(offered):
            if isinstance(tool, ExtensionTool):
                written.append(encode_hosted_tool(prompt, tool, index))
    return written


def encode_function(tool: FunctionTool) -> JsonObject:
    """Write one function."""
    described = {"description": tool.description or None, "parametersJsonSchema": tool.parameters}
    return {"name": tool.name, **drop_none(described)}


def encode_hosted_tool(prompt: Prompt, tool: ExtensionTool, index: int) -> JsonObject:
    """Write a tool of Google's: `google:codeExecution` is `codeExecution`, with the same fields."""
    extra = {} if tool.extra is UNSET else tool.extra
    if tool.type not in WEB_SEARCH_TYPES:
        return {tool.type.partition(":")[2]: extra}
    if extra:
        names = ", ".join(f"'{name}'" for name in extra)
        message = f"Google's search has no {names}; it searches as it does by itself."
        prompt.warn("unsupported_parameter", message, f"tools[{index}]")
    return {"googleSearch": {}}


def encode_tool_config(prompt: Prompt) -> JsonObject | None:
    """Write what must be called."""
    choice = prompt.request.tool_choice
    functions = any(isinstance(tool, FunctionTool) for tool in prompt.request.tools)
    if isinstance(choice, ExtensionToolChoice) or (choice == "required" and not functions):
        message = "Google decides itself when to use a tool of its own. Use 'auto'."
        raise prompt.unsupported_error(message, "tool_choice")
    if choice == "auto" or not functions:
        return None
    config: JsonObject = {"mode": "NONE" if choice == "none" else "ANY"}
    if isinstance(choice, FunctionToolChoice):
        config["allowedFunctionNames"] = [choice.name]
    return {"functionCallingConfig": config}
