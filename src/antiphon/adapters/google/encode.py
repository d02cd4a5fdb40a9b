"""Writes a prompt as the body of a `generateContent` request.

Dialect notes: there are two roles, `user` and `model`; tool results belong to the user. Call arguments and results are
objects. Instructions are separate from the conversation; later system messages become the user's. A thought signature
belongs to one part of the response, mostly the first call, and must come back on that part. Gemini 3 and later think by
level, 2.5 by a budget of tokens; older models do not think.
"""

import re

from msgspec.structs import replace

from antiphon.adapters import features, media
from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import EMPTY_CONVERSATION, ConversationTurn, encode_pieces, split_turns
from antiphon.adapters.google.wire_types import ThoughtSignature
from antiphon.adapters.json_access import decode_as, drop_empty, parse_arguments
from antiphon.protocol import items
from antiphon.protocol.json_schema import is_object
from antiphon.protocol.request import JsonSchemaFormat
from antiphon.protocol.struct import JsonObject, drop_none
from antiphon.protocol.tools import WEB_SEARCH_TYPES, ExtensionToolChoice, FunctionTool, FunctionToolChoice
from antiphon.wire import json

SERVICE_TIERS = {"flex": "flex", "priority": "priority"}
RESPONSE_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""The media types that a function response may contain, since Gemini 3."""

OPENING_MESSAGE = "Go on."
SKIP_SIGNATURE_CHECK = "skip_thought_signature_validator"
"""The documented placeholder for the signature of a call that no Gemini model has made."""

BEFORE_GEMINI_3 = re.compile(r"gemini-[12]\b")
BUDGET_MODELS = re.compile(r"gemini-2\.5\b")
# Other models reject the level MINIMAL.
MINIMAL_LEVEL_MODELS = re.compile(r"gemini-3(?:\.[0-6])?-flash")
THINKING_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
# 2.5 Pro cannot turn thinking off.
PRO_THINKING_BUDGETS = THINKING_BUDGETS | {"none": 128, "xhigh": 32768, "max": 32768}


def encode_body(prompt: Prompt) -> JsonObject:
    """Write a prompt as a request body; raises RequestError for what cannot be sent."""
    system, contents = ContentsEncoder(prompt).encode()
    body: JsonObject = {
        "contents": contents,
        "systemInstruction": {"parts": system} if system else None,
        "tools": _encode_tools(prompt),
        "toolConfig": _encode_tool_config(prompt),
        "generationConfig": _encode_generation_config(prompt),
        "serviceTier": features.service_tier_name(prompt, SERVICE_TIERS),
    }
    return drop_empty(body)


def _encode_generation_config(prompt: Prompt) -> JsonObject:
    request, format = prompt.request, prompt.request.text.format
    schema = format.schema if isinstance(format, JsonSchemaFormat) else None
    config: JsonObject = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "seed": request.seed,
        "stopSequences": request.stop or None,
        "maxOutputTokens": request.max_output_tokens,
        "responseLogprobs": features.wants_logprobs(request) or None,
        "logprobs": request.top_logprobs or None,
        "thinkingConfig": _encode_thinking(prompt),
        "responseMimeType": "application/json" if features.format_feature(request) else None,
        "responseJsonSchema": schema or None,
    }
    return drop_none(config)


def _encode_tools(prompt: Prompt) -> list[JsonObject]:
    """Write the functions as one tool, and each hosted tool as another."""
    functions: list[JsonObject] = []
    hosted: list[JsonObject] = []
    for index, tool in enumerate(prompt.request.tools):
        if isinstance(tool, FunctionTool):
            fields = {"description": tool.description or None, "parametersJsonSchema": tool.parameters}
            functions.append({"name": tool.name, **drop_none(fields)})
        # The mode NONE applies to functions only, so hosted tools are left out.
        elif prompt.request.tool_choice == "none":
            continue
        elif tool.type in WEB_SEARCH_TYPES:
            hosted.append({"googleSearch": {}})
            if tool.extra:
                names = ", ".join(f"'{name}'" for name in tool.extra)
                message = f"Google's web search has no options; {names} was not sent."
                prompt.warn("unsupported_parameter", message, f"tools[{index}]")
        else:
            # A tool of Google's: `google:codeExecution` is `codeExecution`, with the same fields.
            hosted.append({tool.type.partition(":")[2]: tool.extra or {}})
    return [{"functionDeclarations": functions}, *hosted] if functions else hosted


def _encode_tool_config(prompt: Prompt) -> JsonObject | None:
    choice = prompt.request.tool_choice
    has_functions = any(isinstance(tool, FunctionTool) for tool in prompt.request.tools)
    if isinstance(choice, ExtensionToolChoice) or (choice == "required" and not has_functions):
        message = "A call of a tool that Google runs cannot be forced. Use 'auto'."
        raise prompt.unsupported_error(message, "tool_choice")
    if choice == "auto" or not has_functions:
        return None
    config: JsonObject = {"mode": "NONE" if choice == "none" else "ANY"}
    if isinstance(choice, FunctionToolChoice):
        config["allowedFunctionNames"] = [choice.name]
    return {"functionCallingConfig": config}


class ContentsEncoder:
    """Writes the system instruction and the contents of one prompt."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._is_old_model = is_before_gemini_3(prompt.model)
        self._requires_signatures = _strip_path(prompt.model).startswith("gemini-") and not self._is_old_model
        self._call_names: dict[str, str] = {}
        self._calls_without_id: set[str] = set()

    def encode(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the parts of the instruction, and the contents; raises RequestError."""
        instructions = self._prompt.request.instructions
        system: list[JsonObject] = [{"text": instructions}] if instructions else []
        turns = split_turns(self._prompt.items)
        # Google accepts only text as instructions; images stay in the conversation.
        if turns and turns[0].role == "system" and all(map(_is_text_only, turns[0].items)):
            system += self._encode_items(turns.pop(0))
        # Signatures are checked in the current turn: what follows the user's last message.
        users = (i for i, turn in enumerate(turns) if turn.role in ("user", "system"))
        last_user = max(users, default=-1)
        contents: list[JsonObject] = []
        for index, turn in enumerate(turns):
            is_tool = turn.role == "tool"
            parts = self._encode_tool_outputs(turn) if is_tool else self._encode_items(turn)
            first_call = next((part for part in parts if "functionCall" in part), None)
            if first_call and index > last_user and self._requires_signatures:
                first_call.setdefault("thoughtSignature", SKIP_SIGNATURE_CHECK)
            if parts:
                contents.append({"role": "model" if turn.role == "assistant" else "user", "parts": parts})
        if not (contents or system):
            raise self._prompt.unsupported_error(EMPTY_CONVERSATION, "input")
        # Instructions alone are rejected, so they become the user's message.
        if not contents:
            return [], [{"role": "user", "parts": system}]
        # So is a conversation that starts with a call.
        if turns[0].calls and contents[0]["role"] == "model":
            contents.insert(0, {"role": "user", "parts": [{"text": OPENING_MESSAGE}]})
        return system, contents

    def _encode_items(self, turn: ConversationTurn) -> list[JsonObject]:
        parts: list[JsonObject] = []
        signature: ThoughtSignature | None = None
        has_id = True
        for item in turn.items:
            match item:
                case items.Reasoning():
                    signature = _encode_reasoning(item, parts)
                    has_id = signature.id if signature else has_id
                case items.Message():
                    parts += encode_pieces(self._prompt, item, _encode_content)
                    signature = None
                case items.FunctionCall():
                    # Only the first of parallel calls is signed; the others share its kind of id.
                    if not has_id:
                        self._calls_without_id.add(item.call_id)
                    self._call_names[item.call_id] = item.name
                    call = {"name": item.name, "args": parse_arguments(item.arguments)}
                    call |= self._id_fields(item.call_id)
                    parts.append({"functionCall": call} | (signature.fields if signature else {}))
                    signature = None
                case _:
                    pass
        return parts

    def _id_fields(self, call_id: str) -> JsonObject:
        # A call that Google gave no id is sent back without the one that the client saw.
        return {} if call_id in self._calls_without_id else {"id": call_id}

    def _encode_tool_outputs(self, turn: ConversationTurn) -> list[JsonObject]:
        responses: list[JsonObject] = []
        separate: list[JsonObject] = []
        for item in turn.outputs:
            inside: list[JsonObject] = []
            for file in encode_pieces(self._prompt, item, _read_media):
                fits = not self._is_old_model and file.media_type in RESPONSE_MEDIA_TYPES
                (inside if fits else separate).append(_encode_media(file))
            # Google requires the function's name, and an output item has only the call's id.
            name = self._call_names.get(item.call_id, item.call_id)
            response: JsonObject = {"name": name, "response": _encode_response(item.text)}
            response |= self._id_fields(item.call_id) | drop_empty({"parts": inside})
            responses.append({"functionResponse": response})
        return responses + separate


def _encode_reasoning(item: items.Reasoning, parts: list[JsonObject]) -> ThoughtSignature | None:
    """Add the parts of a reasoning item; return the signature if it is the next call's."""
    signature = decode_as(ThoughtSignature, item.encrypted_content)
    if signature is None:
        return None
    summary = "".join(map(items.content_text, item.summary))
    if summary or signature.on == "thought":
        thought: JsonObject = {"text": summary, "thought": True}
        parts.append(thought | signature.fields if signature.on == "thought" else thought)
    if signature.on == "text":
        _sign_text(parts, signature)
    return signature if signature.on == "call" else None


def _is_text_only(item: items.Item) -> bool:
    return isinstance(item, items.Message) and features.MEDIA_CONTENT.isdisjoint(map(type, item.content))


def _encode_content(part: items.Content) -> list[JsonObject]:
    """Write a piece of content; raises ValueError with the reason if that is impossible."""
    text = items.content_text(part)
    return [{"text": text}] if text else list(map(_encode_media, _read_media(part)))


def _read_media(part: items.Content) -> list[media.Media]:
    """Return a part that is not text, with a guess at its media type; raises ValueError."""
    match part:
        case items.InputImage():
            file, guess = media.read_image(part), "image/jpeg"
        case items.InputFile():
            file, guess = media.read_file(part), "application/pdf"
        case items.InputVideo():
            file, guess = media.read_file(items.InputFile(file_url=part.video_url)), "video/mp4"
        case items.ExtensionContent(type="openai:input_audio"):
            file, guess = media.read_audio(part), ""
        case _:
            return []
    if file.url.startswith("s3://"):
        raise ValueError("Google does not read from S3")
    # Google rejects media without a type.
    return [file if file.media_type else replace(file, media_type=guess)]


def _encode_media(file: media.Media) -> JsonObject:
    if file.data:
        return {"inlineData": {"mimeType": file.media_type, "data": file.data}}
    return {"fileData": {"mimeType": file.media_type, "fileUri": file.url}}


def _encode_response(text: str) -> JsonObject:
    """Return an output that is a JSON object as it is, and any other text within one."""
    try:
        value = json.decode(text.encode())
    except ValueError:
        value = None
    return value if is_object(value) else {"output": text}


def _sign_text(parts: list[JsonObject], signature: ThoughtSignature) -> None:
    """Sign the end of the last text, splitting it where the signed part began."""
    last = parts[-1] if parts else {}
    text = last["text"] if last.keys() == {"text"} else ""
    if not (isinstance(text, str) and 0 < signature.length <= len(text)):
        parts.append({"text": ""} | signature.fields)
        return
    # One message may join several parts of a response; only the last one was signed.
    start = len(text) - signature.length
    parts[-1:] = [{"text": text[:start]}] if start else []
    parts.append({"text": text[start:]} | signature.fields)


def _strip_path(model: str) -> str:
    return model.rpartition("/")[2]


def is_before_gemini_3(model: str) -> bool:
    """Tell whether a model is older than Gemini 3."""
    return BEFORE_GEMINI_3.match(_strip_path(model)) is not None


def _encode_thinking(prompt: Prompt) -> JsonObject | None:
    """Write how much the model thinks, and whether it returns a summary."""
    reasoning = prompt.request.reasoning
    if reasoning is None or (reasoning.effort is None and reasoning.summary is None):
        return None
    model, effort = _strip_path(prompt.model), reasoning.effort
    is_old = is_before_gemini_3(model)
    if is_old and not BUDGET_MODELS.match(model):
        if effort != "none" or reasoning.summary:
            message = f"'{model}' does not support reasoning; 'reasoning' was not sent."
            prompt.warn("unsupported_parameter", message, "reasoning")
        return None
    config: JsonObject = {}
    if reasoning.summary or effort != "none":
        config["includeThoughts"] = True
    if effort is not None and is_old:
        budget = (PRO_THINKING_BUDGETS if "-pro" in model else THINKING_BUDGETS)[effort]
        config["thinkingBudget"] = budget
        if effort == "none" and budget:
            message = f"This model always thinks; its budget was set to {budget} tokens."
            prompt.warn("approximated_parameter", message, "reasoning.effort")
    elif effort is not None:
        has_minimal = MINIMAL_LEVEL_MODELS.match(model)
        levels = features.EFFORTS_MINIMAL_TO_HIGH if has_minimal else features.EFFORTS_LOW_TO_HIGH
        config["thinkingLevel"] = features.nearest_effort(prompt, effort, levels).upper()
    return config
