"""Items as LangChain's messages, and the messages that a runnable streams as parts."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from msgspec import Struct, field
from msgspec.structs import replace

from antiphon.adapters.conversation import ConversationTurn, split_turns
from antiphon.adapters.media import DATA_URL, Media, read_file
from antiphon.agents.turn import Turn
from antiphon.bridges.conversation import paired_items
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    CUSTOM_TOOL_CALL,
    Content,
    ExtensionContent,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    Message,
    UrlCitation,
    content_text,
)
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import InvalidValueError, decode
from antiphon.protocol.tools import decode_custom_call

MakeInput = Callable[[Turn], object]
"""Makes the input of a runnable from a turn."""

Block = dict[str, Any]
MessageContent = str | list[str | Block]

INPUT_ID = "input-"
"""How the ids of messages begin that the client sent: LangGraph streams only messages that it has not seen."""


def encode_conversation(turn: Turn, skipped: str) -> list[BaseMessage]:
    """Return the instructions and the whole conversation as messages.

    Items whose call_id begins with `skipped` are left out. Reasoning is left out too: most models accept only their
    own, and the framework sends a message to whatever model a node uses.
    """
    messages: list[BaseMessage] = [SystemMessage(turn.instructions)] if turn.instructions else []
    items = [item for item in paired_items(turn) if not has_call_id(item, skipped)]
    for one in split_turns(items):
        messages += encode_turn(one)
    for index, message in enumerate(messages):
        message.id = f"{INPUT_ID}{index}"
    return messages


def has_call_id(item: Item, prefix: str) -> bool:
    """Tell whether an item is a call or an output whose call_id begins like this."""
    return isinstance(item, FunctionCall | FunctionCallOutput) and item.call_id.startswith(prefix)


def encode_turn(turn: ConversationTurn) -> Iterator[BaseMessage]:
    """Yield the messages of adjacent items of one role."""
    match turn.role:
        case "assistant":
            yield from encode_assistant(turn.items)
        case "tool":
            for output in turn.outputs:
                text = output.output if isinstance(output.output, str) else encode_content(output.output)
                yield ToolMessage(text, tool_call_id=output.call_id)  # pyright: ignore[reportArgumentType]
        case role:
            kind = SystemMessage if role == "system" else HumanMessage
            for item in turn.items:
                if isinstance(item, Message):
                    yield kind(encode_content(item.content))  # pyright: ignore[reportArgumentType]


def encode_assistant(items: Iterable[Item]) -> Iterator[AIMessage]:
    """Yield the messages of the assistant: calls belong to the text before them."""
    message: AIMessage | None = None
    for item in items:
        if isinstance(item, Message):
            if message:
                yield message
            message = AIMessage(item.text)
        elif call := encode_call(item):
            message = message or AIMessage("")
            message.tool_calls.append(call)  # pyright: ignore[reportArgumentType]
    if message:
        yield message


def encode_call(item: Item) -> Block | None:
    """Return a call as LangChain's; None for any other item."""
    match item:
        case FunctionCall(name=name, call_id=call_id, arguments=arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "args": decode_arguments(arguments)}
        case ExtensionItem(type=type) if type == CUSTOM_TOOL_CALL:
            call = decode_custom_call(item)
            return {"type": "tool_call", "id": call.call_id, "name": call.name, "args": {"input": call.input}}
        case _:
            return None


def decode_arguments(text: str) -> Block:
    """Return arguments as an object; a model may have written something else."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return cast("Block", value) if isinstance(value, dict) else {"arguments": value}


def encode_content(content: Sequence[Content]) -> MessageContent:
    """Return content as text if it is only that, and else as blocks that every LangChain model reads."""
    blocks = [encode_block(part) for part in content]
    if all(block["type"] == "text" for block in blocks):
        return "".join(block["text"] for block in blocks)
    return list(blocks)


def encode_block(part: Content) -> Block:
    """Return a piece of content as a block; raises RequestError for one that cannot be sent."""
    match part:
        case InputImage(image_url=str() as url, detail=detail):
            return {"type": "image_url", "image_url": {"url": url, "detail": detail}}
        case InputFile():
            try:
                return encode_file(read_file(part))
            except ValueError as error:
                raise RequestError(f"This file cannot be sent: {error}.", param="input") from None
        case InputVideo(video_url=url):
            head = DATA_URL.match(url)
            if head is None:
                return {"type": "video", "url": url}
            return {"type": "video", "base64": url[head.end() :], "mime_type": head["media_type"] or "video/mp4"}
        case InputImage() | ExtensionContent():  # an image by the id of a file, or audio
            message = f"This '{part.type}' cannot be sent to the agent. Send text, a file, or an image by its URL."
            raise RequestError(message, param="input")
        case _:
            return {"type": "text", "text": content_text(part)}


def encode_file(media: Media) -> Block:
    """Return a file as LangChain's block."""
    block: Block = {"type": "file", "mime_type": media.media_type or "application/octet-stream"}
    if media.id:
        block["file_id"] = media.id
    elif media.url:
        block["url"] = media.url
    else:
        block["base64"] = media.data
    return block | ({"filename": media.name} if media.name else {})


