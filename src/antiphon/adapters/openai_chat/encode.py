"""A conversation as chat messages.

Dialect notes: one turn of the assistant is one message, with its text before its calls. A tool message holds only text,
so images and files of an output follow in a user message. Reasoning is sent back to the server it came from, in the
field it came in, if its turn made calls or if it belongs to the current turn: DeepSeek requires it then and ignores it
otherwise. DeepSeek also gets reasoning without our seal, as clients of other servers send it. Most servers parse the
arguments of earlier calls and reject the whole conversation if one of them is not a JSON object: for all but OpenAI it
is wrapped in one.
"""

import mimetypes
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

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
from antiphon.adapters.json_access import decode_as, drop_empty, normalize_arguments, to_json_text
from antiphon.adapters.media import read_file, read_image
from antiphon.adapters.openai_chat.servers import ChatServer
from antiphon.adapters.openai_chat.wire_types import ChatSeal
from antiphon.protocol import items
from antiphon.protocol.struct import JsonObject
from antiphon.protocol.tools import CustomCallFields, decode_custom_call

LEGAL_CALL_ID = re.compile("(?s).{0,40}")
"""OpenAI rejects ids of calls that are longer."""

SHORT_CALL_ID = re.compile("[a-zA-Z0-9]{9}")


class ChatMessagesEncoder:
    """Encodes one conversation."""

    def __init__(self, prompt: Prompt, server: ChatServer) -> None:
        self._prompt = prompt
        self._server = server
        self._messages: list[JsonObject] = []

    def encode(self) -> list[JsonObject]:
        """Return the messages, instructions first; raises RequestError."""
        if self._prompt.request.instructions:
            self._add_message(self._server.system_role, self._prompt.request.instructions)
        turns = split_turns(self._prompt.items)
        for turn, with_reasoning in zip(turns, turns_with_reasoning(turns), strict=True):
            match turn.role:
                case "assistant":
                    self._add_assistant(turn, with_reasoning=with_reasoning)
                case "tool":
                    self._add_outputs(turn.outputs)
                case "system":
                    role = self._server.system_role
                    self._add_messages(turn, role, lambda part: [text_part(system_text(part))])
                case "user":
                    self._add_messages(turn, "user", self._encode_part)
        if not self._messages:
            raise self._prompt.unsupported_error(EMPTY_CONVERSATION, "input")
        return self._messages

    def _add_message(self, role: str, content: object, **more: object) -> None:
        self._messages.append({"role": role, "content": content, **more})

    def _add_messages(
        self, turn: ConversationTurn, role: str, encode: Callable[[items.Content], list[JsonObject]]
    ) -> None:
        for item in turn.items:
            if isinstance(item, items.Message):
                self._add_message(role, collapse_content(encode_pieces(self._prompt, item, encode)))

    def _add_assistant(self, turn: ConversationTurn, *, with_reasoning: bool) -> None:
        message = AssistantMessage()
        for item in turn.items:
            match item:
                case items.Message():
                    message.content += self._encode_parts(item)
                case items.FunctionCall():
                    call = self._encode_call(item.call_id, item.name, item.arguments)
                    message.calls.append((item.call_id, call))
                case items.Reasoning() if with_reasoning:
                    seal = decode_as(ChatSeal, item.encrypted_content)
                    message.add_reasoning(item, seal or ChatSeal(field=self._server.reasoning_field))
                case items.ExtensionItem(type=t) if t == items.CUSTOM_TOOL_CALL:
                    custom = decode_custom_call(item)
                    message.calls.append((custom.call_id, self._encode_custom_call(custom)))
                case _:
                    pass
        self._messages += message.encode()

    def _encode_call(self, call_id: str, name: str, arguments: str) -> JsonObject:
        if self._server.has_openai_extensions:
            arguments = arguments or "{}"
        else:
            arguments = normalize_arguments(arguments)
        function = {"name": make_legal_name(name), "arguments": arguments}
        return {"id": self._legal_call_id(call_id), "type": "function", "function": function}

    def _encode_custom_call(self, call: CustomCallFields) -> JsonObject:
        if not self._server.has_openai_extensions:
            return self._encode_call(call.call_id, call.name, to_json_text({"input": call.input}))
        custom = {"name": make_legal_name(call.name), "input": call.input}
        return {"id": self._legal_call_id(call.call_id), "type": "custom", "custom": custom}

    def _legal_call_id(self, call_id: str) -> str:
        if self._server.has_short_call_ids:
            return make_legal_id(call_id, SHORT_CALL_ID, "", 9)
        return make_legal_id(call_id, LEGAL_CALL_ID)

    def _add_outputs(self, outputs: Iterable[items.FunctionCallOutput]) -> None:
        attachments: list[JsonObject] = []
        for item in outputs:
            content = item.output
            if not isinstance(content, str):
                parts = self._encode_parts(item)
                texts = [part for part in parts if part["type"] == "text"]
                if media := [part for part in parts if part["type"] != "text"]:
                    attachments += [text_part(f"Attached to the output of {item.call_id}:"), *media]
                    texts.append(text_part("[The next user message holds what is attached.]"))
                content = collapse_content(texts)
            self._add_message("tool", content, tool_call_id=self._legal_call_id(item.call_id))
        # After all outputs: servers reject a user message between two outputs of one turn.
        if attachments:
            self._add_message("user", attachments)

    def _encode_parts(self, item: items.Message | items.FunctionCallOutput) -> list[JsonObject]:
        return encode_pieces(self._prompt, item, self._encode_part)

    def _encode_part(self, part: items.Content) -> list[JsonObject]:
        match part:
            case items.InputImage():
                return [self._encode_image(part)]
            case items.InputFile():
                return [{"type": "file", "file": encode_file(part)}]
            case items.InputVideo():
                return [{"type": "video_url", "video_url": {"url": part.video_url}}]
            case items.ExtensionContent():
                return [{"type": "input_audio", "input_audio": part.get("input_audio")}]
            case items.RefusalContent() if self._server.has_openai_extensions:
                return [{"type": "refusal", "refusal": part.refusal}]
            case _:
                return [text_part(items.content_text(part))]

    def _encode_image(self, part: items.InputImage) -> JsonObject:
        image = read_image(part)
        if image.id:
            raise ValueError("images have no ids in this dialect; send a data URL or an address")
        fields: JsonObject = {"url": part.image_url if image.url else image.data_url}
        if part.detail != "auto":
            fields["detail"] = part.detail
        return {"type": "image_url", "image_url": fields}


