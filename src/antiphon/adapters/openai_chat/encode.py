"""One message of the assistant's, gathered from the items of its turn."""

import mimetypes
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat

from msgspec import Struct

from antiphon.adapters.base import Prompt
from antiphon.adapters.conversation import (
    EMPTY_CONVERSATION,
    ConversationTurn,
    encode_pieces,
    make_legal_id,
    make_legal_name,
    split_turns,
    system_text,
)
from antiphon.adapters.json_access import (
    JsonObject,
    decode_as,
    drop_empty,
    normalize_arguments,
    to_json_text,
)
from antiphon.adapters.media import read_file, read_image
from antiphon.adapters.openai_chat.reasoning_state import ChatSeal
from antiphon.protocol.content import (
    Content,
    ExtensionContent,
    InputFile,
    InputImage,
    InputVideo,
    RefusalContent,
    content_text,
)
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.tools import CustomCallFields, decode_custom_call


class AssistantMessage:
    """What an assistant said in a row, on its way to be one message."""

    def __init__(self) -> None:
        self.content: list[JsonObject] = []
        self.calls: list[tuple[str, JsonObject]] = []
        """The calls, each with the id that its item has."""
        self.reasoning_fields: dict[str, str] = {}
        self.reasoning_details: list[JsonObject] = []
        self.call_extras: dict[str | int, JsonObject] = {}
        """What belongs beside calls, by their ids, or else by their places."""

    def add_content(self, content: list[JsonObject]) -> None:
        """Add words."""
        self.content += content

    def add_reasoning(self, item: Reasoning, seal: ChatSeal) -> None:
        """Add thinking where it came from, with what it came with."""
        text = "".join(map(content_text, item.content or ()))
        if seal.field == "content":
            self.content.append({"type": "thinking", "thinking": [text_part(text)]})
        elif seal.field and text:
            self.reasoning_fields[seal.field] = self.reasoning_fields.get(seal.field, "") + text
        self.reasoning_details += seal.details
        if seal.extra:
            self.call_extras[seal.call or len(self.calls)] = seal.extra

    def add_call(self, call_id: str, call: JsonObject) -> None:
        """Add a call."""
        self.calls.append((call_id, call))

    def encode(self) -> list[JsonObject]:
        """Return the message, if anything was said in it."""
        content = [part for part in self.content if part != text_part("")]
        said = [part for part in content if part["type"] != "thinking"]
        if not (said or self.calls):
            return []
        message: JsonObject = {"role": "assistant", "content": collapse_content(content) or None}
        if len(content) == 1 and "refusal" in content[0]:
            message |= {"content": None, "refusal": content[0]["refusal"]}
        more: JsonObject = {
            "reasoning_details": self.reasoning_details,
            "tool_calls": self._calls_with_extras(),
        }
        return [message | self.reasoning_fields | drop_empty(more)]

    def _calls_with_extras(self) -> list[JsonObject]:
        """Return the calls with what belongs beside them; what is of no call here is left out."""
        return [
            call
            | drop_empty({"extra_content": self.call_extras.get(id) or self.call_extras.get(place)})
            for place, (id, call) in enumerate(self.calls)
        ]


def collapse_content(parts: list[JsonObject]) -> object:
    """Return one text as a string, and anything else as it is."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or ""


def text_part(text: str) -> JsonObject:
    """Write text."""
    return {"type": "text", "text": text}


LEGAL_CALL_ID = re.compile("(?s).{0,40}")
"""How long OpenAI lets the id of a call be."""

SHORT_CALL_ID = re.compile("[a-zA-Z0-9]{9}")


class ChatQuirks(Struct, frozen=True, kw_only=True):
    """What servers that speak this dialect differ in."""

    system_role: str = "system"
    """The role of instructions."""
    max_tokens_field: str = "max_tokens"
    """The name of the limit on what is written."""
    has_openai_extensions: bool = False
    """Whether it is OpenAI's own implementation, with custom tools, refusals and allowed tools."""
    seed_field: str = "seed"
    """The name of the seed."""
    requests_stream_usage: bool = True
    """Whether a stream has to be asked for its usage."""
    has_short_call_ids: bool = False
    """Whether the id of a call is nine letters and digits, neither more nor less."""
    reasoning_field: str = ""
    """The field in which thinking goes back that is not sealed; mostly it does not."""