class OpenMessage(Struct):
    """A message of which pieces are arriving."""

    text: str = ""
    call_keys: list[parts.Key] = field(default_factory=list[parts.Key])
    """The keys of its calls that have not ended; the last one is that of a piece without an index."""
    waiting: list[Part] = field(default_factory=list[Part])
    """Its parts, while another message is streamed."""
    ended: bool = False


class MessageReader:
    """Turns the messages of one run into parts.

    Nodes may run in parallel. The messages of a response come one after the other, so the pieces of one message wait
    while another is streamed.
    """

    def __init__(self, unanswered: Iterable[str] = ()) -> None:
        self._unanswered = set(unanswered)
        """The call_ids that the client has seen, and whose outputs it has not."""
        self._messages: dict[str, OpenMessage] = {}
        """The messages that are not yet complete, in the order in which they began."""
        self._current: OpenMessage | None = None
        """The message that is streamed now."""
        self._streamed: dict[str, list[OpenMessage]] = {}
        """The messages that models have streamed, by the run of the node."""
        self.has_output = False
        """Whether there has been text or a call."""

    def read(self, message: BaseMessage, node_run: str = "") -> Iterator[Part]:
        """Yield the parts of a message, or of a piece of one; `node_run` tells the runs of nodes apart."""
        id = message.id or uuid4().hex
        entry = self._messages.get(id) or OpenMessage()
        match message:
            case AIMessageChunk():
                found = [*self._read_chunk(message, id, entry, node_run)]
            case AIMessage():
                found = [*self._read_message(message, id, node_run)]
            case ToolMessage():
                found = [*self._read_output(message)]
            case _:
                return
        entry.ended = not isinstance(message, AIMessageChunk) or message.chunk_position == "last"
        if entry.ended:
            found += [parts.Call(key, complete=True) for key in entry.call_keys]
        if found or entry.ended:
            self._messages[id] = entry
            entry.waiting += found
            yield from self._release(id, entry)

    def end(self) -> Iterator[Part]:
        """Yield what still waits for a message that has never ended."""
        for entry in self._messages.values():
            yield from entry.waiting

    def _release(self, id: str, entry: OpenMessage) -> Iterator[Part]:
        """Yield what need not wait any more, now that a message has new parts."""
        self._current = self._current or entry
        if self._current is not entry:
            return
        yield from entry.waiting
        entry.waiting = []
        while self._current and self._current.ended:
            self._messages = {id: other for id, other in self._messages.items() if other is not self._current}
            self._current = next(iter(self._messages.values()), None)
            if self._current:
                yield from self._current.waiting
                self._current.waiting = []

    def _read_chunk(self, chunk: AIMessageChunk, id: str, entry: OpenMessage, node_run: str) -> Iterator[Part]:
        for part in self._read_content(chunk, id):
            if isinstance(part, parts.Text):
                if not entry.text:
                    self._streamed.setdefault(node_run, []).append(entry)
                entry.text += part.text
            yield part
        for piece in chunk.tool_call_chunks:
            index, name, arguments = piece.get("index"), piece["name"], piece["args"] or ""
            if name:
                key = f"{id}/{index if index is not None else piece['id']}"
                entry.call_keys.append(key)
                yield self._start_call(key, name, piece["id"] or "", arguments)
            elif entry.call_keys:
                yield parts.Call(f"{id}/{index}" if index is not None else entry.call_keys[-1], arguments=arguments)

    def _read_message(self, message: AIMessage, id: str, node_run: str) -> Iterator[Part]:
        """Yield the parts of a whole message, unless a model has streamed its text in the same node.

        Many nodes copy what their model has said into a message of their own.
        """
        if all(message.text != streamed.text for streamed in self._streamed.get(node_run, ())):
            yield from self._read_content(message, id)
        for call in message.tool_calls:
            if call["id"] not in self._unanswered:
                arguments = json.dumps(call["args"], ensure_ascii=False)
                started = self._start_call(f"{id}/{call['id']}", call["name"], call["id"] or "", arguments)
                yield replace(started, complete=True)

    def _read_content(self, message: AIMessage, id: str) -> Iterator[Part]:
        # Most pieces are only text, and reading blocks takes much longer.
        if isinstance(message.content, str):
            if thought := message.additional_kwargs.get("reasoning_content"):
                yield parts.Reasoning(str(thought), key=id)
            if message.content:
                self.has_output = True
                yield parts.Text(message.content, key=id)
            return
        for raw in message.content:
            if isinstance(raw, dict):
                yield from read_openai_block(raw, id)
        for block in cast("list[Block]", message.content_blocks):
            match block:
                case {"type": "text"}:
                    self.has_output = True
                    yield from read_text_block(block, id)
                case {"type": "reasoning", "reasoning": str() as text} if not has_summary(message):
                    yield parts.Reasoning(text, key=f"{id}/{block.get('index', '')}")
                case _:
                    pass

    def _start_call(self, key: parts.Key, name: str, call_id: str, arguments: str) -> parts.Call:
        self.has_output = True
        self._unanswered.add(call_id)
        return parts.Call(key, name, arguments, call_id)

    def _read_output(self, message: ToolMessage) -> Iterator[Part]:
        """Yield the output of a call that the client has seen."""
        if message.tool_call_id in self._unanswered:
            self._unanswered.discard(message.tool_call_id)
            output = decode_output(cast("MessageContent", message.content))
            yield parts.Whole(FunctionCallOutput(call_id=message.tool_call_id, output=output))


