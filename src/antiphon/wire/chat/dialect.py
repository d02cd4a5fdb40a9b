"""The chat completions dialect: a response as one completion, or its events as chunks.

- Messages are joined by a blank line, and so are pieces of reasoning; parts of one message are not.
- `reasoning_content` is an item's raw reasoning or, if it has none, its summary.
- Calls of functions that the client offered are sent. Other calls are an agent's own: they are sent
  last, and only if the response holds no output for them.
- Hosted tools' items, compactions and extensions have no equivalent in a chat and are left out.
- SSE events have data only, no event type. A failed stream ends with `{"error": …}`. Errors have
  OpenAI's names, and an unknown model is a 404, as in OpenAI's chat API.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.protocol import events, items
from antiphon.protocol.events import Event, LifecycleEvent, OutputTextDelta
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, ResponseUsage
from antiphon.protocol.struct import encode, to_builtins
from antiphon.wire.chat.request import ChatRequest
from antiphon.wire.openresponses import Dialect, EncodedEvent, failure_payload

SEPARATOR = "\n\n"
"""Between two messages, and between two pieces of reasoning."""

CHUNK = "chat.completion.chunk"

Json = dict[str, object]

FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter", "cancelled": "stop"}
"""The chat names of the reasons why a response is incomplete."""


def encode_completion(response: Response, request: ChatRequest) -> Json:
    """Return a response as a completion."""
    message = encode_message(response, request.client_functions)
    choice: Json = {
        "index": 0,
        "message": message,
        "logprobs": encode_logprobs(response.output),
        "finish_reason": finish_reason(response, called="tool_calls" in message),
    }
    completion = common_fields(response, "chat.completion") | {"choices": [choice]}
    if response.usage:
        completion["usage"] = encode_usage(response.usage)
    return completion | extra_fields(response, request)


def common_fields(response: Response, object_type: str) -> Json:
    """Return the fields that a completion and all its chunks share."""
    id = "chatcmpl-" + response.id.rpartition("_")[2]
    return {"id": id, "object": object_type, "created": response.created_at, "model": response.model}


def encode_message(response: Response, offered: frozenset[str]) -> Json:
    """Return the texts and calls of a response as one message."""
    output = response.output
    content, refusal = _join_texts(output, items.OutputText), _join_texts(output, items.RefusalContent)
    reasonings = [text for item in output if isinstance(item, items.Reasoning) for text in reasoning_texts(item)]
    calls: list[items.Item] = [item for item in output if is_client_call(item, offered)]
    calls += find_unanswered_calls(output, offered)
    message: Json = {"role": "assistant", "content": content, "refusal": refusal or None}
    if not content and (refusal or calls):
        message["content"] = None
    if reasoning := SEPARATOR.join(reasonings):
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [encode_call(item) for item in calls]
    message["annotations"] = encode_annotations(output)
    return message


def reasoning_texts(item: items.Reasoning) -> list[str]:
    """Return the raw reasoning texts of an item, or else its summary."""
    raw = [text for part in item.content or () if (text := items.content_text(part))]
    return raw or [text for part in item.summary if (text := items.content_text(part))]


def find_unanswered_calls(output: Sequence[items.Item], offered: frozenset[str]) -> list[items.FunctionCall]:
    """Return the calls that the client did not offer and the response does not answer."""
    answered = {item.call_id for item in output if isinstance(item, items.FunctionCallOutput)}
    own = (item for item in output if isinstance(item, items.FunctionCall) and item.name not in offered)
    return [item for item in own if item.call_id not in answered]


def is_client_call(item: items.Item, offered: frozenset[str]) -> bool:
    """Return whether an item is a call that the client can run."""
    if isinstance(item, items.FunctionCall):
        return item.name in offered
    return isinstance(item, items.ExtensionItem) and item.type == items.CUSTOM_TOOL_CALL


def encode_call(item: items.Item) -> Json:
    """Return a call as an entry of `tool_calls`."""
    if isinstance(item, items.FunctionCall):
        function = {"name": item.name, "arguments": item.arguments}
        return {"id": item.call_id, "type": "function", "function": function}
    # A custom tool call is an extension item of ours, whose fields are not typed.
    get = item.get
    custom = {"name": get("name", ""), "input": get("input", "")}
    return {"id": get("call_id", ""), "type": "custom", "custom": custom}


def encode_annotations(output: Iterable[items.Item]) -> list[Json]:
    """Return the URL citations, with positions in the joined content."""
    citations: list[Json] = []
    length = 0
    for item in output:
        texts = _output_texts(item)
        # The same separator as between the messages of the joined content.
        if length and any(part.text for part in texts):
            length += len(SEPARATOR)
        for part in texts:
            for cited in part.annotations:
                if isinstance(cited, items.UrlCitation):
                    span = {"start_index": cited.start_index + length, "end_index": cited.end_index + length}
                    citation = {**span, "title": cited.title, "url": cited.url}
                    citations.append({"type": "url_citation", "url_citation": citation})
            length += len(part.text)
    return citations


def encode_logprobs(output: Iterable[items.Item]) -> Json | None:
    """Return the log probabilities of all text, None if there are none."""
    logprobs = [entry for item in output for part in _output_texts(item) for entry in part.logprobs or ()]
    return {"content": to_builtins(logprobs), "refusal": None} if logprobs else None


def finish_reason(response: Response, *, called: bool) -> str:
    if details := response.incomplete_details:
        return FINISH_REASONS.get(details.reason, "length")
    return "tool_calls" if called else "stop"


def encode_usage(usage: ResponseUsage) -> Json:
    """Return token counts under their chat names."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": to_builtins(usage.input_tokens_details),
        "completion_tokens_details": to_builtins(usage.output_tokens_details),
    }


