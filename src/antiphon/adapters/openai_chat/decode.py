"""Decodes chat chunks and whole answers into parts.

Dialect notes: a whole answer is one chunk whose choice has a `message` instead of a `delta`. A call's id and name come
once, its arguments in fragments, and only the index says which call a fragment belongs to; servers repeat, omit and
reuse all three, which `ToolCalls` handles. Usage may come in any chunk, usually in a last one without choices. `[DONE]`
ends a stream, even one without a finish reason.

Reasoning comes in one of three fields, and is sent back in the same one (`ChatSeal`). OpenRouter repeats it in the
message's `reasoning_details`, with signatures; a stream splits one detail over several chunks. Gemini signs calls in
their `extra_content` and rejects a conversation without these signatures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from antiphon.adapters.base import MAX_EVENT_BYTES, TRUNCATION_REASONS, Adapter, Decoder
from antiphon.adapters.errors import parse_error
from antiphon.adapters.json_access import decode_as, to_json_text
from antiphon.adapters.media import convert_logprobs
from antiphon.adapters.openai_chat import wire_types
from antiphon.adapters.openai_chat.fast_text import ChatTextFastPath
from antiphon.adapters.openai_chat.wire_types import ChatSeal, Logprobs, MessageDelta, ToolCallFragment, read_chunk
from antiphon.protocol import items, parts
from antiphon.protocol.items import CUSTOM_TOOL_CALL, MAX_CALL_ID_LENGTH, ExtensionItem, ItemStatus
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import JsonObject, as_array, as_object, as_string, drop_none
from antiphon.protocol.surrogates import repair_surrogates, repair_value
from antiphon.wire import json, sse

DETAIL_TEXT_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The types of details that are split over chunks, and the field with their text."""


def seal_part(seal: ChatSeal, key: parts.Key = 0) -> parts.Reasoning:
    """Return the part for a seal, whose strings may contain split surrogate pairs."""
    return parts.Reasoning(key=key, encrypted_content=to_json_text(repair_value(seal)))


def is_continued(detail: JsonObject, fragment: JsonObject) -> bool:
    """Return whether a fragment continues a detail. A signature ends a detail."""
    same = all(detail.get(name) == fragment.get(name) for name in ("type", "index"))
    counted = isinstance(fragment.get("index"), int) and as_string(fragment.get("type")) in DETAIL_TEXT_FIELDS
    return same and counted and not detail.get("signature")


def extend_detail(detail: JsonObject, fragment: JsonObject) -> JsonObject:
    """Return a detail with one more fragment. Its text is a bytearray until `finish_detail`."""
    text_field = DETAIL_TEXT_FIELDS[as_string(detail["type"])]
    text = detail.get(text_field)
    # Appending to a bytearray is linear; adding strings for every fragment would be quadratic.
    if not isinstance(text, bytearray):
        text = bytearray(as_string(text).encode(errors="surrogatepass"))
    # A fragment may end in half of a surrogate pair; the next one begins with the other half.
    text += as_string(fragment.get(text_field)).encode(errors="surrogatepass")
    return drop_none(detail | drop_none(fragment) | {text_field: text})


def finish_detail(detail: JsonObject) -> JsonObject:
    """Return a detail with its text as a string."""
    texts = {name: text for name, text in detail.items() if isinstance(text, bytearray)}
    return detail | {name: text.decode(errors="surrogatepass") for name, text in texts.items()}


@dataclass(slots=True)
class ReasoningState:
    """The reasoning of one answer while it is decoded."""

    last: Literal["", "reasoning", "text"] = ""
    """What was decoded last."""
    text_field: str = ""
    """The field of the last reasoning text."""
    details: list[JsonObject] = field(default_factory=list[JsonObject])
    """The details that were not emitted yet."""

    def add_text(self, text: str, field: str) -> parts.Reasoning:
        """Return the part for reasoning text. The first one carries the field in its seal."""
        # One item has one seal, so only its first part carries it.
        begun = self.last == "reasoning"
        self.last, self.text_field = "reasoning", field
        seal = None if begun else to_json_text(ChatSeal(field=field))
        return parts.Reasoning(text, encrypted_content=seal)

    def add_details(self, details: object) -> None:
        """Add details or fragments of them."""
        for fragment in filter(None, map(as_object, as_array(details))):
            if self.details and is_continued(self.details[-1], fragment):
                self.details[-1] = extend_detail(self.details[-1], fragment)
            else:
                self.details.append(fragment)

    @property
    def has_details_due(self) -> bool:
        """Whether details must be emitted before the next text. Details in the middle of a text
        wait for its end, because an item between two texts would split the message."""
        return bool(self.details) and self.last != "text"

    def flush(self) -> list[Part]:
        """Return the details received so far, because something else begins."""
        if not self.details:
            return []
        details, self.details = self.details, []
        return [seal_part(ChatSeal(field=self.text_field, details=list(map(finish_detail, details))))]


