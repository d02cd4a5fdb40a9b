"""Block events become an Open Responses stream, and tool results the input of the next request.

Each block is an item: text and refusals are messages, thinking is reasoning, a tool use is a function call. Starts and
stops may be missing, and blocks may share an index. A `Status` ends the response; where a provider's events have none,
`end` does, as the last stop reason says.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.bridges.blocks.events import (
    Block,
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    BlockType,
    Error,
    Ping,
    RunStatus,
    Status,
    StopReason,
    ToolResultBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.bridges.blocks.open_blocks import OpenBlocks
from antiphon.bridges.stream import BridgeStream
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event, OutputItemAdded
from antiphon.protocol.items import MAX_CALL_ID_LENGTH, FunctionCall, FunctionCallOutput, ItemStatus, Message, Reasoning
from antiphon.protocol.parts import Part, Reason
from antiphon.protocol.response import Response
from antiphon.protocol.surrogates import repair_surrogates
from antiphon.protocol.synth_items import SynthOptions
from antiphon.store.ids import new_id

StartedPolicy = Literal["created", "created+queued", "created+in_progress", "created+queued+in_progress", "in_progress"]


class BlockOptions(Struct, frozen=True, kw_only=True):
    """What the two event models leave open."""

    started: StartedPolicy = "created+in_progress"
    """The events that `Started` causes; `in_progress` leaves `created` to the event before it, or to `create`."""
    cancelled: Literal["incomplete", "failed"] = "incomplete"
    """How a cancelled run ends: the response is `cancelled` in `response.incomplete`, or it failed."""
    thinking: Literal["raw", "summary"] = "raw"
    """Whether thinking becomes raw reasoning or a summary of it."""
    content_parts: bool = True
    """Whether there are `content_part` events. The rules require them, but some readers do not know them."""
    argument_deltas: bool = True
    """Whether there are `function_call_arguments.delta` events; likewise."""
    empty_deltas: bool = False
    """Whether a delta without text becomes an event too."""


EMPTY_ITEMS: dict[BlockType, Message | Reasoning] = {
    "Text": Message(role="assistant", content=[]),
    "Refusal": Message(role="assistant", content=[]),
    "Thinking": Reasoning(),
}
"""The item that a block is before its first delta; a tool use is a call, and a tool result is no output."""

FINISH_REASONS: dict[StopReason, Reason] = {
    "EndTurn": "stop",
    "StopSequence": "stop",
    "ToolUse": "tool_calls",
    "MaxTokens": "length",
}

CANCELLED_ERROR = ErrorPayload(message="The run was cancelled.", type="model_error", code="cancelled")
NO_MESSAGE = "The run failed without a message that says why."
FAILED_ERROR = ErrorPayload(message=NO_MESSAGE, type="model_error")

NO_STOP_REASON = parts.Warn(
    "no_stop_reason", "The source ended without a stop reason and a status; its answer is taken as complete."
)


class ToolResult(Struct):
    """A tool result while it arrives."""

    call_id: str
    pieces: list[str] = []
    status: ItemStatus = "completed"


class OpenBlock(Struct):
    """A block that was started and not stopped."""

    key: int
    """The key of its parts. It cannot be the index, which is reused."""
    result: ToolResult | None = None


class BlockTranslator:
    """Translates the block events of one run into one response."""

    def __init__(
        self,
        model: str = "",
        *,
        options: BlockOptions = BlockOptions(),  # noqa: B008 - it is frozen
        ids: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        synth_options = SynthOptions(
            keep_empty=options.empty_deltas,
            content_parts=options.content_parts,
            argument_deltas=options.argument_deltas,
        )
        queued = "queued" in options.started
        self._stream = BridgeStream(model, ids=ids, clock=clock, options=synth_options, queued=queued)
        self._open = OpenBlocks[OpenBlock]()
        self._block_count = 0
        self._implicit: tuple[int, BlockType] | None = None
        """The block that began with a delta last."""
        self._finish: parts.Finish | None = None
        self._call_ids: dict[str, list[str]] = {}
        """The call_ids of the calls with each id; a provider may give one id to several calls."""
        self._result_counts = Counter[str]()
        self._results: list[ToolResult] = []

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._stream.response

    @property
    def ended(self) -> bool:
        """Whether the response has ended: only tool results are taken any more."""
        return self._stream.ended

    @property
    def tool_results(self) -> list[FunctionCallOutput]:
        """The results of tools so far: input items of the next request, which follow this response's output."""
        return [
            FunctionCallOutput(
                call_id=result.call_id, output=repair_surrogates("".join(result.pieces)), status=result.status
            )
            for result in self._results
        ]

    def create(self) -> list[Event]:
        """Announce the response before its first event."""
        return self._stream.create()

    def feed(self, event: BlockEvent) -> list[Event]:
        """Return the events that one event causes; none once the response has ended."""
        created = self.create() if self._options.started == "in_progress" else []
        return created + self._translate(event)

    def end(self) -> list[Event]:
        """End the response, if no status has: the source has no more events."""
        if self._finish is None:
            self._stream.feed(NO_STOP_REASON)
        return self._end()

    def _translate(self, event: BlockEvent) -> list[Event]:
        match event:
            case BlockStart():
                return self._start_block(event.index, event.block)
            case BlockDelta():
                return self._add_delta(event)
            case BlockStop() | BlockAbort():
                return self._end_block(event)
            case Status():
                return self._set_status(event.status)
            case Error():
                return self._stream.fail(replace(FAILED_ERROR, code=event.code, message=event.message or NO_MESSAGE))
            case _:
                return self._stream.feed_all(_metadata_parts(event))

    def _set_finish(self, finish: parts.Finish) -> None:
        # The item that was cut off stays incomplete, so the response must not be completed by a later block.
        if self._finish is None or self._finish.reason not in ("length", "cancelled"):
            self._finish = finish

    def _set_status(self, status: RunStatus) -> list[Event]:
        match status:
            case "Started":
                return self._stream.start() if "in_progress" in self._options.started else self.create()
            case "Completed":
                return self._end()
            case "Cancelled":
                self._finish = parts.Finish("cancelled", status)
                return self._end()
            case "Failed":
                return self._stream.fail(FAILED_ERROR)

    def _end(self) -> list[Event]:
        if self._finish is None:
            return self._stream.end()
        if self._finish.reason == "cancelled" and self._options.cancelled == "failed":
            return self._stream.fail(CANCELLED_ERROR)
        self._stream.feed(self._finish)
        return self._stream.end()

    def _start_block(self, index: int, block: Block) -> list[Event]:
        events = self._stop_implicit()
        if self._open.find(index, block.block_type):  # its stop is missing
            events += self._stop_block(index, block.block_type)
        if isinstance(block, ToolResultBlock):
            self._add_block(index, "ToolResult").result = self._add_result(block.tool_use_id)
        elif isinstance(block, ToolUseBlock):
            key = self._add_block(index, "ToolUse").key
            started = self._stream.feed(parts.Call(key, block.name, call_id=block.id))
            for event in started:
                if isinstance(event, OutputItemAdded) and isinstance(event.item, FunctionCall):
                    self._call_ids.setdefault(block.id, []).append(event.item.call_id)
            events += started
        else:
            events += self._open_item(index, block.block_type)
        return events

    def _add_block(self, index: int, block_type: BlockType) -> OpenBlock:
        self._block_count += 1
        opened = OpenBlock(self._block_count)
        self._open.add(index, block_type, opened)
        return opened

    def _open_item(self, index: int, block_type: BlockType) -> list[Event]:
        key = self._add_block(index, block_type).key
        return self._stream.feed(parts.ItemState(EMPTY_ITEMS[block_type], key)) if block_type in EMPTY_ITEMS else []

    def _stop_implicit(self) -> list[Event]:
        """Stop the block that began with a delta: who sends no starts may send no stops."""
        place, self._implicit = self._implicit, None
        return self._stop_block(*place) if place and self._open.find(*place) else []

    def _add_result(self, tool_use_id: str) -> ToolResult:
        """Add the next result of a call; one of a call of an earlier response keeps the id it has."""
        call_ids = self._call_ids.get(tool_use_id, [repair_surrogates(tool_use_id)])
        call_id = call_ids[min(self._result_counts[tool_use_id], len(call_ids) - 1)]
        self._result_counts[tool_use_id] += 1
        result = ToolResult(call_id)
        if 0 < len(call_id) <= MAX_CALL_ID_LENGTH:
            self._results.append(result)
        else:
            message = f"The id '{call_id[:80]}' of a tool result is that of no call; the result was left out."
            self._stream.feed(parts.Warn("tool_result_without_call", message))
        return result

    def _add_delta(self, delta: BlockDelta) -> list[Event]:
        index, block_type = delta.index, delta.block_type
        if block_type == "Text" and self._open.find(index, "Text", "ToolResult") == "ToolResult":
            if result := self._open.get(index, "ToolResult").result:
                result.pieces.append(delta.text)
            return []
        events: list[Event] = []
        if not self._open.find(index, block_type):
            # Some providers send no starts, and empty deltas between their blocks.
            if not (delta.text or self._options.empty_deltas):
                return []
            events += self._stop_implicit()
            events += self._open_item(index, block_type)
            self._implicit = (index, block_type)
        key = self._open.get(index, block_type).key
        return events + self._stream.feed(self._delta_part(delta, key))

    def _delta_part(self, delta: BlockDelta, key: int) -> Part:
        match delta.type:
            case "Text":
                return parts.Text(delta.text, key)
            case "Refusal":
                return parts.Refusal(delta.text, key)
            case "InputJson":
                return parts.Call(key, arguments=delta.text)
            case "Thinking" if self._options.thinking == "summary":
                return parts.Reasoning(summary=delta.text, key=key)
            case "Thinking":
                return parts.Reasoning(delta.text, key)

    def _end_block(self, event: BlockStop | BlockAbort) -> list[Event]:
        if isinstance(event, BlockAbort):
            self._set_finish(parts.Finish("cancelled", event.reason))
            return self._stop_block(event.index, event.block_type, cut_off=True)
        if event.stop_reason:
            self._set_finish(parts.Finish(FINISH_REASONS[event.stop_reason], event.stop_reason))
        return self._stop_block(event.index, event.block_type, cut_off=event.stop_reason == "MaxTokens")

    def _stop_block(self, index: int, block_type: BlockType, *, cut_off: bool = False) -> list[Event]:
        stopped = self._open.find_stopped(index, block_type)
        if stopped is None:
            return []
        block = self._open.pop(index, stopped)
        if block.result and cut_off:
            block.result.status = "incomplete"
        # The end of the response closes what was cut off, as incomplete.
        if stopped == "ToolResult" or cut_off:
            return []
        if stopped == "ToolUse":
            return self._stream.feed(parts.Call(block.key, complete=True))
        return self._stream.feed(parts.ItemState(EMPTY_ITEMS[stopped], block.key, complete=True))


def _metadata_parts(event: Ping | Usage | UnknownEvent) -> Iterator[Part]:
    if isinstance(event, Usage):
        yield parts.Usage(event.input_tokens, event.output_tokens, event.cache_read_input_tokens)
    elif isinstance(event, UnknownEvent):
        yield parts.Warn("unknown_event", f"The event '{event.name[:80]}' is unknown; it was left out.")