class MessagesEncoder:
    """Writes one conversation."""

    def __init__(self, prompt: Prompt, quirks: ChatQuirks) -> None:
        self._prompt = prompt
        self._quirks = quirks
        self._messages: list[JsonObject] = []

    def encode(self) -> list[JsonObject]:
        """Return the messages, instructions first; raises RequestError."""
        if self._prompt.request.instructions:
            self._add_message(self._quirks.system_role, self._prompt.request.instructions)
        story = split_turns(self._prompt.items)
        thinks = Reasoning in map(type, self._prompt.items)
        replays = turns_with_reasoning(story) if thinks else repeat(False)
        for speech, is_replayed in zip(story, replays, strict=False):
            match speech.role:
                case "assistant":
                    self._add_assistant(speech.items, with_reasoning=is_replayed)
                case "tool":
                    self._add_outputs(speech.outputs)
                case "system":
                    self._add_messages(speech.items, self._quirks.system_role, encode_system_text)
                case "user":
                    self._add_messages(speech.items, "user", self._encode_part)
        if not self._messages:
            raise self._prompt.unsupported_error(EMPTY_CONVERSATION, "input")
        return self._messages

    def _add_message(self, role: str, content: object, **more: object) -> None:
        self._messages.append({"role": role, "content": content, **more})

    def _add_messages(
        self, items: Sequence[Item], role: str, write: Callable[[Content], list[JsonObject]]
    ) -> None:
        for item in items:
            if isinstance(item, Message):
                self._add_message(role, collapse_content(encode_pieces(self._prompt, item, write)))

    # --- the assistant ---

    def _add_assistant(self, items: Sequence[Item], *, with_reasoning: bool) -> None:
        turn = AssistantMessage()
        for item in items:
            match item:
                case Message():
                    turn.add_content(self._encode_parts(item))
                case FunctionCall():
                    call = self._encode_call(item.call_id, item.name, item.arguments)
                    turn.add_call(item.call_id, call)
                case Reasoning() if with_reasoning:
                    turn.add_reasoning(item, self._read_seal(item))
                case ExtensionItem(type=t) if t == CUSTOM_TOOL_CALL:
                    custom = decode_custom_call(item)
                    turn.add_call(custom.call_id, self._encode_custom_call(custom))
                case _:
                    pass
        self._messages += turn.encode()

    def _read_seal(self, item: Reasoning) -> ChatSeal:
        return decode_as(ChatSeal, item.encrypted_content) or ChatSeal(
            field=self._quirks.reasoning_field
        )

    def _encode_call(self, call_id: str, name: str, arguments: str) -> JsonObject:
        given = (
            arguments or "{}"
            if self._quirks.has_openai_extensions
            else normalize_arguments(arguments)
        )
        function = {"name": make_legal_name(name), "arguments": given}
        return {"id": self._legal_call_id(call_id), "type": "function", "function": function}

    def _encode_custom_call(self, call: CustomCallFields) -> JsonObject:
        if not self._quirks.has_openai_extensions:
            return self._encode_call(call.call_id, call.name, to_json_text({"input": call.input}))
        custom = {"name": make_legal_name(call.name), "input": call.input}
        return {"id": self._legal_call_id(call.call_id), "type": "custom", "custom": custom}

    def _legal_call_id(self, call_id: str) -> str:
        if self._quirks.has_short_call_ids:
            return make_legal_id(call_id, SHORT_CALL_ID, "", 9)
        return make_legal_id(call_id, LEGAL_CALL_ID)

    # --- the tools ---

    def _add_outputs(self, outputs: Iterable[FunctionCallOutput]) -> None:
        shown: list[JsonObject] = []
        for item in outputs:
            content = item.output
            if not isinstance(content, str):
                written = self._encode_parts(item)
                others = [part for part in written if part["type"] != "text"]
                written = [part for part in written if part["type"] == "text"]
                if others:
                    shown += [text_part(f"Attached to the output of {item.call_id}:"), *others]
                    written.append(text_part("[The next user message holds what is attached.]"))
                content = collapse_content(written)
            self._add_message("tool", content, tool_call_id=self._legal_call_id(item.call_id))
        if shown:
            self._add_message("user", shown)

    # --- content ---

    def _encode_parts(self, item: Message | FunctionCallOutput) -> list[JsonObject]:
        return encode_pieces(self._prompt, item, self._encode_part)

    def _encode_part(self, part: Content) -> list[JsonObject]:
        match part:
            case InputImage():
                return [self._encode_image(part)]
            case InputFile():
                return [{"type": "file", "file": encode_file(part)}]
            case InputVideo():
                return [{"type": "video_url", "video_url": {"url": part.video_url}}]
            case ExtensionContent():
                return [{"type": "input_audio", "input_audio": part.get("input_audio")}]
            case RefusalContent() if self._quirks.has_openai_extensions:
                return [{"type": "refusal", "refusal": part.refusal}]
            case _:
                return [text_part(content_text(part))]

    def _encode_image(self, part: InputImage) -> JsonObject:
        image = read_image(part)
        if image.id:
            raise ValueError("images have no ids in this dialect; send a data URL or an address")
        fields: JsonObject = {"url": part.image_url if image.url else image.data_url}
        if part.detail != "auto":
            fields["detail"] = part.detail
        return {"type": "image_url", "image_url": fields}


def turns_with_reasoning(turns: Sequence[ConversationTurn]) -> list[bool]:
    """Tell of each speech whether its thinking goes back."""
    numbers = list(accumulate(turn.role == "user" for turn in turns))
    kept = {
        number for number, turn in zip(numbers, turns, strict=True) if any(map(is_call, turn.items))
    }
    return [number in kept or number == numbers[-1] for number in numbers]


def is_call(item: Item) -> bool:
    """Tell whether an item is a call of a function or of a custom tool."""
    return isinstance(item, FunctionCall) or item.type == CUSTOM_TOOL_CALL


def encode_system_text(part: Content) -> list[JsonObject]:
    """Write a piece of what the system says; raises ValueError."""
    return [text_part(system_text(part))]


def encode_file(part: InputFile) -> JsonObject:
    """Write a file; raises ValueError."""
    file = read_file(part)
    if file.id:
        return {"file_id": file.id}
    name = file.name or f"file{mimetypes.guess_extension(file.media_type) or ''}"
    return {"filename": name, "file_data": file.data_url}
