"""What Gemini is asked: the body of `generateContent`, all but the conversation in it."""

from msgspec import UNSET

from antiphon.adapters._google_out import Conversation, Json
from antiphon.adapters._google_thinking import thinking
from antiphon.adapters.base import Prompt
from antiphon.core.request import LOGPROBS, JsonObjectFormat, JsonSchemaFormat
from antiphon.core.tools import ExtensionTool, ExtensionToolChoice, FunctionTool, FunctionToolChoice

SEARCHES = frozenset(
    {
        "openai:web_search",
        "openai:web_search_2025_08_26",
        "openai:web_search_preview",
        "openai:web_search_preview_2025_03_11",
    }
)
"""The tools that we take for Google's own search."""

TIERS = {"flex": "flex", "priority": "priority"}


def body(prompt: Prompt) -> Json:
    """Write a prompt as a body."""
    system, contents = Conversation(prompt).write()
    fields: Json = {
        "contents": contents,
        "systemInstruction": {"parts": system} if system else None,
        "tools": tools(prompt),
        "toolConfig": tool_config(prompt),
        "generationConfig": generation_config(prompt),
        "serviceTier": service_tier(prompt),
    }
    return {name: value for name, value in fields.items() if value}


def generation_config(prompt: Prompt) -> Json:
    """Write how the answer is to be made."""
    request = prompt.request
    scored = bool(request.top_logprobs) or LOGPROBS in request.include
    config: Json = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "seed": request.seed,
        "stopSequences": request.stop or None,
        "maxOutputTokens": request.max_output_tokens,
        "responseLogprobs": scored or None,
        "logprobs": request.top_logprobs or None,
        "thinkingConfig": thinking(prompt),
    }
    match request.text.format:
        case JsonSchemaFormat(schema=schema):
            config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        case JsonObjectFormat():
            config["responseMimeType"] = "application/json"
        case _:
            pass
    return {name: value for name, value in config.items() if value is not None}


def service_tier(prompt: Prompt) -> str | None:
    """Write the tier, if Google has it."""
    tier = prompt.request.service_tier
    if tier in ("auto", "default"):
        return None
    if tier not in TIERS:
        message = f"Google has no service tier '{tier}'; it was not sent."
        prompt.warn("unsupported_value", message, "service_tier")
    return TIERS.get(tier)


def tools(prompt: Prompt) -> list[Json]:
    """Write the functions as one tool, and each hosted tool as another."""
    offered = prompt.request.tools
    functions = [declaration(tool) for tool in offered if isinstance(tool, FunctionTool)]
    written: list[Json] = [{"functionDeclarations": functions}] if functions else []
    if prompt.request.tool_choice != "none":  # which reaches functions only
        for index, tool in enumerate(offered):
            if isinstance(tool, ExtensionTool):
                written.append(hosted(prompt, tool, index))
    return written


def declaration(tool: FunctionTool) -> Json:
    """Write one function."""
    fields: Json = {
        "name": tool.name,
        "description": tool.description or None,
        "parametersJsonSchema": tool.parameters,
    }
    return {name: value for name, value in fields.items() if value is not None}


def hosted(prompt: Prompt, tool: ExtensionTool, index: int) -> Json:
    """Write a tool of Google's: `google:codeExecution` is `codeExecution`, with the same fields."""
    extra = {} if tool.extra is UNSET else tool.extra
    if tool.type not in SEARCHES:
        return {tool.type.partition(":")[2]: extra}
    if extra:
        names = ", ".join(f"'{name}'" for name in extra)
        message = f"Google's search has no {names}; it searches as it does by itself."
        prompt.warn("unsupported_parameter", message, f"tools[{index}]")
    return {"googleSearch": {}}


def tool_config(prompt: Prompt) -> Json | None:
    """Write what must be called."""
    choice = prompt.request.tool_choice
    functions = any(isinstance(tool, FunctionTool) for tool in prompt.request.tools)
    if isinstance(choice, ExtensionToolChoice) or (choice == "required" and not functions):
        message = "Google decides itself when to use a tool of its own. Use 'auto'."
        raise prompt.refuse(message, "tool_choice")
    if choice == "auto" or not functions:
        return None
    config: Json = {"mode": "NONE" if choice == "none" else "ANY"}
    if isinstance(choice, FunctionToolChoice):
        config["allowedFunctionNames"] = [choice.name]
    return {"functionCallingConfig": config}
