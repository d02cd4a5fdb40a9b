"""Open Responses streams and responses, decoded into parts.

`protocol.foreign` reads the events, whichever rules their server breaks. Whatever ends something (a
text, a part, an item, the response) is compared with the parts that were emitted for it, and only
the rest is emitted: a server may send deltas, finished items, or nothing but the final response.
With `strict` the first broken rule is a failure; otherwise all of them make one warning.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast, get_args

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from antiphon.adapters.base import MAX_EVENT_BYTES, Adapter, Decoder
from antiphon.adapters.errors import TRUNCATED, ErrorInfo, parse_error
from antiphon.adapters.json_access import is_json
from antiphon.protocol import events, items, parts
from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import DELTA_EVENTS, TEXT_DONE_EVENTS, TEXT_KINDS, part_of
from antiphon.protocol.foreign.lenient import LenientReader
from antiphon.protocol.foreign.reader import ForeignReader
from antiphon.protocol.foreign.strict import ForeignChecker
from antiphon.protocol.items import Content, Item, OutputText, Phase, content_text
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import InvalidValueError, JsonObject, as_array, as_object, as_string, is_extension_type
from antiphon.wire import json, sse

SLUG = "responses:"
"""The slug of types that neither the specification nor OpenAI has; requests omit it."""

UNSEALED_REASONING = '{"raw":true}'
"""The encrypted content of raw reasoning that its server did not encrypt, to recognize it later."""

REASONS: Mapping[str, parts.Reason] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "cancelled",
}
TERMINAL_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})

LogProbs = list[items.LogProb] | UnsetType
AnyLogProb = TypeVar("AnyLogProb", items.LogProb, items.TopLogProb)


class OpenResponsesDecoder(Decoder):
    """Decodes one answer of an Open Responses server."""

    needs_end = True

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter, sse.Decoder(MAX_EVENT_BYTES))
        # New event types of OpenAI's are dropped, so they break nothing.
        self._checker = ForeignChecker(strict=adapter.provider.strict, extensions=False)
        self._reader = ForeignReader(
            read_error=lambda raw: adapter.failure_part(read_error(raw)).error, checker=self._checker, slug=SLUG
        )
        self._parts = PartMapper()
        self._error: ErrorInfo | None = None

    def truncation_parts(self) -> Iterable[Part]:
        """Return the parts of a stream that ended too early, perhaps after an `error` event."""
        return [*self._parts.flush(), self.adapter.failure_part(self._error or TRUNCATED)]

    def decode_chunk(self, chunk: object) -> Iterable[Part]:
        frame = cast("sse.SseEvent", chunk)
        if frame.data == sse.DONE:  # nothing has ended the response before
            return self.truncation_parts()
        # Most events are deltas of one text: they take the hot path before anything is looked at.
        raw = cast("JsonObject", json.decode_foreign(frame.data))
        if type(raw) is not dict or type(raw.get("type", "")) is not str:
            raise ValueError("this is not an event")
        if self._reader.extend_text(raw):
            return self._parts.extend(cast("str", raw["delta"]))
        raw["type"] = name = as_string(raw.get("type")) or frame.event
        if name == "error" or (raw.get("error") and not name.startswith("response.")):
            # "Error while streaming: an error event … will be followed by a response.failed event."
            # It has all there was, so the failure waits for it.
            self._error = read_error(raw)
            if name != "error":
                return ()
        try:
            (*_, event) = self._reader.feed_event(raw)
        except RemoteProtocolError as error:
            return (self._protocol_failure(error),)
        if not self._reader.ended:
            return self._parts.feed(event)
        self.done = True  # some servers leave the connection open
        response = as_object(raw.get("response"))
        # Items that only the stream had are complete as far as they can be.
        output = cast("events.ResponseCompleted", event).response.output if as_array(response.get("output")) else []
        return self._end(name.removeprefix("response."), response, output)

    def decode_body(self, body: bytes) -> Iterable[Part]:
        raw = as_object(json.decode_foreign(body))
        if raw.get("object") != "response" and "output" not in raw:
            error = parse_error(raw)
            if error == ErrorInfo():
                raise ValueError("this is not a response")
            return (self.adapter.failure_part(error),)
        status = as_string(raw.get("status")) or "completed"
        misfits: list[InvalidValueError] = []
        response = LenientReader(SLUG, misfits).read_response(raw)
        try:
            # A failed response is not checked: its error matters more than a broken rule.
            if status in TERMINAL_STATUSES - {"failed"}:
                self._checker.check_response(raw, response, misfits)
        except RemoteProtocolError as error:
            return (self._protocol_failure(error),)
        return self._end(status, raw, response.output)

    def _end(self, status: str, raw: JsonObject, output: list[Item]) -> list[Part]:
        own = as_string(raw.get("status"))
        status = own if own in TERMINAL_STATUSES else status
        if status == "incomplete" and output:
            output = [*output[:-1], _truncate(output[-1])]
        found: list[Part] = []
        # Whatever the stream did not have is in the final output, or lost.
        for tracked, item in zip(self._reader.items.match_output(output), output, strict=True):
            found += self._parts.update(tracked.output_index, item, done=True)
        found += self._parts.flush()
        found += read_warnings(raw)
        if usage := read_usage(raw):
            found.append(usage)
        if self._checker.problems:
            who, problems = self.adapter.provider.name, self._checker.summary()
            message = f"{who} broke rules of the protocol. Its answer was repaired: {problems}"
            found.append(parts.Warn("upstream_protocol", message))
        return [*found, self._last_part(status, raw)]

    def _last_part(self, status: str, raw: JsonObject) -> Part:
        if status == "failed":
            error = read_error(as_object(raw.get("error")))
            return self.adapter.failure_part(error if error.message else self._error or error)
        if status not in TERMINAL_STATUSES:
            return self.adapter.failure_part(ErrorInfo(f"sent a response that is still {status}."))
        if status == "completed":
            return parts.Finish("tool_calls" if self._parts.has_calls else "stop", status)
        details = as_object(raw.get("incomplete_details"))
        reason = as_string(details.get("reason")) if status == "incomplete" else ""
        return parts.Finish(REASONS.get(reason or status, "length"), reason or status)

    def _protocol_failure(self, error: RemoteProtocolError) -> Part:
        return self.model_failure(f"broke a rule of the protocol: {error}", "upstream_protocol")


class EmittedItem(Struct):
    """What was emitted of an item; `key` is its index."""

    key: int
    texts: dict[tuple[str, int], list[str]] = field(default_factory=dict[tuple[str, int], list[str]])
    """By the type and index of a content part; the arguments of a call have an empty type."""
    annotations: dict[int, int] = field(default_factory=dict[int, int])
    """How many each content part has."""
    phase: Phase | None = None
    named: bool = False
    done: bool = False


class PartMapper:
    """Turns the events of one response into parts, each text exactly once.

    An item that does not stream is emitted when it is done; what belongs after it waits.
    """

    def __init__(self) -> None:
        self.has_calls = False
        self._items: dict[int, EmittedItem] = {}
        self._growing = EmittedItem(-1, done=True), "", 0
        """The text of the last delta: its item, type and index."""
        self._last: EmittedItem | None = None
        """The message or reasoning item that grew last, while no other item has begun."""
        self._waiting: list[EmittedItem | list[Part]] = []
        """The items that are still to be emitted, and the parts that wait for them."""

    def feed(self, event: events.Event) -> list[Part]:
        """Return the parts of an event."""
        match event:
            case events.OutputItemAdded() | events.OutputItemDone():
                return self.update(event.output_index, event.item, done=isinstance(event, events.OutputItemDone))
            case events.ItemEvent():
                item = self._find_item(event.output_index)
                self._growing = item, "", 0
                return [] if item.done else self._in_order(item, self._event_parts(item, event))
            case events.ExtensionEvent() if is_extension_type(event.type):
                return [parts.Extension(event.type, dict(event.extra or {}))]
            case events.ResponseQueued():
                return [parts.Progress("queued")]
            case events.ResponseInProgress():
                return [parts.Progress("in_progress")]
            case _:
                return []

    def extend(self, text: str) -> list[Part]:
        """Return the part of a delta that continues the text of the last one: the hot path."""
        item, type_, index = self._growing
        if item.done:
            return []
        item.texts[type_, index].append(text)
        part = self._text_part(item, type_, index, text)
        return self._in_order(item, [part]) if self._waiting else [part]

    def update(self, output_index: int, value: Item, *, done: bool) -> list[Part]:
        """Return what is new in an item that was added or is done."""
        item = self._find_item(output_index)
        if item.done:
            return []
        item.done = done
        match value:
            case items.FunctionCall():
                return self._in_order(item, self._call_parts(item, value))
            case items.Message():
                return self._in_order(item, self._message_parts(item, value))
            case items.Reasoning():
                return self._in_order(item, self._reasoning_parts(item, value) if done else [])
            case _:
                return self._other_parts(item, value)

    def flush(self) -> list[Part]:
        """Return the parts that still wait for an item."""
        waiting, self._waiting = self._waiting, []
        return [part for entry in waiting if isinstance(entry, list) for part in entry]

    def _find_item(self, index: int) -> EmittedItem:
        return self._items.get(index) or self._items.setdefault(index, EmittedItem(index))

    def _in_order(self, item: EmittedItem, found: list[Part]) -> list[Part]:
        """Keep back what belongs after an item that is still to be emitted."""
        for entry in self._waiting:
            if isinstance(entry, EmittedItem) and entry.key < item.key:
                self._waiting.append(found)
                return []
        return found

    def _event_parts(self, item: EmittedItem, event: events.ItemEvent) -> list[Part]:
        index = part_of(event)[1]
        logprobs = cast("LogProbs", getattr(event, "logprobs", UNSET))
        if kind := DELTA_EVENTS.get(type(event)):
            text = cast("events.DeltaEvent", event).delta
            self._growing = item, kind.content_type, index
            item.texts.setdefault((kind.content_type, index), []).append(text)
            return [self._text_part(item, kind.content_type, index, text, logprobs)]
        if kind := TEXT_DONE_EVENTS.get(type(event)):
            text = cast("str", getattr(event, kind.text_field))
            return self._remaining_text(item, kind.content_type, index, text, logprobs)
        if isinstance(event, events.OutputTextAnnotationAdded):
            is_new = event.annotation_index >= item.annotations.get(index, 0)
            return [self._annotation_part(item, index, event.annotation)] if is_new else []
        return self._remaining_content(item, index, cast("events.ContentPartDone", event).part)

    def _call_parts(self, item: EmittedItem, call: items.FunctionCall) -> list[Part]:
        found: list[Part] = []
        if call.name and not item.named:
            item.named = self.has_calls = True
            self._last = None
            found.append(parts.Call(item.key, call.name, call_id=call.call_id))
        # An empty object in a call that was only added stands for arguments still to come.
        if item.done or call.arguments != "{}":
            found += self._remaining_text(item, "", 0, call.arguments)
        arguments = "".join(item.texts.get(("", 0), ()))
        if item.done and call.status != "incomplete" and (not arguments or is_json(arguments)):
            found.append(parts.Call(item.key, complete=True))
        return found

    def _message_parts(self, item: EmittedItem, message: items.Message) -> list[Part]:
        is_new = not (item.texts or item.annotations)
        if is_new and message.phase and message.phase in get_args(Phase):
            item.phase = message.phase
        if not item.done:
            return []
        content = [_readable_content(part) for part in message.content]
        found: list[Part] = []
        if None in content:
            type_ = message.content[content.index(None)].type[:80]
            warning = f"A message has content that is neither text nor a refusal: {type_}. "
            found.append(parts.Warn("unsupported_content", warning + "It was left out."))
        if is_new:
            status = "incomplete" if message.status == "incomplete" else "completed"
            kept: list[Content] = [part for part in content if part]
            whole = items.Message(role="assistant", status=status, content=kept, phase=item.phase or UNSET)
            return [*found, self._whole_part(item, whole)]
        for index, part in enumerate(content):
            found += self._remaining_content(item, index, part) if part else []
        return found

    def _reasoning_parts(self, item: EmittedItem, reasoning: items.Reasoning) -> list[Part]:
        content = [items.ReasoningText(text=_text_in(part)) for part in reasoning.content or []]
        summary = [items.SummaryText(text=_text_in(part)) for part in reasoning.summary]
        is_raw = any(part.text for part in content) or any(type_ == "reasoning_text" for type_, _ in item.texts)
        seal = reasoning.encrypted_content or (UNSEALED_REASONING if is_raw else "")
        if not item.texts:
            whole = items.Reasoning(summary=[*summary], content=[*content] or UNSET, encrypted_content=seal or UNSET)
            return [self._whole_part(item, whole)]
        found: list[Part] = []
        for index, part in [*enumerate(content), *enumerate(summary)]:
            found += self._remaining_content(item, index, part)
        # Once another item has begun, the synthesizer has closed this one.
        if seal and self._last is item:
            found.append(parts.Reasoning(key=item.key, encrypted_content=seal))
        return found

    def _other_parts(self, item: EmittedItem, value: Item) -> list[Part]:
        """Emit an item that does not stream, and what has waited for it."""
        if not item.done:
            self._waiting += [] if item in self._waiting else [item]
            return []
        whole = [] if isinstance(value, items.ItemReference) else [self._whole_part(item, value)]
        if item not in self._waiting:
            return self._in_order(item, whole)
        self._waiting[self._waiting.index(item)] = whole
        found: list[Part] = []
        while self._waiting and isinstance(self._waiting[0], list):
            found += cast("list[Part]", self._waiting.pop(0))
        return found

    def _whole_part(self, item: EmittedItem, value: Item) -> Part:
        # Items that waited are emitted before those that have grown meanwhile.
        self._last = self._last if item in self._waiting else None
        return parts.Whole(value)

    def _remaining_content(self, item: EmittedItem, index: int, part: Content) -> list[Part]:
        if part.type not in TEXT_KINDS:
            return []
        if not isinstance(part, OutputText):
            return self._remaining_text(item, part.type, index, content_text(part))
        found = self._remaining_text(item, part.type, index, part.text, part.logprobs)
        new = part.annotations[item.annotations.get(index, 0) :]
        return found + [self._annotation_part(item, index, annotation) for annotation in new]

    def _remaining_text(
        self, item: EmittedItem, type: str, index: int, text: str, logprobs: LogProbs = UNSET
    ) -> list[Part]:
        emitted = "".join(item.texts.get((type, index), ()))
        # A text that contradicts its deltas is dropped: what was emitted cannot be taken back.
        rest = text[len(emitted) :] if text.startswith(emitted) else ""
        logprobs = UNSET if (type, index) in item.texts else logprobs
        if not (rest or logprobs):
            return []
        item.texts.setdefault((type, index), []).append(rest)
        return [self._text_part(item, type, index, rest, logprobs)]

    def _text_part(self, item: EmittedItem, type: str, index: int, text: str, logprobs: LogProbs = UNSET) -> Part:
        if not type:
            return parts.Call(item.key, arguments=text)
        self._last = item
        if type == "output_text":
            return parts.Text(text, item.key, index, _with_bytes(logprobs) or None, item.phase)
        if type == "refusal":
            item.phase = None  # only a text can open a message in a phase
            return parts.Refusal(text, item.key, index)
        if type == "reasoning_text":
            return parts.Reasoning(text, item.key, index)
        return parts.Reasoning(key=item.key, part=index, summary=text)

    def _annotation_part(self, item: EmittedItem, index: int, annotation: items.TextAnnotation) -> Part:
        # The synthesizer opens a message in a phase only for a text.
        item.phase = item.phase if item.texts else None
        item.annotations[index] = item.annotations.get(index, 0) + 1
        self._last = item
        return parts.Annotation(annotation, item.key, index)


def _readable_content(part: Content) -> OutputText | items.RefusalContent | None:
    """Return a part of a message as a text or a refusal, if it holds one."""
    if isinstance(part, OutputText):
        return replace(part, logprobs=_with_bytes(part.logprobs))
    if isinstance(part, items.RefusalContent):
        return part
    if isinstance(refusal := part.get("refusal"), str):
        return items.RefusalContent(refusal=refusal)
    text = content_text(part) or part.get("text")
    return OutputText(text=text) if isinstance(text, str) else None


def _text_in(part: Content) -> str:
    return content_text(part) or as_string(part.get("text"))


def _with_bytes(logprobs: LogProbs) -> LogProbs:
    """Give log probabilities their bytes, which OpenAI's deltas leave out."""
    if not logprobs:
        return UNSET

    def fill(one: AnyLogProb) -> AnyLogProb:
        return replace(one, bytes=one.bytes or list(one.token.encode(errors="replace")))

    return [fill(replace(one, top_logprobs=list(map(fill, one.top_logprobs)))) for one in logprobs]


