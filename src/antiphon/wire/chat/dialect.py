"""One more encoding of the same events: chat completions.

Frames have no event type, only data. A stream that breaks ends with `{"error": …}`. Errors have
OpenAI's names, and a model that does not exist is a 404, as OpenAI's chat has it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.protocol.content import (
    Content,
    LogProb,
    OutputText,
    RefusalContent,
    UrlCitation,
    content_text,
)
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import (
    Event,
    FunctionCallArgumentsDelta,
    LifecycleEvent,
    OutputItemAdded,
    OutputTextDelta,
    ReasoningDelta,
    ReasoningSummaryTextDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
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
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.struct import encode, to_builtins
from antiphon.wire.chat.request import ChatRequest
from antiphon.wire.openresponses import EncodedEvent, OpenAIDialect, failure_payload

EMPTY_REQUEST = ChatRequest(Request())


class ChatDialect(OpenAIDialect):
    """How a chat is answered; one for each answer, because a chunk depends on those before it."""

    name = "chat"

    def __init__(self, request: ChatRequest = EMPTY_REQUEST) -> None:
        super().__init__()
        self._request = request
        self._chunks = ChunkEncoder(request)

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        """Write one event as the chunks it is, perhaps none."""
        if isinstance(event, ResponseFailed):
            return [("error", self.encode_error(failure_payload(event.response)))]
        return [(CHUNK, data) for data in self._chunks.encode_event(event)]

    def encode_sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events, perhaps none."""
        if isinstance(event, ResponseFailed):
            return b"data: " + self.encode_error(failure_payload(event.response)) + b"\n\n"
        return self._chunks.encode_sse(event)

    def text_fast_path(self, delta: Event) -> None:
        """Chunks have no form: what they say depends on what was said before."""
        del delta

    def encode_response(self, response: Response) -> bytes:
        """Write a response as a completion."""
        return encode(encode_completion(response, self._request))

    def encode_error(self, payload: ErrorPayload, detail: str | None = None) -> bytes:
        """Write the body of an HTTP error, or the end of a stream that breaks."""
        del detail
        return encode({"error": to_builtins(self._rename_error(payload))})

    def error_status(self, error: RequestError) -> int:
        """Return the HTTP status of a caller's error."""
        return error.status

    def param_name(self, name: str) -> str:
        """Return what a chat client calls one of our params."""
        return self._request.param_name(name)


SEPARATOR = "\n\n"
"""What stands between two messages, and between two pieces of thinking."""

Json = dict[str, object]

FINISH_REASONS = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "stop",
}
"""What chat calls the reason why a response is not complete."""


def completion_id(response: Response) -> str:
    """Return the id of the completion that a response is.

    >>> completion_id(Response(id="resp_0a1b", created_at=0, model="m"))
    'chatcmpl-0a1b'
    """
    return "chatcmpl-" + response.id.rpartition("_")[2]


def encode_completion(response: Response, request: ChatRequest) -> Json:
    """Return a response as the completion that it is."""
    said = encode_message(response, request.offered_functions)
    choice: Json = {
        "index": 0,
        "message": said,
        "logprobs": encode_logprobs(response.output),
        "finish_reason": finish_reason(response, called="tool_calls" in said),
    }
    whole: Json = {
        "id": completion_id(response),
        "object": "chat.completion",
        "created": response.created_at,
        "model": response.model,
        "choices": [choice],
    }
    if response.usage:
        whole["usage"] = encode_usage(response.usage)
    return whole | extra_fields(response, request)


