"""What Gemini is asked: the body of `generateContent`, all but the conversation in it."""

from collections.abc import Iterable
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    ConversationTurn,
    encode_pieces,
    split_turns,
)
from antiphon.adapters.features import service_tier_name, wants_logprobs
from antiphon.adapters.google.thinking import (
    SKIP_SIGNATURE_CHECK,
    ThoughtSignature,
    encode_thinking,
    is_before_gemini_3,
    requires_signatures,
)
from antiphon.adapters.json_access import (
    JsonObject,
    decode_as,
    drop_empty,
    drop_none,
    parse_arguments,
)
from antiphon.adapters.media import (
    Media,
    read_audio,
    read_file,
    read_image,
)
from antiphon.protocol.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputVideo,
    content_text,
)
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.request import JsonObjectFormat, JsonSchemaFormat
from antiphon.protocol.tools import (
    WEB_SEARCH_TYPES,
    ExtensionTool,
    ExtensionToolChoice,
    FunctionTool,
    FunctionToolChoice,
)
from antiphon.wire import json

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


RESPONSE_MEDIA_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}
)
"""The media that may stand inside a function's response, for Gemini 3 and later."""

OPENING_MESSAGE = "Go on."
"""What the user has said before a conversation that begins with a call, which Google refuses."""


class ConversationEncoder:
    """One conversation, being written."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._is_old_model = is_before_gemini_3(prompt.model)
        self._call_names: dict[str, str] = {}
        self._calls_without_id: set[str] = set()
        """The calls to which Google gave no id."""

    def encode(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the parts of the instruction, and the contents; raises RequestError."""
        instructions = self._prompt.request.instructions
        system: list[JsonObject] = [{"text": instructions}] if instructions else []
        speeches = split_turns(self._prompt.items)
        if speeches and speeches[0].role == "system" and all(map(_is_text_only, speeches[0].items)):
            system += self._encode_user(speeches.pop(0).items)
        contents: list[JsonObject] = []
        turn = max(
            (i for i, said in enumerate(speeches) if said.role in ("user", "system")), default=-1
        )
        for index, speech in enumerate(speeches):
            if parts := self._encode_turn(speech, current=index > turn):
                role = "model" if speech.role == "assistant" else "user"
                contents.append({"role": role, "parts": parts})
        if not (contents or system):
            raise self._prompt.unsupported_error(EMPTY_CONVERSATION, "input")
        if not contents:  # the instructions are all there is, and something must be asked
            return [], [{"role": "user", "parts": system}]
        if speeches[0].calls and contents[0]["role"] == "model":
            contents.insert(0, {"role": "user", "parts": [{"text": OPENING_MESSAGE}]})
        return system, contents

    def _encode_turn(self, speech: ConversationTurn, *, current: bool) -> list[JsonObject]:
        match speech.role:
            case "assistant":
                parts = self._encode_assistant(speech.items)
                if current and requires_signatures(self._prompt.model):
                    _sign_first_call(parts)
                return parts
            case "tool":
                return self._encode_tool_outputs(speech.outputs)
            case _:
                return self._encode_user(speech.items)

    # --- the model's side ---

    def _encode_assistant(self, items: Iterable[Item]) -> list[JsonObject]:
        parts: list[JsonObject] = []
        seal: ThoughtSignature | None = None
        has_id = True
        for item in items:
            match item:
                case Reasoning():
                    seal = self._encode_reasoning(item, parts)
                    has_id = seal.id if seal else has_id
                case Message():
                    parts += encode_pieces(self._prompt, item, _encode_content)
                    seal = None
                case FunctionCall():
                    if not has_id:
                        self._calls_without_id.add(item.call_id)
                    parts.append(self._encode_call(item, seal))
                    seal = None
                case _:
                    pass
        return parts

    def _encode_reasoning(
        self, item: Reasoning, parts: list[JsonObject]
    ) -> ThoughtSignature | None:
        """Write what a reasoning item holds; return the seal that is meant for the next call."""
        seal = decode_as(ThoughtSignature, item.encrypted_content)
        if seal is None:
            return None
        summary = "".join(map(content_text, item.summary))
        if summary or seal.on == "thought":
            thought: JsonObject = {"text": summary, "thought": True}
            parts.append(thought | seal.fields if seal.on == "thought" else thought)
        if seal.on == "text":
            _sign_text(parts, seal)
        return seal if seal.on == "call" else None

    def _encode_call(self, call: FunctionCall, seal: ThoughtSignature | None) -> JsonObject:
        self._call_names[call.call_id] = call.name
        arguments = parse_arguments(call.arguments)
        part: JsonObject = {
            "functionCall": self._id_fields(call.call_id) | {"name": call.name, "args": arguments}
        }
        return part | seal.fields if seal else part

    def _id_fields(self, call_id: str) -> JsonObject:
        return {} if call_id in self._calls_without_id else {"id": call_id}

    # --- the user's side ---

    def _encode_tool_outputs(self, outputs: Iterable[FunctionCallOutput]) -> list[JsonObject]:
        parts: list[JsonObject] = []
        beside: list[JsonObject] = []
        for item in outputs:
            inside: list[JsonObject] = []
            for media in encode_pieces(self._prompt, item, _read_media):
                where = (
                    beside
                    if self._is_old_model or media.media_type not in RESPONSE_MEDIA_TYPES
                    else inside
                )
                where.append(_encode_media(media))
            name = self._call_names.get(item.call_id, item.call_id)
            given: JsonObject = {"name": name, "response": _encode_response(item.text)}
            given |= self._id_fields(item.call_id) | drop_empty({"parts": inside})
            parts.append({"functionResponse": given})
        return parts + beside

    def _encode_user(self, items: Iterable[Item]) -> list[JsonObject]:
        said = (item for item in items if isinstance(item, Message))
        return [
            part for item in said for part in encode_pieces(self._prompt, item, _encode_content)
        ]


