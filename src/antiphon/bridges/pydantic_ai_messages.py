"""A conversation as pydantic-ai's messages, and what of them comes back as items.

The seal of a reasoning item keeps what pydantic-ai needs to send a thought back to the provider that had it.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from antiphon.adapters import media
from antiphon.adapters.conversation import split_turns
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    Content,
    ExtensionContent,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    Message,
    Reasoning,
    content_text,
)


class ThinkingSeal(Struct, frozen=True, kw_only=True):
    """What a thought's provider needs to recognise it."""

    pydantic_ai: str
    """The name of the provider."""
    id: str | None = None
    signature: str | None = None
    details: dict[str, object] | None = None


def seal_thinking(part: ThinkingPart) -> str | None:
    """Return the encrypted content for a thought; None if its provider needs nothing back."""
    if not (part.provider_name and (part.signature or part.provider_details)):
        return None
    seal = ThinkingSeal(
        pydantic_ai=part.provider_name, id=part.id, signature=part.signature, details=part.provider_details
    )
    return msgspec.json.encode(seal).decode()


def read_thinking(item: Reasoning) -> ThinkingPart | None:
    """Return the thought of a reasoning item; None if pydantic-ai has not made it."""
    try:
        seal = msgspec.json.decode(item.encrypted_content or "", type=ThinkingSeal)
    except msgspec.MsgspecError:
        return None
    return ThinkingPart(
        "".join(map(content_text, item.summary)),
        id=seal.id,
        signature=seal.signature,
        provider_name=seal.pydantic_ai,
        provider_details=seal.details,
    )


def convert_items(items: Sequence[Item], system: Sequence[SystemPromptPart]) -> list[ModelMessage]:
    """Return a conversation as messages, after the agent's own system prompt; raises RequestError."""
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    messages: list[ModelMessage] = [ModelRequest(parts=[*system])] if system else []
    for turn in split_turns(items):
        if turn.role == "assistant":
            if answer := [part for item in turn.items for part in convert_answer(item)]:
                messages.append(ModelResponse(parts=answer))
            continue
        asked = [convert_prompt(item, names) for item in turn.items if isinstance(item, Message | FunctionCallOutput)]
        if messages and isinstance(last := messages[-1], ModelRequest):
            last.parts = [*last.parts, *asked]
        else:
            messages.append(ModelRequest(parts=asked))
    return messages


def convert_answer(item: Item) -> Iterator[ModelResponsePart]:
    """Yield what the assistant said or called."""
    match item:
        case Message() if item.text:
            yield TextPart(item.text)
        case FunctionCall():
            yield ToolCallPart(item.name, item.arguments, item.call_id)
        case Reasoning():
            if thought := read_thinking(item):
                yield thought
        case _:
            pass


def convert_prompt(item: Message | FunctionCallOutput, names: dict[str, str]) -> ModelRequestPart:
    """Return a message of the user or the system, or the output of a call, whose name is in `names`."""
    if isinstance(item, FunctionCallOutput):
        output = item.output if isinstance(item.output, str) else list(map(convert_content, item.output))
        return ToolReturnPart(names.get(item.call_id, ""), output, item.call_id)
    if item.role in ("system", "developer"):
        return SystemPromptPart(item.text)
    # One text as it is: most models then send it as such.
    if all(isinstance(part, InputText) for part in item.content):
        return UserPromptPart(item.text)
    return UserPromptPart(list(map(convert_content, item.content)))


def convert_content(part: Content) -> UserContent:
    """Return a part of a message; raises RequestError."""
    try:
        match part:
            case InputImage() | InputFile():
                return convert_media(part)
            case InputVideo():
                return VideoUrl(part.video_url)
            case ExtensionContent(type="openai:input_audio"):
                audio = media.read_audio(part)
                return BinaryContent(audio.raw, media_type=audio.media_type)
            case _:
                return content_text(part)
    except ValueError as error:
        raise RequestError(f"This '{part.type}' cannot be sent: {error}.", param="input") from None


def convert_media(part: InputImage | InputFile) -> UserContent:
    """Return an image or a file; raises ValueError."""
    found, is_image = media.read_media(part)
    if found.id:
        raise ValueError("the agent cannot read uploaded files; send the data or an address")
    details = {"detail": part.detail} if isinstance(part, InputImage) and part.detail != "auto" else None
    if found.data:
        return BinaryContent(found.raw, media_type=found.media_type, vendor_metadata=details)
    kind = ImageUrl if is_image else DocumentUrl
    return kind(found.url, media_type=found.media_type or None, vendor_metadata=details)


def convert_return(part: ToolReturnPart) -> str | list[Content]:
    """Return the output of a tool: its text, or text and files."""
    text, content = part.model_response_str_and_user_content()
    if not content:
        return text
    return [InputText(text=text), *(read_content(one) for one in content)]


def read_content(content: UserContent) -> Content:
    """Return a piece of a tool's output as a content part."""
    match content:
        case BinaryContent(media_type=media_type) if media_type.startswith("image/"):
            return InputImage(image_url=content.data_uri)
        case BinaryContent():
            return InputFile(filename=content.identifier, file_data=content.data_uri)
        case ImageUrl():
            return InputImage(image_url=content.url)
        case DocumentUrl():
            return InputFile(file_url=content.url)
        case VideoUrl():
            return InputVideo(video_url=content.url)
        case _:
            return InputText(text=content if isinstance(content, str) else str(content))