@dataclass(slots=True, kw_only=True)
class ToolCallState:
    """One call, as far as it has been received."""

    key: int
    id: str
    is_custom: bool
    used_ids: set[str]
    """The ids of all calls that were emitted."""
    call_id: str = ""
    """The id with which the call was emitted; empty if it has no usable id."""
    name: str = ""
    argument_pieces: list[str] = field(default_factory=list[str])
    extra: JsonObject = field(default_factory=dict[str, object])
    """The call's `extra_content`, which has to be sent back."""
    is_emitted: bool = False
    """Whether it was emitted. A call without arguments waits for its id."""
    pending_id: str = ""
    """An id that came alone. It belongs to the next call if a name follows."""

    def starts_new_call(self, id: str, name: str, arguments: str) -> bool:
        """Return whether a fragment at this call's index starts another call."""
        if not name:
            return False
        if id and self.id:
            return id != self.id
        if not self.name:
            return False
        after = bool(arguments.strip()) and self._has_whole_arguments()
        return bool(self.pending_id) or name != self.name or after

    def feed(self, id: str, name: str, arguments: str, extra: JsonObject) -> list[Part]:
        """Add a fragment; return the parts that can be emitted now."""
        if id and self.id and self.name and not arguments and id != self.id:
            self.pending_id = id
        self.name = self.name or name
        self.id = self.id or id
        if arguments:
            self.argument_pieces.append(arguments)
        is_signed, self.extra = bool(self.extra), self.extra or extra
        if self.is_emitted:
            emitted: list[Part] = [parts.Call(self.key, arguments=arguments)] if arguments else []
            # Without an id, extras that come late would be assigned to the next call.
            return emitted if is_signed or not self.call_id else [*emitted, *self._extra_parts()]
        if self.is_custom or not (self.name and (self.id or arguments)):
            return []
        return self.emit()

    def emit(self, status: ItemStatus = "completed") -> list[Part]:
        """Emit the call as far as it was received. Only a custom call is emitted with a status."""
        self.is_emitted = True
        id = repair_surrogates(self.id)
        # The protocol limits the length of an id, and two calls must not share one.
        if len(id) <= MAX_CALL_ID_LENGTH and id not in self.used_ids:
            self.call_id = id
            self.used_ids.add(id)
        arguments = "".join(self.argument_pieces)
        # The extras come first: they are a reasoning item, which precedes the call it led to.
        extras = self._extra_parts()
        if not self.is_custom:
            return [*extras, parts.Call(self.key, self.name, arguments, self.call_id)]
        fields: JsonObject = {"call_id": self.call_id, "name": self.name, "input": arguments}
        item = ExtensionItem(type=CUSTOM_TOOL_CALL, status=status, extra=fields)
        return [*extras, parts.Whole(item)]

    def _extra_parts(self) -> list[Part]:
        """Return the extras of the call, as a reasoning item of their own."""
        if not self.extra:
            return []
        seal = ChatSeal(field="", extra=self.extra, call=self.call_id)
        return [seal_part(seal, f"call {self.key}")]

    def _has_whole_arguments(self) -> bool:
        pieces = self.argument_pieces
        # Parsing all pieces for every fragment would be quadratic, so their end is checked first.
        is_closed = bool(pieces) and pieces[-1].rstrip().endswith("}")
        return is_closed and decode_as(dict, "".join(pieces)) is not None


MAX_CALLS = 5000
"""The most calls of one answer; those without a name are kept until its end."""


class ToolCalls:
    """All calls of one answer."""

    def __init__(self) -> None:
        self.by_position = False
        """Whether a call's position in the list is its index, as in a whole answer."""
        self._by_index: dict[int, ToolCallState] = {}
        self._all: list[ToolCallState] = []
        self._used_ids: set[str] = set()

    @property
    def has_calls(self) -> bool:
        """Whether any call was emitted."""
        return any(call.is_emitted and call.name for call in self._all)

    def feed(self, fragments: Sequence[ToolCallFragment]) -> Iterable[Part]:
        """Yield the parts for some fragments."""
        for position, fragment in enumerate(fragments):
            index = position if fragment.index is None or self.by_position else fragment.index
            function = fragment.custom or fragment.function or wire_types.Function()
            id, name = fragment.id or "", function.name or ""
            arguments = to_json_text(function.arguments or function.input or "")
            call = self._by_index.get(index)
            if call is None or call.starts_new_call(id, name, arguments):
                if len(self._all) == MAX_CALLS:
                    raise ValueError(f"more than {MAX_CALLS} calls")
                id = id or (call.pending_id if call else "")
                is_custom = fragment.custom is not None
                call = ToolCallState(key=len(self._all), id=id, is_custom=is_custom, used_ids=self._used_ids)
                self._by_index[index] = call
                self._all.append(call)
            yield from call.feed(id, name, arguments, as_object(fragment.extra_content))

    def flush(self, *, truncated: bool) -> Iterable[Part]:
        """Yield the calls that could not be emitted before the end.

        If the answer was truncated, the last call is incomplete.
        """
        last = self._all[-1] if truncated and self._all else None
        for call in self._all:
            if not call.is_emitted and (call.name or call.argument_pieces):
                yield from call.emit("incomplete" if call is last else "completed")


