"""What Gemini is told: a conversation written as `contents`.

Dialect notes: two roles, `user` and `model`; what tools gave back is the user's. The arguments of a
call and the output of a function are objects. Instructions stand beside the conversation, at its
beginning; what is said to the model in that voice later becomes the user's words.
"""

from collections.abc import Iterable
from typing import TypeAlias, cast

from antiphon.adapters._google_thinking import SKIP, Seal, demands_signatures, is_old
from antiphon.adapters.base import Prompt
from antiphon.adapters.media import Media, of_file, of_image
from antiphon.adapters.story import Speech, tell
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

Json: TypeAlias = dict[str, object]

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

    def write(self) -> tuple[list[Json], list[Json]]:
        """Return the parts of the instruction, and the contents."""
        instructions = self._prompt.request.instructions
        system: list[Json] = [{"text": instructions}] if instructions else []
        speeches = list(tell(self._prompt.items))
        if speeches and speeches[0].role == "system" and all(map(_is_text, speeches[0].items)):
            system += self._asked(speeches.pop(0).items)
        contents: list[Json] = []
        turn = max(
            (i for i, said in enumerate(speeches) if said.role in ("user", "system")), default=-1
        )
        for index, speech in enumerate(speeches):
            if parts := self._parts(speech, current=index > turn):
                role = "model" if speech.role == "assistant" else "user"
                contents.append({"role": role, "parts": parts})
        if not contents:  # the instructions are all there is, and something must be asked
            return [], [{"role": "user", "parts": system}] if system else []
        if speeches[0].calls and contents[0]["role"] == "model":
            contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
        return system, contents

    def _parts(self, speech: Speech, *, current: bool) -> list[Json]:
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

    def _said(self, items: Iterable[Item]) -> list[Json]:
        parts: list[Json] = []
        seal: Seal | None = None
        has_id = True
        for item in items:
            match item:
                case Reasoning():
                    seal = self._thought(item, parts)
                    has_id = seal.id if seal else has_id
                case Message():
                    parts += _words(item.content)
                    seal = None
                case FunctionCall():
                    if not has_id:
                        self._nameless.add(item.call_id)
                    parts.append(self._called(item, seal))
                    seal = None
                case _:
                    pass
        return parts

    def _thought(self, item: Reasoning, parts: list[Json]) -> Seal | None:
        """Write what a reasoning item holds; return the seal that is meant for the next call."""
        seal = Seal.of(item)
        if seal is None:
            return None
        summary = "".join(map(text_of, item.summary))
        if summary or seal.on == "thought":
            thought: Json = {"text": summary, "thought": True}
            parts.append(thought | seal.fields if seal.on == "thought" else thought)
        if seal.on == "text":
            _sign_text(parts, seal)
        return seal if seal.on == "call" else None

    def _called(self, call: FunctionCall, seal: Seal | None) -> Json:
        self._names[call.call_id] = call.name
        arguments = _object(call.arguments or "{}", "input")
        part: Json = {
            "functionCall": self._id(call.call_id) | {"name": call.name, "args": arguments}
        }
        return part | seal.fields if seal else part

    def _id(self, call_id: str) -> Json:
        return {} if call_id in self._nameless else {"id": call_id}

    # --- the user's side ---

    def _given_back(self, outputs: Iterable[FunctionCallOutput]) -> list[Json]:
        parts: list[Json] = []
        beside: list[Json] = []
        for item in outputs:
            name = self._names.get(item.call_id, item.call_id)
            written = self._id(item.call_id) | {
                "name": name,
                "response": _object(item.text, "output"),
            }
            inside: list[Json] = []
            for index, part in enumerate([] if isinstance(item.output, str) else item.output):
                if media := self._media(part, item, f"output[{index}]"):
                    where = beside if self._old or media.kind not in IN_RESPONSE else inside
                    where.append(_data(media))
            parts.append({"functionResponse": written | ({"parts": inside} if inside else {})})
        return parts + beside

    def _asked(self, items: Iterable[Item]) -> list[Json]:
        parts: list[Json] = []
        for item in items:
            for index, part in enumerate(item.content if isinstance(item, Message) else ()):
                if text := text_of(part):
                    parts.append({"text": text})
                elif media := self._media(part, item, f"content[{index}]"):
                    parts.append(_data(media))
        return parts

    def _media(self, part: Content, item: Item, name: str) -> Media | None:
        try:
            media = _medium(part)
            if media and media.url.startswith("s3://"):
                raise ValueError("Google does not read from S3")
        except ValueError as error:
            place = f"{self._prompt.place(item)}.{name}"
            raise self._prompt.refuse(
                f"This '{part.type}' cannot be sent: {error}.", place
            ) from None
        return media


def _is_text(item: Item) -> bool:
    media = (InputImage, InputFile, InputVideo, ExtensionContent)
    return isinstance(item, Message) and not any(isinstance(part, media) for part in item.content)


def _medium(part: Content) -> Media | None:
    """Read what is not text, with a guess at its type; raises ValueError."""
    match part:
        case InputImage():
            return _typed(of_image(part), "image/jpeg")
        case InputFile():
            return _typed(of_file(part), "application/pdf")
        case InputVideo():
            return _typed(of_file(InputFile(file_url=part.video_url)), "video/mp4")
        case ExtensionContent(type="openai:input_audio"):
            sound = (part.extra or {}).get("input_audio")
            fields = cast("Json", sound) if isinstance(sound, dict) else {}
            data, format = fields.get("data"), fields.get("format")
            if isinstance(data, str) and isinstance(format, str):
                return Media(kind=f"audio/{format}", data=data)
            raise ValueError("it has no data or no format")
        case _:
            return None


def _typed(media: Media, guess: str) -> Media:
    return media if media.kind else Media(kind=guess, data=media.data, url=media.url, id=media.id)


def _data(media: Media) -> Json:
    if media.data:
        return {"inlineData": {"mimeType": media.kind, "data": media.data}}
    return {"fileData": {"mimeType": media.kind, "fileUri": media.url}}


def _words(content: Iterable[Content]) -> list[Json]:
    return [{"text": text} for part in content if (text := text_of(part))]


def _object(text: str, name: str) -> Json:
    """Read a text as a JSON object; any other text is wrapped in one, as it is, under a name."""
    try:
        value = json.decode(text.encode())
    except ValueError:
        value = None
    return cast("Json", value) if isinstance(value, dict) else {name: text}


def _sign_text(parts: list[Json], seal: Seal) -> None:
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


def _sign_first_call(parts: list[Json]) -> None:
    """Ask Google to take a call that none of its models has made."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None:
        first.setdefault("thoughtSignature", SKIP)
