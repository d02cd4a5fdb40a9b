"""What Gemini is asked: the body of `generateContent`, all but the conversation in it."""

from msgspec import UNSET

from antiphon.adapters.base import Prompt
from antiphon.adapters.fields import Fields, filled, given
from antiphon.adapters.google.conversation import Conversation
from antiphon.adapters.google.thinking import thinking
from antiphon.adapters.options import tier, wants_logprobs
from antiphon.core.request import JsonObjectFormat, JsonSchemaFormat
from antiphon.core.tools import (
    WEB_SEARCH,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
)

TIERS = {"flex": "flex", "priority": "priority"}


def body_of(prompt: Prompt) -> Fields:
    """Write a prompt as a body."""
    system, contents = Conversation(prompt).write()
    fields: Fields = {
        "contents": contents,
        "systemInstruction": {"parts": system} if system else None,
        "tools": tools(prompt),
        "toolConfig": tool_config(prompt),
        "generationConfig": generation_config(prompt),
        "serviceTier": tier(prompt, TIERS),
    }
    return filled(fields)


def generation_config(prompt: Prompt) -> Fields:
    """Write how the answer is to be made."""
    request = prompt.request
    config: Fields = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "seed": request.seed,
        "stopSequences": request.stop or None,
        "maxOutputTokens": request.max_output_tokens,
        "responseLogprobs": wants_logprobs(request) or None,
        "logprobs": request.top_logprobs or None,
        "thinkingConfig": thinking(prompt),
    }
    match request.text.format:
        case JsonSchemaFormat(schema=schema) if schema:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        case JsonSchemaFormat() | JsonObjectFormat():
            config["responseMimeType"] = "application/json"
        case _:
            pass
    return given(config)


def tools(prompt: Prompt) -> list[Fields]:
    """Write the functions as one tool, and each hosted tool as another."""
    offered = prompt.request.tools
    functions = [declaration(tool) for tool in offered if isinstance(tool, FunctionTool)]
    written: list[Fields] = [{"functionDeclarations": functions}] if functions else []
    if prompt.request.tool_choice != "none":  # which reaches functions only
        for index, tool in enumerate(offered):
            if isinstance(tool, ExtensionTool):
                written.append(hosted(prompt, tool, index))
    return written


def declaration(tool: FunctionTool) -> Fields:
    """Write one function."""
    described = {"description": tool.description or None, "parametersJsonSchema": tool.parameters}
    return {"name": tool.name, **given(described)}


def hosted(prompt: Prompt, tool: ExtensionTool, index: int) -> Fields:
    """Write a tool of Google's: `google:codeExecution` is `codeExecution`, with the same fields."""
    extra = {} if tool.extra is UNSET else tool.extra
    if tool.type not in WEB_SEARCH:
        return {tool.type.partition(":")[2]: extra}
    if extra:
        names = ", ".join(f"'{name}'" for name in extra)
        message = f"Google's search has no {names}; it searches as it does by itself."
        prompt.warn("unsupported_parameter", message, f"tools[{index}]")
    return {"googleSearch": {}}


def tool_config(prompt: Prompt) -> Fields | None:
    """Write what must be called."""
    choice = prompt.request.tool_choice
    functions = any(isinstance(tool, FunctionTool) for tool in prompt.request.tools)
    if isinstance(choice, ExtensionToolChoice) or (choice == "required" and not functions):
        message = "Google decides itself when to use a tool of its own. Use 'auto'."
        raise prompt.refuse(message, "tool_choice")
    if choice == "auto" or not functions:
        return None
    config: Fields = {"mode": "NONE" if choice == "none" else "ANY"}
    if isinstance(choice, FunctionToolChoice):
        config["allowedFunctionNames"] = [choice.name]
    return {"functionCallingConfig": config}