REASONS: dict[str, parts.Reason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
"""The finish reasons. `model_length` is Mistral's name for a full context window."""

FAILURE_REASONS = {
    reason: f"stopped with '{reason}'."
    for reason in ("error", "insufficient_system_resource", "abort", "network_error")
}
"""Finish reasons that are failures: of OpenRouter and Mistral, DeepSeek, vLLM, and Zhipu."""

TEXT_PIECES = frozenset({"text", "thinking", "refusal"})
"""The types of content pieces that hold text."""


def text_in_chunk(data: bytes) -> object:
    """Return the text of a chunk's first choice."""
    delta = (read_chunk(data).choices or [wire_types.Choice()])[0].delta
    return delta and delta.content


class ChatDecoder(Decoder):
    """Decodes one answer."""

    reasons = REASONS
    failure_reasons = FAILURE_REASONS

    def __init__(self, adapter: Adapter) -> None:
        self._sse = sse.Decoder(MAX_EVENT_BYTES)
        super().__init__(adapter, self._sse)
        self._fast_text = ChatTextFastPath()
        self._tool_calls = ToolCalls()
        self._reasoning = ReasoningState()

    def feed(self, data: bytes | None) -> list[Part]:
        """Return the parts that these bytes complete, by the text fast path where it applies."""
        if data and self.text_fast_path and (texts := self.text_fast_path(data)):
            self._reasoning.last = "text"
            return [parts.Text(text) for text in texts]
        decoded = super().feed(data)
        # The fast path needs whole events: it does not know what an earlier read left over.
        is_ready = not (self._sse.is_mid_event or self.done or self._reasoning.has_details_due)
        self.text_fast_path = self._fast_text.extract_texts if is_ready and self._fast_text.is_learned else None
        return decoded

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        if not isinstance(chunk, sse.SseEvent):
            return ()
        data = chunk.data
        if chunk.event == "error":
            return (self._failure(parse_error_data(data)),)
        if data.startswith(sse.DONE):
            ending = self._finish_parts(None)
            self.done = True
            return ending
        if not data:
            return ()
        body = read_chunk(data)
        choices = body.choices
        if choices and len(choices) == 1 and not (body.usage or body.error or body.x_groq):
            # Nearly every chunk holds text and nothing else. This is the hot path of a stream that
            # the fast path cannot handle.
            choice = choices[0]
            delta = choice.delta
            if (
                delta is not None
                and type(text := delta.content) is str
                and text
                and not (choice.finish_reason or choice.index or choice.logprobs or choice.error)
                and not (delta.reasoning_content or delta.reasoning or delta.tool_calls)
                and not (delta.refusal or delta.function_call or delta.annotations)
                and not (delta.images or delta.audio or delta.reasoning_details)
                and not (self._reasoning.details and self._reasoning.has_details_due)
            ):
                self._reasoning.last = "text"
                if self._fast_text.attempts_left:
                    self._fast_text.learn(data, text, text_in_chunk)
                return (parts.Text(text),)
        return self._decode(body, data)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        """Decode a whole answer, which must have a choice."""
        decoded = self._decode(read_chunk(body), body)
        if decoded and isinstance(decoded[-1], parts.Failure):
            return decoded
        if all(isinstance(part, parts.Usage) for part in decoded):
            decoded.append(self.model_failure("answered without a choice.", "upstream_invalid"))
        elif not any(isinstance(part, parts.Finish) for part in decoded):
            decoded += self._finish_parts(None)
        return decoded

    def _decode(self, chunk: wire_types.Chunk, data: bytes) -> list[Part]:
        if chunk.error or chunk.object == "error":
            return [self._failure(parse_error_data(data))]
        extras = chunk.x_groq or wire_types.Chunk()
        if extras.error:
            return [self._failure({"error": extras.error})]
        decoded: list[Part] = []
        # We never ask for more than one choice, but some servers send several.
        for choice in chunk.choices or ():
            if not choice.index:
                self._decode_choice(choice, decoded)
        if usage := chunk.usage or extras.usage:
            decoded.append(usage_part(usage))
        return decoded

    def _decode_choice(self, choice: wire_types.Choice, decoded: list[Part]) -> None:
        if choice.error:
            decoded.append(self._failure({"error": choice.error}))
            return
        if message := choice.delta or choice.message:
            self._tool_calls.by_position |= choice.delta is None
            self._decode_message(message, choice.logprobs, decoded)
        # Servers may repeat the reason, for example in the chunk with the usage.
        if choice.finish_reason and not self.finished:
            decoded += self._finish_parts(choice.finish_reason)

    def _decode_message(self, message: MessageDelta, logprobs: Logprobs | None, decoded: list[Part]) -> None:
        fragments = message.tool_calls or (message.function_call and [ToolCallFragment(function=message.function_call)])
        thinking = message.reasoning_content or message.reasoning
        if thinking and isinstance(thinking, str):
            field = "reasoning_content" if message.reasoning_content else "reasoning"
            decoded.append(self._reasoning.add_text(thinking, field))
        if message.reasoning_details:
            self._reasoning.add_details(message.reasoning_details)
        text = message.content or message.refusal
        if fragments or (text and self._reasoning.has_details_due):
            decoded += self._reasoning.flush()
        if isinstance(message.content, list):
            self._decode_pieces(message.content, decoded)
        # A chunk without anything becomes an empty text, so that every chunk has a delta.
        elif message.content or not (decoded or fragments or message.refusal or message.reasoning_details):
            tokens = convert_logprobs(logprobs.content) if logprobs else None
            decoded.append(parts.Text(message.content or "", logprobs=tokens))
        if message.refusal:
            decoded.append(parts.Refusal(message.refusal))
        if message.annotations:
            decoded.extend(citation_parts(message.annotations))
        if fragments:
            decoded.extend(self._tool_calls.feed(fragments))
            self._reasoning.last = ""
        elif decoded and type(decoded[-1]) is not parts.Reasoning:
            self._reasoning.last = "text" if text or self._reasoning.last == "text" else ""
        if message.images or message.audio or has_unsupported_pieces(message.content):
            decoded += self.unsupported_output_parts()

    def _decode_pieces(self, pieces: list[wire_types.ContentPiece], decoded: list[Part]) -> None:
        before = len(decoded)
        for piece in pieces:
            thinking = piece.thinking
            if isinstance(thinking, list):
                thinking = "".join(inner.text or "" for inner in thinking)
            if thinking:
                decoded.append(self._reasoning.add_text(thinking, "content"))
            elif piece.refusal:
                decoded.append(parts.Refusal(piece.refusal))
            elif piece.text:
                self._reasoning.last = "text"
                decoded.append(parts.Text(piece.text))
        if len(decoded) == before:
            decoded.append(parts.Text(""))

    def _finish_parts(self, raw: str | None) -> list[Part]:
        if self.finished:
            return []
        if raw in FAILURE_REASONS:
            return self.finish_parts(raw)
        truncated = REASONS.get(raw or "") in TRUNCATION_REASONS
        pending = [*self._reasoning.flush(), *self._tool_calls.flush(truncated=truncated)]
        self.has_calls = self._tool_calls.has_calls
        return [*pending, *self.finish_parts(raw)]

    def _failure(self, value: object) -> parts.Failure:
        return self.adapter.failure_part(parse_error(value))


def parse_error_data(data: bytes) -> object:
    """Return an error event as JSON; plain text is wrapped in an object."""
    try:
        return json.decode_lenient(data)
    except json.JSONError:
        return {"error": data.decode(errors="replace")}


def usage_part(usage: wire_types.Usage) -> parts.Usage:
    """Convert token counts. The prompt's tokens include the cached ones.

    Some servers, such as xAI's, count reasoning tokens only in the total.
    """
    read = usage.prompt_tokens_details or usage.prompt_token_details
    written = usage.completion_tokens_details
    given, made, total = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
    cached = read.cached_tokens if read else None
    if given is not None and made is not None and total is not None and (cached or 0) <= given:
        made = max(made, total - given)
    return parts.Usage(given, made, cached, written.reasoning_tokens if written else None)


def citation_parts(annotations: list[wire_types.AnnotationBody]) -> Iterable[Part]:
    """Yield the annotations that are citations."""
    for note in annotations:
        if cited := note.url_citation:
            start, end = max(0, cited.start_index or 0), max(0, cited.end_index or 0)
            citation = items.UrlCitation(url=cited.url, title=cited.title or "", start_index=start, end_index=end)
            yield parts.Annotation(citation)


def has_unsupported_pieces(content: list[wire_types.ContentPiece] | str | None) -> bool:
    """Return whether any content piece, or any piece of its thinking, is not text."""
    return isinstance(content, list) and any(
        has_unsupported_pieces(piece.thinking)
        or not (piece.type in TEXT_PIECES or piece.text or piece.thinking or piece.refusal)
        for piece in content
    )
