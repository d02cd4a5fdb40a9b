"""What Bedrock answers, heard: messages of an event stream in, parts out.

Dialect notes: text and thinking have no start event, only calls do; a block's index is our key. The
stop reason comes before the usage. Citations belong to the text of their block, all of it. What
seals a thought (a signature, or the redacted thought itself) is kept with the very text it seals.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import cast

from antiphon.adapters.base import MAX_EVENT, Adapter, Decoder, Prompt, finish
from antiphon.adapters.bedrock.models import summarises
from antiphon.adapters.bedrock.shapes import (
    Block,
    Citation,
    Event,
    ReasoningText,
    Sealed,
    Thought,
    ToolUse,
    Usage,
    read_body,
    read_event,
)
from antiphon.adapters.faults import Fault
from antiphon.adapters.fields import fields_of, filled, json_text
from antiphon.adapters.recall import dropped, recalled
from antiphon.core import parts
from antiphon.core.content import Annotation, ExtensionAnnotation, UrlCitation
from antiphon.core.parts import Part
from antiphon.core.surrogates import mend
from antiphon.wire import eventstream, json
from antiphon.wire.eventstream import Message

REASONS: Mapping[str, parts.Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
EVENTS = frozenset(
    "contentBlockStart contentBlockDelta contentBlockStop messageStop metadata".split()
)
MALFORMED = {
    "malformed_model_output": "what the model wrote is malformed.",
    "malformed_tool_use": "a call that the model made is malformed.",
}
"""Stop reasons that are failures."""

STATUSES = {
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "modeltimeoutexception": 408,
    "modelerrorexception": 424,
    "modelstreamerrorexception": 424,
    "throttlingexception": 429,
    "modelnotreadyexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
}
"""What an exception inside a stream would have been before it."""


class BedrockDecoder(Decoder):
    """Hears one answer of Bedrock's."""

    def __init__(self, adapter: Adapter, prompt: Prompt) -> None:
        super().__init__(adapter, eventstream.Decoder(MAX_EVENT))
        self._summarised = summarises(prompt)
        self._counts_all = "openai." in prompt.model
        self._may_call = not recalled(prompt)
        self._calls: set[int] = set()
        self._block = -1
        self._length = 0
        self._thought: list[str] = []
        self._signature = ""
        self._redacted = b""
        self._notes: list[Citation] = []

    def read(self, chunk: object) -> Sequence[Part]:
        """Hear one message."""
        message = cast("Message", chunk)
        kind = message.headers.get(":event-type")
        if kind is None:
            return self._excepted(message)
        if kind not in EVENTS:
            return ()
        event = read_event(message.payload)
        if event.delta:
            return self._grown(event.content_block_index, event.delta)
        return self._marked(str(kind), event)

    def _marked(self, kind: str, event: Event) -> Sequence[Part]:
        """Hear an event that says where the answer stands."""
        match kind:
            case "contentBlockStart" if event.start and event.start.tool_use:
                return self._called(event.content_block_index, event.start.tool_use)
            case "contentBlockStop":
                return self._stopped(event.content_block_index)
            case "messageStop":
                return self._finish(event.stop_reason)
            case "metadata" if event.usage:
                return (self._used(event.usage),)
            case _:
                return ()

    def read_whole(self, body: bytes) -> Sequence[Part]:
        """Hear a whole answer."""
        whole = read_body(body)
        said = whole.output.message and whole.output.message.content
        told: list[Part] = []
        for index, block in enumerate(said or ()):
            self._whole_block(index, block, told)
        if whole.usage:
            told.append(self._used(whole.usage))
        return [*told, *self._finish(whole.stop_reason)]

    # --- blocks ---

    def _begun(self, index: int) -> Sequence[Part]:
        """Begin another block, which shows that those before it were not cut."""
        self._block, self._length = index, 0
        self._thought, self._signature, self._redacted = [], "", b""
        return self.settled()

    def _grown(self, index: int, delta: Block) -> Sequence[Part]:
        if index != self._block:
            return [*self._begun(index), *self._grown(index, delta)]
        if delta.text is not None:
            self._length += len(delta.text)
            return (parts.Text(delta.text, index),)
        if delta.tool_use:
            more = delta.tool_use.input
            if index in self._calls and isinstance(more, str) and more:
                return (parts.Call(index, arguments=more),)
            return ()
        if delta.reasoning_content:
            return self._thinking(index, delta.reasoning_content)
        if delta.citation:
            self._notes.append(delta.citation)
        return () if delta.image is None else self.left_out()

    def _called(self, index: int, call: ToolUse) -> Sequence[Part]:
        told = self._begun(index)
        if call.type == "server_tool_use":  # the provider's own affair
            return told
        if not self._may_call:
            return [*told, dropped(call.name)]
        self._calls.add(index)
        return [*told, parts.Call(index, call.name, call_id=call.tool_use_id)]

    def _stopped(self, index: int) -> Sequence[Part]:
        if index != self._block:
            return ()
        if index in self._calls:
            self.ended_calls.append(index)
            return ()
        notes, self._notes = self._notes, []
        return [noted(note, index, self._length) for note in notes]

    def _thinking(self, index: int, thought: Thought) -> Sequence[Part]:
        if thought.text:
            self._thought.append(thought.text)
            if self._summarised:
                return (parts.Reasoning(key=index, summary=thought.text),)
            return (parts.Reasoning(thought.text, index),)
        if thought.signature:
            self._signature += thought.signature
        elif thought.redacted_content:
            self._redacted += base64.b64decode(thought.redacted_content)
        else:
            return ()
        redacted = base64.b64encode(self._redacted).decode()
        sealed = json_text(Sealed(mend("".join(self._thought)), self._signature, redacted))
        return (parts.Reasoning(key=index, encrypted_content=sealed),)

    def _whole_block(self, index: int, block: Block, told: list[Part]) -> None:
        if call := block.tool_use:
            told += self._called(index, call)
            if index in self._calls:
                given = json_text(call.input) if call.input else ""
                told += [parts.Call(index, arguments=given), *self._stopped(index)]
        elif thought := block.reasoning_content:
            proven = thought.reasoning_text or ReasoningText()
            for piece in (
                Block(reasoning_content=Thought(text=proven.text)),
                Block(reasoning_content=Thought(signature=proven.signature)),
                Block(reasoning_content=Thought(redacted_content=thought.redacted_content)),
            ):
                told += self._grown(index, piece)
        elif cited := block.citations_content:
            for piece in cited.content or ():
                told += self._grown(index, piece)
            self._notes += cited.citations or ()
            told += self._stopped(index)
        else:
            told += self._grown(index, block)

    # --- the end ---

    def _finish(self, reason: str | None) -> Sequence[Part]:
        if reason in MALFORMED:
            return (self.adapter.failure(Fault(MALFORMED[reason], "model_error", reason)),)
        return self.ending(finish(reason, REASONS, called=bool(self._calls)))

    def _used(self, usage: Usage) -> Part:
        read, written = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
        given = usage.input_tokens or 0
        # OpenAI's models on Bedrock count the cache twice in streams: inside the input as well.
        twice = self._counts_all and given >= read + written
        total = given if twice else given + read + written
        return parts.Usage(total, usage.output_tokens or 0, read)

    def _excepted(self, message: Message) -> Sequence[Part]:
        """Tell an exception, or the error of a connection, that takes the place of an event."""
        headers = message.headers
        match headers.get(":message-type"):
            case "exception":
                name = str(headers.get(":exception-type", ""))
                value = json.decode_lenient(message.payload or b"{}")
            case "error":
                name = str(headers.get(":error-code", ""))
                value = {"message": headers.get(":error-message")}
            case _:
                return ()
        status = STATUSES.get(name.lower(), 502)
        fault = self.adapter.fault(status, {"x-amzn-errortype": name[:1].upper() + name[1:]}, value)
        return (self.adapter.failure(fault, status),)


def noted(citation: Citation, key: int, length: int) -> Part:
    """Write a citation as a note on all the text of its block."""
    location = citation.location or {}
    url = fields_of(location.get("web")).get("url", citation.source)
    note: Annotation
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        title = citation.title or url
        note = UrlCitation(url=url, title=title, start_index=0, end_index=length)
    else:
        fields = {"title": citation.title, "source": citation.source, "location": location}
        note = ExtensionAnnotation(type="bedrock:citation", extra=filled(fields))
    return parts.Annotation(note, key)