def extra_fields(response: Response, request: ChatRequest) -> Json:
    """Return the fields beside `choices`; warnings have the chat's parameter names."""
    warnings = list(request.warnings)
    for warning in response.warnings or ():
        param = warning.param and request.param_name(warning.param)
        warnings.append(replace(warning, param=param))
    fields: Json = {"service_tier": response.service_tier}
    return fields | {"antiphon:warnings": to_builtins(warnings)} if warnings else fields


def _output_texts(item: items.Item) -> list[items.OutputText]:
    content = item.content if isinstance(item, items.Message) else []
    return [part for part in content if isinstance(part, items.OutputText)]


def _join_texts(output: Iterable[items.Item], kind: type[items.OutputText] | type[items.RefusalContent]) -> str:
    contents = (item.content for item in output if isinstance(item, items.Message))
    texts = ("".join(items.content_text(part) for part in content if isinstance(part, kind)) for content in contents)
    return SEPARATOR.join(filter(None, texts))


EMPTY_REQUEST = ChatRequest(Request())


class ChatDialect(Dialect):
    """Writes one response as a chat. Chunks depend on earlier ones: create one per response."""

    name = "chat"
    has_openai_errors = True

    def __init__(self, request: ChatRequest = EMPTY_REQUEST) -> None:
        super().__init__()
        self._request = request
        self._client_functions = request.client_functions
        # Each chunk is a whole object. What is the same in all of them is encoded once.
        self._chunk_prefix = self._delta_prefix = self._delta_suffix = b""
        self._text_prefix = self._text_suffix = b""
        self._role_sent = False
        self._call_positions: dict[int, int] = {}
        """The position in `tool_calls` of each call, by output index."""
        self._last_places: dict[str, object] = {}
        """The item or part that each field of the message last got text from."""
        self._text_output_index = -1
        """The output index of the message that is being sent."""
        self._reasoning_output_index = -1
        """The output index of the last item with raw reasoning."""

    def encode_event(self, event: Event) -> list[EncodedEvent]:
        name = "error" if isinstance(event, events.ResponseFailed) else CHUNK
        return [(name, data) for data in self._encode_chunks(event)]

    def encode_sse(self, event: Event) -> bytes:
        if (
            type(event) is OutputTextDelta
            and event.output_index == self._text_output_index
            and event.logprobs is UNSET
            and event.obfuscation is UNSET
        ):
            return self._text_prefix + encode(event.delta) + self._text_suffix
        chunks = self._encode_chunks(event)
        return b"data: " + b"\n\ndata: ".join(chunks) + b"\n\n" if chunks else b""

    def text_fast_path(self, delta: Event) -> None:
        """There is no template, because chunks depend on earlier ones."""
        del delta

    def encode_response(self, response: Response) -> bytes:
        return encode(encode_completion(response, self._request))

    def param_name(self, name: str) -> str:
        return self._request.param_name(name)

    def _encode_chunks(self, event: Event) -> list[bytes]:
        write = self.CHUNK_ENCODERS.get(type(event))
        return write(self, event) if write else []

    def _encode_created(self, event: events.ResponseCreated) -> list[bytes]:
        usage = b',"usage":null' if self._request.include_usage else b""
        self._chunk_prefix = encode(common_fields(event.response, CHUNK))[:-1] + b',"choices":'
        self._delta_prefix = self._chunk_prefix + b'[{"index":0,"delta":'
        self._delta_suffix = b',"logprobs":null,"finish_reason":null}]' + usage + b"}"
        self._text_prefix = b"data: " + self._delta_prefix + b'{"content":'
        self._text_suffix = b"}" + self._delta_suffix + b"\n\n"
        return []

    def _make_chunk(self, choices: list[Json], extra: Json) -> bytes:
        if self._request.include_usage:
            extra = {"usage": None, **extra}
        rest = b"," + encode(extra)[1:] if extra else b"}"
        return self._chunk_prefix + encode(choices) + rest

    def _encode_delta(
        self, delta: Json, logprobs: Json | None = None, obfuscation: str | UnsetType = UNSET
    ) -> list[bytes]:
        """Encode a chunk that adds to the message, and before the first one the role."""
        if logprobs is None and obfuscation is UNSET:
            chunk = self._delta_prefix + encode(delta) + self._delta_suffix
        else:
            choice: Json = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": None}
            chunk = self._make_chunk([choice], {} if obfuscation is UNSET else {"obfuscation": obfuscation})
        if self._role_sent:
            return [chunk]
        # The role waits for the first delta, because `content` is null if only calls follow.
        self._role_sent = True
        role: Json = {"role": "assistant", "content": "" if "content" in delta else None}
        return [self._delta_prefix + encode(role) + self._delta_suffix, chunk]

    def _separate(self, field: str, place: object, delta: str) -> str:
        """Return a delta, with a blank line before it where another item or part begins."""
        if not delta:
            return ""
        text = delta if self._last_places.get(field, place) == place else SEPARATOR + delta
        self._last_places[field] = place
        return text

    def _encode_growth(self, field: str, place: object, delta: str, padding: str | UnsetType = UNSET) -> list[bytes]:
        text = self._separate(field, place, delta)
        return self._encode_delta({field: text}, obfuscation=padding) if text else []

    def _encode_text(self, event: OutputTextDelta) -> list[bytes]:
        if event.delta:
            self._text_output_index = event.output_index
        if event.logprobs is UNSET:
            return self._encode_growth("content", event.output_index, event.delta, event.obfuscation)
        text = self._separate("content", event.output_index, event.delta)
        logprobs: Json = {"content": to_builtins(event.logprobs), "refusal": None}
        return self._encode_delta({"content": text} if text else {}, logprobs=logprobs)

    def _encode_refusal(self, event: events.RefusalDelta) -> list[bytes]:
        return self._encode_growth("refusal", event.output_index, event.delta)

    def _encode_reasoning(self, event: events.ReasoningDelta) -> list[bytes]:
        if event.delta:
            self._reasoning_output_index = event.output_index
        place = (event.output_index, event.content_index)
        return self._encode_growth("reasoning_content", place, event.delta, event.obfuscation)

    def _encode_summary(self, event: events.ReasoningSummaryTextDelta) -> list[bytes]:
        # The raw reasoning of this item was sent: its summary would repeat it.
        if event.output_index == self._reasoning_output_index:
            return []
        place = (event.output_index, event.summary_index, "summary")
        return self._encode_growth("reasoning_content", place, event.delta, event.obfuscation)

    def _encode_added_call(self, event: events.OutputItemAdded) -> list[bytes]:
        if not is_client_call(event.item, self._client_functions):
            return []
        index = self._call_positions[event.output_index] = len(self._call_positions)
        return self._encode_delta({"tool_calls": [{"index": index, **encode_call(event.item)}]})

    def _encode_arguments(self, event: events.FunctionCallArgumentsDelta) -> list[bytes]:
        index = self._call_positions.get(event.output_index)
        if index is None:
            return []
        call: Json = {"index": index, "function": {"arguments": event.delta}}
        return self._encode_delta({"tool_calls": [call]}, obfuscation=event.obfuscation)

    def _encode_end(self, event: LifecycleEvent) -> list[bytes]:
        response = event.response
        chunks: list[bytes] = []
        # Only the end of a response shows which of the agent's own calls were not answered.
        others = find_unanswered_calls(response.output, self._client_functions)
        for index, item in enumerate(others, len(self._call_positions)):
            chunks += self._encode_delta({"tool_calls": [{"index": index, **encode_call(item)}]})
        called = bool(self._call_positions or others)
        # Clients expect a string in `content` if there is nothing else.
        if not (called or self._last_places.keys() & {"content", "refusal"}):
            chunks += self._encode_delta({"content": ""})
        if citations := encode_annotations(response.output):
            chunks += self._encode_delta({"annotations": citations})
        reason = finish_reason(response, called=called)
        last: Json = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        chunks.append(self._make_chunk([last], extra_fields(response, self._request)))
        # "an additional chunk will be streamed before the data: [DONE] message": with no choices.
        if self._request.include_usage and response.usage:
            chunks.append(self._make_chunk([], {"usage": encode_usage(response.usage)}))
        return chunks

    def _encode_failure(self, event: events.ResponseFailed) -> list[bytes]:
        return [self.encode_error(failure_payload(event.response))]

    CHUNK_ENCODERS: ClassVar[dict[type, Callable[..., list[bytes]]]] = {
        events.ResponseCreated: _encode_created,
        OutputTextDelta: _encode_text,
        events.RefusalDelta: _encode_refusal,
        events.ReasoningDelta: _encode_reasoning,
        events.ReasoningSummaryTextDelta: _encode_summary,
        events.OutputItemAdded: _encode_added_call,
        events.FunctionCallArgumentsDelta: _encode_arguments,
        events.ResponseCompleted: _encode_end,
        events.ResponseIncomplete: _encode_end,
        events.ResponseFailed: _encode_failure,
    }
