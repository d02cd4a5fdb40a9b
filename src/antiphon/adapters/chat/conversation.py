"""A conversation as chat messages.

Dialect notes: an assistant's turn is one message, its words before its calls. A tool's message
holds text only, so what else an output holds follows in a user message. Thinking goes back to the
server that it came from, in the field in which it came, if it was about calls or came after the
last thing that the user said; DeepSeek demands it then, and ignores it otherwise. So DeepSeek is
sent also what a client shows of it, without our seal. Servers that read the arguments of calls
refuse those that are no object, for as long as they stand in the conversation.
"""

import mimetypes
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.adapters.chat.thinking import Seal
from antiphon.adapters.chat.turn import Turn, collapsed, text_part
from antiphon.adapters.fields import Fields, arguments_of, json_text, read_as
from antiphon.adapters.media import of_file, of_image
from antiphon.adapters.story import SILENCE, Speech, directed, legal_id, legal_name, pieces, tell
from antiphon.core.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputVideo,
    Refusal,
    text_of,
)
from antiphon.core.custom import CustomCall, call_of
from antiphon.core.items import (
    CUSTOM_CALL,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)

CALL_ID = re.compile("(?s).{0,40}")
"""How long OpenAI lets the id of a call be."""

SHORT_ID = re.compile("[a-zA-Z0-9]{9}")


class Habits(Struct, frozen=True, kw_only=True):
    """What servers that speak this dialect differ in."""

    system: str = "system"
    """The role of instructions."""
    limit: str = "max_tokens"
    """The name of the limit on what is written."""
    native: bool = False
    """Whether it is OpenAI's own implementation, with custom tools, refusals and allowed tools."""
    seed: str = "seed"
    """The name of the seed."""
    counts: bool = True
    """Whether a stream has to be asked for its usage."""
    short_ids: bool = False
    """Whether the id of a call is nine letters and digits, neither more nor less."""
    thinking: str = ""
    """The field in which thinking goes back that is not sealed; mostly it does not."""


class Messages:
    """Writes one conversation."""

    def __init__(self, prompt: Prompt, habits: Habits) -> None:
        self._prompt = prompt
        self._habits = habits
        self._written: list[Fields] = []

    def write(self) -> list[Fields]:
        """Return the messages, instructions first; raises RequestError."""
        if self._prompt.request.instructions:
            self._say(self._habits.system, self._prompt.request.instructions)
        story = tell(self._prompt.items)
        thinks = Reasoning in map(type, self._prompt.items)
        replays = replayed(story) if thinks else repeat(False)
        for speech, is_replayed in zip(story, replays, strict=False):
            match speech.role:
                case "assistant":
                    self._assistant(speech.items, thinking=is_replayed)
                case "tool":
                    self._outputs(speech.outputs)
                case "system":
                    self._prompted(speech.items, self._habits.system, direction)
                case "user":
                    self._prompted(speech.items, "user", self._part)
        if not self._written:
            raise self._prompt.refuse(SILENCE, "input")
        return self._written

    def _say(self, role: str, content: object, **more: object) -> None:
        self._written.append({"role": role, "content": content, **more})

    def _prompted(
        self, items: Sequence[Item], role: str, write: Callable[[Content], list[Fields]]
    ) -> None:
        for item in items:
            if isinstance(item, Message):
                self._say(role, collapsed(pieces(self._prompt, item, write)))

    # --- the assistant ---

    def _assistant(self, items: Sequence[Item], *, thinking: bool) -> None:
        turn = Turn()
        for item in items:
            match item:
                case Message():
                    turn.say(self._parts(item))
                case FunctionCall():
                    call = self._call(item.call_id, item.name, item.arguments)
                    turn.call(item.call_id, call)
                case Reasoning() if thinking:
                    turn.think(item, self._seal(item))
                case ExtensionItem(type=t) if t == CUSTOM_CALL:
                    custom = call_of(item)
                    turn.call(custom.call_id, self._custom_call(custom))
                case _:
                    pass
        self._written += turn.message()

    def _seal(self, item: Reasoning) -> Seal:
        return read_as(Seal, item.encrypted_content) or Seal(field=self._habits.thinking)

    def _call(self, call_id: str, name: str, arguments: str) -> Fields:
        given = arguments or "{}" if self._habits.native else arguments_of(arguments)
        function = {"name": legal_name(name), "arguments": given}
        return {"id": self._id(call_id), "type": "function", "function": function}

    def _custom_call(self, call: CustomCall) -> Fields:
        if not self._habits.native:
            return self._call(call.call_id, call.name, json_text({"input": call.input}))
        custom = {"name": legal_name(call.name), "input": call.input}
        return {"id": self._id(call.call_id), "type": "custom", "custom": custom}

    def _id(self, call_id: str) -> str:
        if self._habits.short_ids:
            return legal_id(call_id, SHORT_ID, "", 9)
        return legal_id(call_id, CALL_ID)

    # --- the tools ---

    def _outputs(self, outputs: Iterable[FunctionCallOutput]) -> None:
        shown: list[Fields] = []
        for item in outputs:
            content = item.output
            if not isinstance(content, str):
                written = self._parts(item)
                others = [part for part in written if part["type"] != "text"]
                written = [part for part in written if part["type"] == "text"]
                if others:
                    shown += [text_part(f"Attached to the output of {item.call_id}:"), *others]
                    written.append(text_part("[The next user message holds what is attached.]"))
                content = collapsed(written)
            self._say("tool", content, tool_call_id=self._id(item.call_id))
        if shown:
            self._say("user", shown)

    # --- content ---

    def _parts(self, item: Message | FunctionCallOutput) -> list[Fields]:
        return pieces(self._prompt, item, self._part)

    def _part(self, part: Content) -> list[Fields]:
        match part:
            case InputImage():
                return [self._image(part)]
            case InputFile():
                return [{"type": "file", "file": file_of(part)}]
            case InputVideo():
                return [{"type": "video_url", "video_url": {"url": part.video_url}}]
            case ExtensionContent():
                return [{"type": "input_audio", "input_audio": part.get("input_audio")}]
            case Refusal() if self._habits.native:
                return [{"type": "refusal", "refusal": part.refusal}]
            case _:
                return [text_part(text_of(part))]

    def _image(self, part: InputImage) -> Fields:
        image = of_image(part)
        if image.id:
            raise ValueError("images have no ids in this dialect; send a data URL or an address")
        fields: Fields = {"url": part.image_url if image.url else image.data_url}
        if part.detail != "auto":
            fields["detail"] = part.detail
        return {"type": "image_url", "image_url": fields}


def replayed(story: Sequence[Speech]) -> list[bool]:
    """Tell of each speech whether its thinking goes back."""
    turns = list(accumulate(speech.role == "user" for speech in story))
    kept = {
        turn for turn, speech in zip(turns, story, strict=True) if any(map(is_call, speech.items))
    }
    return [turn in kept or turn == turns[-1] for turn in turns]


def is_call(item: Item) -> bool:
    """Tell whether an item is a call of a function or of a custom tool."""
    return isinstance(item, FunctionCall) or item.type == CUSTOM_CALL


def direction(part: Content) -> list[Fields]:
    """Write a piece of what the system says; raises ValueError."""
    return [text_part(directed(part))]


def file_of(part: InputFile) -> Fields:
    """Write a file; raises ValueError."""
    file = of_file(part)
    if file.id:
        return {"file_id": file.id}
    name = file.name or f"file{mimetypes.guess_extension(file.kind) or ''}"
    return {"filename": name, "file_data": file.data_url}