def has_summary(message: AIMessage) -> bool:
    """Tell whether a message holds OpenAI's reasoning summaries."""
    return any(isinstance(raw, dict) and "summary" in raw for raw in message.content)


def read_openai_block(raw: Block, id: str) -> Iterator[Part]:
    """Yield what LangChain's standard blocks do not have: the parts of a reasoning summary, and refusals."""
    match raw:
        case {"type": "reasoning", "summary": [*pieces]}:
            for index, piece in enumerate(cast("list[Block]", pieces)):
                key = f"{id}/{raw.get('index', '')}"
                yield parts.Reasoning(summary=piece["text"], key=key, part=piece.get("index", index))
        case {"type": "refusal", "refusal": str() as text}:
            yield parts.Refusal(text, key=id)
        case _:
            pass


def read_text_block(block: Block, id: str) -> Iterator[Part]:
    """Yield a block's text and its citations."""
    key = f"{id}/{block.get('index', '')}"
    yield parts.Text(block["text"], key=key)
    for annotation in block.get("annotations") or ():
        if citation := read_citation(annotation):
            yield parts.Annotation(citation, key=key)


def decode_output(content: MessageContent) -> str | list[Content]:
    """Return the content of a tool's output: text, and images if there are any."""
    if isinstance(content, str):
        return content
    decoded: list[Content] = []
    for block in content:
        match block:
            case str():
                decoded.append(InputText(text=block))
            case {"type": "image_url", "image_url": {"url": str() as url}} | {"type": "image", "url": str() as url}:
                decoded.append(InputImage(image_url=url))
            case {"type": "image", "base64": str() as data}:
                decoded.append(InputImage(image_url=f"data:{block.get('mime_type', 'image/png')};base64,{data}"))
            case {"text": str() as text}:
                decoded.append(InputText(text=text))
            case _:
                decoded.append(InputText(text=json.dumps(block, default=str)))
    if all(isinstance(part, InputText) for part in decoded):
        return "".join(map(content_text, decoded))
    return decoded


def read_citation(annotation: Mapping[str, object]) -> UrlCitation | None:
    """Return the citation of a web page; None for any other annotation."""
    fields = {name: annotation.get(name) for name in ("url", "start_index", "end_index")}
    try:
        return decode(UrlCitation, fields | {"type": "url_citation", "title": annotation.get("title") or ""})
    except InvalidValueError:
        return None