def encode_message(response: Response, offered: frozenset[str]) -> Json:
    """Return everything that a response says as one message."""
    output = response.output
    spoken = [_join_texts(item.content, OutputText) for item in _messages(output)]
    refused = [_join_texts(item.content, RefusalContent) for item in _messages(output)]
    thought = [
        text for item in output if isinstance(item, Reasoning) for text in reasoning_texts(item)
    ]
    calls = [*client_calls(output, offered), *unanswered_calls(output, offered)]
    content, refusal = SEPARATOR.join(filter(None, spoken)), SEPARATOR.join(filter(None, refused))
    said: Json = {"role": "assistant", "content": content, "refusal": refusal or None}
    if not content and (refusal or calls):
        said["content"] = None
    if reasoning := SEPARATOR.join(thought):
        said["reasoning_content"] = reasoning
    if calls:
        said["tool_calls"] = [encode_call(item) for item in calls]
    said["annotations"] = encode_annotations(output)
    return said


def reasoning_texts(item: Reasoning) -> list[str]:
    """Return the pieces of an item's thinking that a chat shows."""
    raw = [text for part in item.content or () if (text := content_text(part))]
    return raw or [text for part in item.summary if (text := content_text(part))]


def client_calls(output: Iterable[Item], offered: frozenset[str]) -> Iterator[Item]:
    """Return the calls that are the client's to make."""
    return (item for item in output if is_client_call(item, offered))


def unanswered_calls(output: Sequence[Item], offered: frozenset[str]) -> Iterator[Item]:
    """Return the calls of what the client did not offer and nobody answered."""
    answered = {item.call_id for item in output if isinstance(item, FunctionCallOutput)}
    for item in output:
        theirs = isinstance(item, FunctionCall) and item.call_id not in answered
        if theirs and not is_client_call(item, offered):
            yield item


def is_client_call(item: Item, offered: frozenset[str]) -> bool:
    """Tell whether an item is a call that the client can make."""
    if isinstance(item, FunctionCall):
        return item.name in offered
    return isinstance(item, ExtensionItem) and item.type == CUSTOM_TOOL_CALL


def encode_call(item: Item) -> Json:
    """Return a call as a chat writes it."""
    if isinstance(item, FunctionCall):
        function = {"name": item.name, "arguments": item.arguments}
        return {"id": item.call_id, "type": "function", "function": function}
    get = item.get
    custom = {"name": get("name", ""), "input": get("input", "")}
    return {"id": get("call_id", ""), "type": "custom", "custom": custom}


def encode_annotations(output: Iterable[Item]) -> list[Json]:
    """Return the pages that the answer cites, with their place in the whole of it."""
    notes: list[Json] = []
    length = 0
    for item in _messages(output):
        texts = [part for part in item.content if isinstance(part, OutputText)]
        if length and any(part.text for part in texts):
            length += len(SEPARATOR)
        for part in texts:
            notes += [
                _encode_citation(n, length) for n in part.annotations if isinstance(n, UrlCitation)
            ]
            length += len(part.text)
    return notes


def _encode_citation(note: UrlCitation, offset: int) -> Json:
    place = {"start_index": note.start_index + offset, "end_index": note.end_index + offset}
    citation = {**place, "title": note.title, "url": note.url}
    return {"type": "url_citation", "url_citation": citation}


def encode_logprobs(output: Iterable[Item]) -> Json | None:
    """Return how probable each token was, if anyone has counted."""
    counted: list[LogProb] = []
    for item in _messages(output):
        for part in item.content:
            if isinstance(part, OutputText) and part.logprobs:
                counted += part.logprobs
    return {"content": to_builtins(counted), "refusal": None} if counted else None


def finish_reason(response: Response, *, called: bool) -> str:
    """Return why the answer ended."""
    if details := response.incomplete_details:
        return FINISH_REASONS.get(details.reason, "length")
    return "tool_calls" if called else "stop"


def encode_usage(counted: ResponseUsage) -> Json:
    """Return the tokens that an answer took."""
    read, written = counted.input_tokens_details, counted.output_tokens_details
    return {
        "prompt_tokens": counted.input_tokens,
        "completion_tokens": counted.output_tokens,
        "total_tokens": counted.total_tokens,
        "prompt_tokens_details": to_builtins(read),
        "completion_tokens_details": to_builtins(written),
    }