def _truncate(item: Item) -> Item:
    """Mark the last item of an incomplete response as incomplete; some servers do not."""
    is_open = isinstance(item, items.FunctionCall) and not is_json(item.arguments)
    return replace(item, status="incomplete") if is_open or isinstance(item, items.Message) else item


def read_error(raw: JsonObject) -> ErrorInfo:
    """Read an error that is nested in an event, or flat beside the event's own type."""
    nested = as_object(raw.get("error"))
    return parse_error(nested or {name: raw[name] for name in raw if raw[name] != "error"})


def read_usage(response: JsonObject) -> parts.Usage | None:
    """Read the token counts of a response; a count that is missing stays unknown."""
    usage = as_object(response.get("usage"))
    cached = as_object(usage.get("input_tokens_details")).get("cached_tokens")
    reasoning = as_object(usage.get("output_tokens_details")).get("reasoning_tokens")
    counts = (usage.get("input_tokens"), usage.get("output_tokens"), cached, reasoning)
    return parts.Usage(*(n if isinstance(n, int) else None for n in counts)) if usage else None


def read_warnings(response: JsonObject) -> list[parts.Warn]:
    """Read the warnings of another Antiphon."""
    entries = map(as_object, as_array(response.get("antiphon:warnings")))
    texts = ([as_string(raw.get(name)) for name in ("code", "message", "param")] for raw in entries)
    return [parts.Warn(code, message, param or None) for code, message, param in texts]