def _is_text_only(item: Item) -> bool:
    media = (InputImage, InputFile, InputVideo, ExtensionContent)
    return isinstance(item, Message) and not any(isinstance(part, media) for part in item.content)


def _encode_content(part: Content) -> list[JsonObject]:
    """Write a piece of content; raises ValueError with what is wrong about it."""
    text = content_text(part)
    return [{"text": text}] if text else list(map(_encode_media, _read_media(part)))


def _read_media(part: Content) -> list[Media]:
    """Read what is not text, with a guess at its type; raises ValueError."""
    match part:
        case InputImage():
            found, guess = read_image(part), "image/jpeg"
        case InputFile():
            found, guess = read_file(part), "application/pdf"
        case InputVideo():
            found, guess = read_file(InputFile(file_url=part.video_url)), "video/mp4"
        case ExtensionContent(type="openai:input_audio"):
            found, guess = read_audio(part), ""
        case _:
            return []
    if found.url.startswith("s3://"):
        raise ValueError("Google does not read from S3")
    return [found if found.media_type else replace(found, media_type=guess)]


def _encode_media(media: Media) -> JsonObject:
    if media.data:
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    return {"fileData": {"mimeType": media.media_type, "fileUri": media.url}}


def _encode_response(text: str) -> JsonObject:
    """Read an output as a JSON object; any other text is wrapped in one, as it is."""
    try:
        value = json.decode(text.encode())
    except ValueError:
        value = None
    return cast("JsonObject", value) if isinstance(value, dict) else {"output": text}


def _sign_text(parts: list[JsonObject], seal: ThoughtSignature) -> None:
    """Put a signature on the end of the last text, as long as the part it came on."""
    last = parts[-1] if parts else {}
    text = last["text"] if last.keys() == {"text"} else ""
    if not (isinstance(text, str) and 0 < seal.length <= len(text)):
        parts.append({"text": ""} | seal.fields)
        return
    parts.pop()
    cut = len(text) - seal.length
    if cut:
        parts.append({"text": text[:cut]})
    parts.append({"text": text[cut:]} | seal.fields)


def _sign_first_call(parts: list[JsonObject]) -> None:
    """Ask Google to take a call that none of its models has made."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None:
        first.setdefault("thoughtSignature", SKIP_SIGNATURE_CHECK)