class AssistantMessage:
    """One message of the assistant, built from the items of its turn."""

    def __init__(self) -> None:
        self.content: list[JsonObject] = []
        self.calls: list[tuple[str, JsonObject]] = []
        """The calls, each with the `call_id` of its item."""
        self.reasoning_fields: dict[str, str] = {}
        self.reasoning_details: list[JsonObject] = []
        self.call_extras: dict[str | int, JsonObject] = {}
        """The `extra_content` of calls, by `call_id` or by the call's position."""

    def add_reasoning(self, item: items.Reasoning, seal: ChatSeal) -> None:
        """Add reasoning in the field it came in, with the details that came with it."""
        text = "".join(map(items.content_text, item.content or ()))
        # Mistral's reasoning is a content piece. All other servers have a field beside the content.
        if seal.field == "content":
            self.content.append({"type": "thinking", "thinking": [text_part(text)]})
        elif seal.field and text:
            self.reasoning_fields[seal.field] = self.reasoning_fields.get(seal.field, "") + text
        self.reasoning_details += seal.details
        if seal.extra:
            self.call_extras[seal.call or len(self.calls)] = seal.extra

    def encode(self) -> list[JsonObject]:
        """Return the message in a list; an empty list if there is neither text nor a call."""
        content = [part for part in self.content if part != text_part("")]
        if not (self.calls or any(part["type"] != "thinking" for part in content)):
            return []
        message: JsonObject = {"role": "assistant", "content": collapse_content(content) or None}
        if len(content) == 1 and "refusal" in content[0]:
            message |= {"content": None, "refusal": content[0]["refusal"]}
        extras = self.call_extras  # those of unknown calls are dropped
        calls = [
            call | drop_empty({"extra_content": extras.get(call_id) or extras.get(position)})
            for position, (call_id, call) in enumerate(self.calls)
        ]
        more: JsonObject = {"reasoning_details": self.reasoning_details, "tool_calls": calls}
        return [message | self.reasoning_fields | drop_empty(more)]


def collapse_content(parts: list[JsonObject]) -> object:
    """Return a single text as a string, and anything else as a list of parts."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or ""


def text_part(text: str) -> JsonObject:
    """Encode a text."""
    return {"type": "text", "text": text}


def turns_with_reasoning(turns: Sequence[ConversationTurn]) -> list[bool]:
    """Return for each turn whether its reasoning is sent back.

    Everything between two user turns belongs together. Its reasoning is sent if it has calls, or if
    no user turn follows.
    """
    # The number of a group is the count of user turns up to it.
    numbers = list(accumulate(turn.role == "user" for turn in turns))
    with_calls = {number for number, turn in zip(numbers, turns, strict=True) if any(map(items.call_key, turn.items))}
    return [number in with_calls or number == numbers[-1] for number in numbers]


def encode_file(part: items.InputFile) -> JsonObject:
    """Encode a file; raises ValueError."""
    file = read_file(part)
    if file.id:
        return {"file_id": file.id}
    name = file.name or f"file{mimetypes.guess_extension(file.media_type) or ''}"
    return {"filename": name, "file_data": file.data_url}
