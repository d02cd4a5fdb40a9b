"""Events as the chunks of a chat completion.

Each chunk is a whole object; what is the same in all of a stream is written once, when it begins.
The role is told just before the first thing said, because only then it is known whether there is
content. What only the end can tell (notes, warnings, calls of what nobody offered) comes with it.
"""

from collections.abc import Callable
from typing import ClassVar

from msgspec import UNSET, UnsetType

from antiphon.core.events import (
    Event,
    FunctionCallArgumentsDelta,
    Lifecycle,
    OutputItemAdded,
    OutputTextDelta,
    ReasoningDelta,
    ReasoningSummaryTextDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseIncomplete,
)
from antiphon.core.value import encode, plain
from antiphon.wire import chat_completion as chat
from antiphon.wire.chat_completion import BREAK, Json
from antiphon.wire.chat_request import Chat

CHUNK = "chat.completion.chunk"


class Chunks:
    """Writes one stream."""

    def __init__(self, asked: Chat) -> None:
        self._asked = asked
        self._offered = asked.offered
        self._head = self._open = self._shut = b""
        self._text_open = self._text_shut = b""
        self._began = False
        self._calls: dict[int, int] = {}
        """The calls that are shown, by output index: their place in `tool_calls`."""
        self._places: dict[str, object] = {}
        """The piece of text that each field of the message grows by."""
        self._speaker = -1
        """The output index of the message whose words are flowing."""
        self._thinker = -1
        """The output index of the item whose raw thinking was last told."""

    def sse(self, event: Event) -> bytes:
        """Write one event as Server-Sent Events, perhaps none; the hot path of every stream."""
        if (
            type(event) is OutputTextDelta
            and event.output_index == self._speaker
            and event.logprobs is UNSET
            and event.obfuscation is UNSET
        ):
            return self._text_open + encode(event.delta) + self._text_shut
        chunks = self.of(event)
        return b"data: " + b"\n\ndata: ".join(chunks) + b"\n\n" if chunks else b""

    def of(self, event: Event) -> list[bytes]:
        """Write one event as the chunks it is, perhaps none."""
        step = self.STEPS.get(type(event))
        return step(self, event) if step else []

    def _begin(self, event: ResponseCreated) -> list[bytes]:
        response = event.response
        same: Json = {
            "id": chat.completion_id(response),
            "object": CHUNK,
            "created": response.created_at,
            "model": response.model,
        }
        usage = b',"usage":null' if self._asked.include_usage else b""
        self._head = encode(same)[:-1] + b',"choices":'
        self._open = self._head + b'[{"index":0,"delta":'
        self._shut = b',"logprobs":null,"finish_reason":null}]' + usage + b"}"
        self._text_open = b"data: " + self._open + b'{"content":'
        self._text_shut = b"}" + self._shut + b"\n\n"
        return []

    def _chunk(self, choices: list[Json], beside: Json) -> bytes:
        if self._asked.include_usage:
            beside = {"usage": None, **beside}
        rest = b"," + encode(beside)[1:] if beside else b"}"
        return self._head + encode(choices) + rest

    def _delta(self, delta: Json, **beside: object) -> list[bytes]:
        """Write a chunk that adds to the message, and before the first the role."""
        if beside:
            probable = beside.pop("logprobs", None)
            choice: Json = {"index": 0, "delta": delta, "logprobs": probable}
            chunk = self._chunk([{**choice, "finish_reason": None}], beside)
        else:
            chunk = self._open + encode(delta) + self._shut
        return [chunk] if self._began else [self._role(delta), chunk]

    def _role(self, then: Json) -> bytes:
        self._began = True
        role: Json = {"role": "assistant", "content": "" if "content" in then else None}
        return self._open + encode(role) + self._shut

    def _piece(self, field: str, place: object, delta: str) -> str:
        """Return more of a text; where another piece of it begins, a blank line stands before."""
        if not delta:
            return ""
        text = delta if self._places.get(field, place) == place else BREAK + delta
        self._places[field] = place
        return text

    def _grow(
        self, field: str, place: object, delta: str, padding: str | UnsetType = UNSET
    ) -> list[bytes]:
        text = self._piece(field, place, delta)
        return self._delta({field: text}, **_padded(padding)) if text else []

    def _text(self, event: OutputTextDelta) -> list[bytes]:
        if event.delta:
            self._speaker = event.output_index
        text = self._piece("content", event.output_index, event.delta)
        if event.logprobs is not UNSET:
            counted = {"content": plain(event.logprobs), "refusal": None}
            return self._delta({"content": text} if text else {}, logprobs=counted)
        return self._delta({"content": text}, **_padded(event.obfuscation)) if text else []

    def _refusal(self, event: RefusalDelta) -> list[bytes]:
        return self._grow("refusal", event.output_index, event.delta)

    def _raw(self, event: ReasoningDelta) -> list[bytes]:
        if event.delta:
            self._thinker = event.output_index
        place = (event.output_index, event.content_index)
        return self._grow("reasoning_content", place, event.delta, event.obfuscation)

    def _summary(self, event: ReasoningSummaryTextDelta) -> list[bytes]:
        if event.output_index == self._thinker:  # it has told all of it
            return []
        place = (event.output_index, event.summary_index, "summary")
        return self._grow("reasoning_content", place, event.delta, event.obfuscation)

    def _item(self, event: OutputItemAdded) -> list[bytes]:
        if not chat.is_offered(event.item, self._offered):
            return []
        index = self._calls[event.output_index] = len(self._calls)
        return self._delta({"tool_calls": [{"index": index, **chat.call_of(event.item)}]})

    def _arguments(self, event: FunctionCallArgumentsDelta) -> list[bytes]:
        index = self._calls.get(event.output_index)
        if index is None:
            return []
        call: Json = {"index": index, "function": {"arguments": event.delta}}
        return self._delta({"tool_calls": [call]}, **_padded(event.obfuscation))

    # --- ends ---

    def _end(self, event: Lifecycle) -> list[bytes]:
        response = event.response
        chunks: list[bytes] = []
        others = list(chat.other_calls(response.output, self._offered))
        for index, item in enumerate(others, len(self._calls)):
            chunks += self._delta({"tool_calls": [{"index": index, **chat.call_of(item)}]})
        called = bool(self._calls or others)
        if not (called or self._places.keys() & {"content", "refusal"}):
            chunks += self._delta({"content": ""})
        if notes := chat.annotations(response.output):
            chunks += self._delta({"annotations": notes})
        reason = chat.finish_reason(response, called=called)
        last: Json = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        chunks.append(self._chunk([last], chat.beside(response, self._asked)))
        if self._asked.include_usage and response.usage:
            chunks.append(self._chunk([], {"usage": chat.usage(response.usage)}))
        return chunks

    STEPS: ClassVar[dict[type, Callable[..., list[bytes]]]] = {
        ResponseCreated: _begin,
        OutputTextDelta: _text,
        RefusalDelta: _refusal,
        ReasoningDelta: _raw,
        ReasoningSummaryTextDelta: _summary,
        OutputItemAdded: _item,
        FunctionCallArgumentsDelta: _arguments,
        ResponseCompleted: _end,
        ResponseIncomplete: _end,
    }


def _padded(padding: str | UnsetType) -> Json:
    return {} if padding is UNSET else {"obfuscation": padding}
