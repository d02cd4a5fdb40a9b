"""Events as the chunks of a chat completion.

Each chunk is a whole object; what is the same in all of a stream is written once, when it begins.
The role is told just before the first thing said, because only then it is known whether there is
content. What only the end can tell (notes, warnings, calls of what nobody offered) comes with it.
"""

from collections.abc import Callable
from typing import ClassVar

from msgspec import UNSET, UnsetType

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
    ResponseIncomplete,
)
from antiphon.protocol.struct import encode, to_builtins
from antiphon.wire.chat import completion as chat
from antiphon.wire.chat.completion import SEPARATOR, Json
from antiphon.wire.chat.request import ChatRequest

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
            "id": chat.completion_id(response),
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
        if not chat.is_client_call(event.item, self._offered_functions):
            return []
        index = self._call_positions[event.output_index] = len(self._call_positions)
        return self._encode_delta(
            {"tool_calls": [{"index": index, **chat.encode_call(event.item)}]}
        )

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
        others = list(chat.unanswered_calls(response.output, self._offered_functions))
        for index, item in enumerate(others, len(self._call_positions)):
            chunks += self._encode_delta(
                {"tool_calls": [{"index": index, **chat.encode_call(item)}]}
            )
        called = bool(self._call_positions or others)
        if not (called or self._last_places.keys() & {"content", "refusal"}):
            chunks += self._encode_delta({"content": ""})
        if notes := chat.encode_annotations(response.output):
            chunks += self._encode_delta({"annotations": notes})
        reason = chat.finish_reason(response, called=called)
        last: Json = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        chunks.append(self._encode_chunk([last], chat.extra_fields(response, self._request)))
        if self._request.include_usage and response.usage:
            chunks.append(self._encode_chunk([], {"usage": chat.encode_usage(response.usage)}))
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
