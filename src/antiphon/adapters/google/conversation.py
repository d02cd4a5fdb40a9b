"""What Gemini is told: a conversation written as `contents`.

Dialect notes: two roles, `user` and `model`; what tools gave back is the user's. The arguments of a
call and the output of a function are objects. Instructions stand beside the conversation, at its
beginning; what is said to the model in that voice later becomes the user's words.
"""

from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from antiphon.adapters.base import Prompt
from antiphon.adapters.fields import Fields, arguments_in, filled, read_as
from antiphon.adapters.google.thinking import SKIP, Seal, demands_signatures, is_old
from antiphon.adapters.media import Media, of_file, of_image, of_sound
from antiphon.adapters.story import SILENCE, Speech, pieces, tell
from antiphon.core.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputVideo,
    text_of,
)
from antiphon.core.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.wire import json

IN_RESPONSE = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""The media that may stand inside a function's response, for Gemini 3 and later."""

OPENING = "Go on."
"""What the user has said before a conversation that begins with a call, which Google refuses."""


class Conversation:
    """One conversation, being written."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._old = is_old(prompt.model)
        self._names: dict[str, str] = {}
        self._nameless: set[str] = set()
        """The calls to which Google gave no id."""

    def write(self) -> tuple[list[Fields], list[Fields]]:
        """Return the parts of the instruction, and the contents; raises RequestError."""
        instructions = self._prompt.request.instructions
        system: list[Fields] = [{"text": instructions}] if instructions else []
        speeches = tell(self._prompt.items)
        if speeches and speeches[0].role == "system" and all(map(_is_text, speeches[0].items)):
            system += self._asked(speeches.pop(0).items)
        contents: list[Fields] = []
        turn = max(
            (i for i, said in enumerate(speeches) if said.role in ("user", "system")), default=-1
        )
        for index, speech in enumerate(speeches):
            if parts := self._parts(speech, current=index > turn):
                role = "model" if speech.role == "assistant" else "user"
                contents.append({"role": role, "parts": parts})
        if not (contents or system):
            raise self._prompt.refuse(SILENCE, "input")
        if not contents:  # the instructions are all there is, and something must be asked
            return [], [{"role": "user", "parts": system}]
        if speeches[0].calls and contents[0]["role"] == "model":
            contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
        return system, contents

    def _parts(self, speech: Speech, *, current: bool) -> list[Fields]:
        match speech.role:
            case "assistant":
                parts = self._said(speech.items)
                if current and demands_signatures(self._prompt.model):
                    _sign_first_call(parts)
                return parts
            case "tool":
                return self._given_back(speech.outputs)
            case _:
                return self._asked(speech.items)

    # --- the model's side ---

    def _said(self, items: Iterable[Item]) -> list[Fields]:
        parts: list[Fields] = []
        seal: Seal | None = None
        has_id = True
        for item in items:
            match item:
                case Reasoning():
                    seal = self._thought(item, parts)
                    has_id = seal.id if seal else has_id
                case Message():
                    parts += pieces(self._prompt, item, _piece)
                    seal = None
                case FunctionCall():
                    if not has_id:
                        self._nameless.add(item.call_id)
                    parts.append(self._called(item, seal))
                    seal = None
                case _:
                    pass
        return parts

    def _thought(self, item: Reasoning, parts: list[Fields]) -> Seal | None:
        """Write what a reasoning item holds; return the seal that is meant for the next call."""
        seal = read_as(Seal, item.encrypted_content)
        if seal is None:
            return None
        summary = "".join(map(text_of, item.summary))
        if summary or seal.on == "thought":
            thought: Fields = {"text": summary, "thought": True}
            parts.append(thought | seal.fields if seal.on == "thought" else thought)
        if seal.on == "text":
            _sign_text(parts, seal)
        return seal if seal.on == "call" else None

    def _called(self, call: FunctionCall, seal: Seal | None) -> Fields:
        self._names[call.call_id] = call.name
        arguments = arguments_in(call.arguments)
        part: Fields = {
            "functionCall": self._id(call.call_id) | {"name": call.name, "args": arguments}
        }
        return part | seal.fields if seal else part

    def _id(self, call_id: str) -> Fields:
        return {} if call_id in self._nameless else {"id": call_id}

    # --- the user's side ---

    def _given_back(self, outputs: Iterable[FunctionCallOutput]) -> list[Fields]:
        parts: list[Fields] = []
        beside: list[Fields] = []
        for item in outputs:
            inside: list[Fields] = []
            for media in pieces(self._prompt, item, _medium):
                where = beside if self._old or media.kind not in IN_RESPONSE else inside
                where.append(_data(media))
            name = self._names.get(item.call_id, item.call_id)
            given: Fields = {"name": name, "response": _response(item.text)}
            given |= self._id(item.call_id) | filled({"parts": inside})
            parts.append({"functionResponse": given})
        return parts + beside

    def _asked(self, items: Iterable[Item]) -> list[Fields]:
        said = (item for item in items if isinstance(item, Message))
        return [part for item in said for part in pieces(self._prompt, item, _piece)]


def _is_text(item: Item) -> bool:
    media = (InputImage, InputFile, InputVideo, ExtensionContent)
    return isinstance(item, Message) and not any(isinstance(part, media) for part in item.content)


def _piece(part: Content) -> list[Fields]:
    """Write a piece of content; raises ValueError with what is wrong about it."""
    text = text_of(part)
    return [{"text": text}] if text else list(map(_data, _medium(part)))


def _medium(part: Content) -> list[Media]:
    """Read what is not text, with a guess at its type; raises ValueError."""
    match part:
        case InputImage():
            found, guess = of_image(part), "image/jpeg"
        case InputFile():
            found, guess = of_file(part), "application/pdf"
        case InputVideo():
            found, guess = of_file(InputFile(file_url=part.video_url)), "video/mp4"
        case ExtensionContent(type="openai:input_audio"):
            found, guess = of_sound(part), ""
        case _:
            return []
    if found.url.startswith("s3://"):
        raise ValueError("Google does not read from S3")
    return [found if found.kind else replace(found, kind=guess)]


def _data(media: Media) -> Fields:
    if media.data:
        return {"inlineData": {"mimeType": media.kind, "data": media.data}}
    return {"fileData": {"mimeType": media.kind, "fileUri": media.url}}


def _response(text: str) -> Fields:
    """Read an output as a JSON object; any other text is wrapped in one, as it is."""
    try:
        value = json.decode(text.encode())
    except ValueError:
        value = None
    return cast("Fields", value) if isinstance(value, dict) else {"output": text}


def _sign_text(parts: list[Fields], seal: Seal) -> None:
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


def _sign_first_call(parts: list[Fields]) -> None:
    """Ask Google to take a call that none of its models has made."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None:
        first.setdefault("thoughtSignature", SKIP)