def extra_fields(response: Response, request: ChatRequest) -> Json:
    """Return what stands beside the choices, once it is known; warnings name chat's params."""
    told: Json = {"service_tier": response.service_tier}
    warnings = [
        *request.warnings,
        *(
            replace(warning, param=request.param_name(warning.param)) if warning.param else warning
            for warning in response.warnings or ()
        ),
    ]
    if warnings:
        told["antiphon:warnings"] = to_builtins(warnings)
    return told


def _messages(output: Iterable[Item]) -> Iterator[Message]:
    return (item for item in output if isinstance(item, Message))


def _join_texts(content: Iterable[Content], kind: type[OutputText] | type[RefusalContent]) -> str:
    return "".join(content_text(part) for part in content if isinstance(part, kind))


CHUNK = "chat.completion.chunk"


class ChunkEncoder:
    """Writes one stream."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._offered_functions = request.offered_functions
        self._chunk_prefix = self._delta_prefix = self._delta_suffix = b""
        self._text_prefix = self._text_suffix = b""
        self._role_sent = False
        self._call_positions: dict[int, int] = {}
        """The calls that are shown, by output index: their place in `tool_calls`."""
        self._last_places: dict[str, object] = {}
        """The piece of text that each field of the message grows by."""
        self._text_output_index = -1
        """The output index of the message whose words are flowing."""
        self._reasoning_output_index = -1
        """The output index of the item whose raw thinking was last told."""

    def encode_sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events, perhaps none; the hot path of every stream."""
        if (
            type(event) is OutputTextDelta
            and event.output_index == self._text_output_index
            and event.logprobs is UNSET
            and event.obfuscation is UNSET
        ):
            return self._text_prefix + encode(event.delta) + self._text_suffix
        chunks = self.encode_event(event)
        return b"data: " + b"\n\ndata: ".join(chunks) + b"\n\n" if chunks else b""

    def encode_event(self, event: Event) -> list[bytes]:
        """Write one event as the chunks it is, perhaps none."""
        step = self.ENCODERS.get(type(event))
        return step(self, event) if step else []

    def _encode_created(self, event: ResponseCreated) -> list[bytes]:
        response = event.response
        same: Json = {
            "id": completion_id(response),
            "object": CHUNK,
            "created": response.created_at,
            "model": response.model,
        }
        usage = b',"usage":null' if self._request.include_usage else b""
        self._chunk_prefix = encode(same)[:-1] + b',"choices":'
        self._delta_prefix = self._chunk_prefix + b'[{"index":0,"delta":'
        self._delta_suffix = b',"logprobs":null,"finish_reason":null}]' + usage + b"}"
        self._text_prefix = b"data: " + self._delta_prefix + b'{"content":'
        self._text_suffix = b"}" + self._delta_suffix + b"\n\n"
        return []

    def _encode_chunk(self, choices: list[Json], extra: Json) -> bytes:
        if self._request.include_usage:
            extra = {"usage": None, **extra}
        rest = b"," + encode(extra)[1:] if extra else b"}"
        return self._chunk_prefix + encode(choices) + rest

    def _encode_delta(self, delta: Json, **extra: object) -> list[bytes]:
        """Write a chunk that adds to the message, and before the first the role."""
        if extra:
            probable = extra.pop("logprobs", None)
            choice: Json = {"index": 0, "delta": delta, "logprobs": probable}
            chunk = self._encode_chunk([{**choice, "finish_reason": None}], extra)
        else:
            chunk = self._delta_prefix + encode(delta) + self._delta_suffix
        return [chunk] if self._role_sent else [self._encode_role(delta), chunk]

    def _encode_role(self, then: Json) -> bytes:
        self._role_sent = True
        role: Json = {"role": "assistant", "content": "" if "content" in then else None}
        return self._delta_prefix + encode(role) + self._delta_suffix

    def _separate(self, field: str, place: object, delta: str) -> str:
        """Return more of a text; where another piece of it begins, a blank line stands before."""
        if not delta:
            return ""
        text = delta if self._last_places.get(field, place) == place else SEPARATOR + delta
        self._last_places[field] = place
        return text

    def _encode_growth(
        self, field: str, place: object, delta: str, padding: str | UnsetType = UNSET
    ) -> list[bytes]:
        text = self._separate(field, place, delta)
        return self._encode_delta({field: text}, **_obfuscation_field(padding)) if text else []

    def _encode_text(self, event: OutputTextDelta) -> list[bytes]:
        if event.delta:
            self._text_output_index = event.output_index
        text = self._separate("content", event.output_index, event.delta)
        if event.logprobs is not UNSET:
            counted = {"content": to_builtins(event.logprobs), "refusal": None}
            return self._encode_delta({"content": text} if text else {}, logprobs=counted)
        return (
            self._encode_delta({"content": text}, **_obfuscation_field(event.obfuscation))
            if text
            else []
        )

    def _encode_refusal(self, event: RefusalDelta) -> list[bytes]:
        return self._encode_growth("refusal", event.output_index, event.delta)

    def _encode_reasoning(self, event: ReasoningDelta) -> list[bytes]:
        if event.delta:
            self._reasoning_output_index = event.output_index
        place = (event.output_index, event.content_index)
        return self._encode_growth("reasoning_content", place, event.delta, event.obfuscation)

    def _encode_summary(self, event: ReasoningSummaryTextDelta) -> list[bytes]:
        if event.output_index == self._reasoning_output_index:  # it has told all of it
            return []
        place = (event.output_index, event.summary_index, "summary")
        return self._encode_growth("reasoning_content", place, event.delta, event.obfuscation)

    def _encode_item(self, event: OutputItemAdded) -> list[bytes]:
        if not is_client_call(event.item, self._offered_functions):
            return []
        index = self._call_positions[event.output_index] = len(self._call_positions)
        return self._encode_delta({"tool_calls": [{"index": index, **encode_call(event.item)}]})

    def _encode_arguments(self, event: FunctionCallArgumentsDelta) -> list[bytes]:
        index = self._call_positions.get(event.output_index)
        if index is None:
            return []
        call: Json = {"index": index, "function": {"arguments": event.delta}}
        return self._encode_delta({"tool_calls": [call]}, **_obfuscation_field(event.obfuscation))

    # --- ends ---

    def _encode_end(self, event: LifecycleEvent) -> list[bytes]:
        response = event.response
        chunks: list[bytes] = []
        others = list(unanswered_calls(response.output, self._offered_functions))
        for index, item in enumerate(others, len(self._call_positions)):
            chunks += self._encode_delta({"tool_calls": [{"index": index, **encode_call(item)}]})
        called = bool(self._call_positions or others)
        if not (called or self._last_places.keys() & {"content", "refusal"}):
            chunks += self._encode_delta({"content": ""})
        if notes := encode_annotations(response.output):
            chunks += self._encode_delta({"annotations": notes})
        reason = finish_reason(response, called=called)
        last: Json = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        chunks.append(self._encode_chunk([last], extra_fields(response, self._request)))
        if self._request.include_usage and response.usage:
            chunks.append(self._encode_chunk([], {"usage": encode_usage(response.usage)}))
        return chunks

    ENCODERS: ClassVar[dict[type, Callable[..., list[bytes]]]] = {
        ResponseCreated: _encode_created,
        OutputTextDelta: _encode_text,
        RefusalDelta: _encode_refusal,
        ReasoningDelta: _encode_reasoning,
        ReasoningSummaryTextDelta: _encode_summary,
        OutputItemAdded: _encode_item,
        FunctionCallArgumentsDelta: _encode_arguments,
        ResponseCompleted: _encode_end,
        ResponseIncomplete: _encode_end,
    }


def _obfuscation_field(padding: str | UnsetType) -> Json:
    return {} if padding is UNSET else {"obfuscation": padding}
