"""An Open Responses stream becomes block events.

Each content part, each part of a summary and each call is a block; the blocks have a running index. Events that blocks
have no word for are counted in `ignored`. Events that open something may be missing, as in streams of other servers.
"""

from collections import Counter
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
    DeltaType,
    Error,
    RefusalBlock,
    Status,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from antiphon.protocol import events
from antiphon.protocol.events import DeltaEvent, Event, PartAddedEvent, TextDoneEvent, TextKind, part_of
from antiphon.protocol.items import (
    Content,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    content_text,
)
from antiphon.protocol.response import Response

IncompletePolicy = Literal["stop_reason", "failed"]
"""How an incomplete response ends: with `MaxTokens` and `Completed` where that says why, or always failed."""

BLOCKS: dict[TextKind, tuple[Block, DeltaType]] = {
    events.OUTPUT_TEXT: (TextBlock(), "Text"),
    events.REFUSAL: (RefusalBlock(), "Refusal"),
    events.REASONING_TEXT: (ThinkingBlock(), "Thinking"),
    events.SUMMARY_TEXT: (ThinkingBlock(), "Thinking"),
}
"""The block of each kind of text, and its deltas; a call is a block of its own."""

PartPlace = tuple[str, int]
"""Where a text of an item is: the field with the part's index, and that index."""

CALL_PLACE: PartPlace = ("", 0)
"""The place of a call's arguments, and of the text of its output."""

SILENT_EVENTS = (
    events.ResponseCreated,
    events.ResponseQueued,
    events.ResponseInProgress,
    events.ContentPartDone,
    events.ReasoningSummaryPartDone,
)
"""The events that say nothing which other events do not say too."""


class StartedBlock(Struct):
    """A block that was started and not stopped."""

    index: int
    block: Block
    has_text: bool = False
    incomplete: bool = False


class EventTranslator:
    """Translates the events of one response into block events."""

    def __init__(self, *, incomplete: IncompletePolicy = "stop_reason") -> None:
        self.ignored: Counter[str] = Counter()
        """How many events, items and parts of each type had no counterpart."""
        self._incomplete_policy = incomplete
        self._started = False
        self._ended = False
        self._block_count = 0
        self._items: dict[int, dict[PartPlace, StartedBlock]] = {}
        """The open blocks of each item so far, by output_index."""
        self._finished: list[StartedBlock] = []
        """Blocks that are complete or cut off; the next event may say why."""
        self._error: Error | None = None

    def feed(self, event: Event) -> list[BlockEvent]:
        """Return the block events that one event causes; none after the end of the response."""
        if self._ended:
            return []
        started: list[BlockEvent] = [] if self._started else [Status("Started")]
        self._started = True
        return started + self._translate(event)

    def end(self) -> list[BlockEvent]:
        """End the run, if no event has: the stream was cut off."""
        if self._ended:
            return []
        self._error = self._error or Error("The stream ended before the response did.", "upstream_cut")
        return self._end_run(None)

    def _translate(self, event: Event) -> list[BlockEvent]:
        translated: list[BlockEvent] = []
        if isinstance(event, events.TERMINAL_EVENTS):
            translated = self._end_run(event.response)
        elif isinstance(event, events.OutputItemAdded):
            translated = self._add_item(event.output_index, event.item)
        elif isinstance(event, events.OutputItemDone):
            translated = self._finish_item(event.output_index, event.item)
        elif isinstance(event, PartAddedEvent):
            translated = self._add_part(event.output_index, part_of(event), event.part)
        elif isinstance(event, DeltaEvent):
            kind = events.DELTA_EVENTS[type(event)]
            translated = self._add_text(event.output_index, part_of(event), kind, event.delta)
        elif isinstance(event, TextDoneEvent):
            translated = self._finish_text(event)
        elif isinstance(event, events.ErrorEvent):
            self._error = Error(event.error.message, event.error.code)
        elif not isinstance(event, SILENT_EVENTS):
            self.ignored[event.type] += 1
        return translated

    def _add_item(self, output_index: int, item: Item) -> list[BlockEvent]:
        self._items.setdefault(output_index, {})
        if isinstance(item, FunctionCall):
            opened = self._open_block(output_index, CALL_PLACE, ToolUseBlock(item.call_id, item.name))
            return opened + self._add_text(output_index, CALL_PLACE, events.CALL_ARGUMENTS, item.arguments)
        if isinstance(item, FunctionCallOutput):
            opened = self._open_block(output_index, CALL_PLACE, ToolResultBlock(item.call_id))
            return opened + self._add_text(output_index, CALL_PLACE, events.OUTPUT_TEXT, item.text)
        if not isinstance(item, Message | Reasoning):
            self.ignored[item.type] += 1
        return []

    def _add_part(self, output_index: int, place: PartPlace, part: Content) -> list[BlockEvent]:
        kind = events.TEXT_KINDS.get(part.type)
        if kind is None:
            self.ignored[part.type] += 1
            return []
        opened = self._open_block(output_index, place, BLOCKS[kind][0])
        return opened + self._add_text(output_index, place, kind, content_text(part))

    def _add_text(self, output_index: int, place: PartPlace, kind: TextKind, text: str) -> list[BlockEvent]:
        """Add text to a block, which is started if its start is missing."""
        if not text:
            return []
        opened: list[BlockEvent] = []
        if place not in self._items.get(output_index, {}):
            if kind is events.CALL_ARGUMENTS:  # nobody knows which tool they are for
                self.ignored[kind.item_type] += 1
                return []
            opened = self._open_block(output_index, place, BLOCKS[kind][0])
        block = self._items[output_index][place]
        block.has_text = True
        type: DeltaType = "InputJson" if kind is events.CALL_ARGUMENTS else BLOCKS[kind][1]
        return [*opened, *self._stop_finished(), BlockDelta(block.index, type, text)]

    def _finish_text(self, event: TextDoneEvent) -> list[BlockEvent]:
        kind, place = events.TEXT_DONE_EVENTS[type(event)], part_of(event)
        block = self._items.get(event.output_index, {}).get(place)
        text: str = getattr(event, kind.text_field)
        # The whole text, where there were no deltas.
        return [] if block and block.has_text else self._add_text(event.output_index, place, kind, text)

    def _open_block(self, output_index: int, place: PartPlace, block: Block) -> list[BlockEvent]:
        blocks = self._items.setdefault(output_index, {})
        # The parts of an item follow each other.
        self._finished += blocks.values()
        stopped = self._stop_finished()
        blocks.clear()
        blocks[place] = StartedBlock(self._block_count, block)
        self._block_count += 1
        return [*stopped, BlockStart(blocks[place].index, block)]

    def _finish_item(self, output_index: int, item: Item) -> list[BlockEvent]:
        translated: list[BlockEvent] = []
        if output_index not in self._items:
            translated += self._add_item(output_index, item)
        blocks = self._items[output_index]
        if not blocks:
            translated += self._add_parts(output_index, item)
        for block in blocks.values():
            if isinstance(item, FunctionCallOutput) and not block.has_text:
                translated += self._add_text(output_index, CALL_PLACE, events.OUTPUT_TEXT, item.text)
            block.incomplete = isinstance(item, Message | FunctionCall) and item.status == "incomplete"
        self._finished += blocks.values()
        blocks.clear()
        return translated

    def _add_parts(self, output_index: int, item: Item) -> list[BlockEvent]:
        """Add the parts of an item whose events are missing; an item without parts is an empty block."""
        contents: list[Content] = []
        if isinstance(item, Message):
            contents = item.content or [OutputText(text="")]
        elif isinstance(item, Reasoning):
            contents = [*(item.content or []), *item.summary] or [ReasoningText(text="")]
        translated: list[BlockEvent] = []
        for index, part in enumerate(contents):
            translated += self._add_part(output_index, ("content_index", index), part)
        return translated

    def _stop_finished(self, cut_off: str = "incomplete") -> list[BlockEvent]:
        """Stop the blocks that are finished; those that were cut off, with the reason."""
        finished, self._finished = self._finished, []
        return [
            BlockAbort(block.index, block.block.block_type, cut_off)
            if block.incomplete and cut_off != "MaxTokens"
            else BlockStop(block.index, block.block.block_type, "MaxTokens" if block.incomplete else None)
            for block in finished
        ]

    def _end_run(self, response: Response | None) -> list[BlockEvent]:
        self._ended = True
        for blocks in self._items.values():
            for block in blocks.values():
                block.incomplete = True
                self._finished.append(block)
        usage = _translate_usage(response)
        status = response.status if response else "failed"
        reason = response.incomplete_details.reason if response and response.incomplete_details else ""
        if status == "cancelled":
            return [*self._stop_finished("Cancelled"), *usage, Status("Cancelled")]
        if status == "completed":
            last = self._finished[-1].block if self._finished else None
            stop_reason: StopReason = "ToolUse" if isinstance(last, ToolUseBlock) else "EndTurn"
            return [*_give_reason(self._stop_finished(), stop_reason), *usage, Status("Completed")]
        if reason == "max_output_tokens" and self._incomplete_policy == "stop_reason":
            stops = self._stop_finished("MaxTokens") or [BlockStop(0, "Text")]
            return [*_give_reason(stops, "MaxTokens"), *usage, Status("Completed")]
        error = self._error or Error(f"The response is incomplete: {reason}.", reason)
        if response and response.error:
            error = Error(response.error.message, response.error.code)
        return [*self._stop_finished(error.code or error.message), *usage, error, Status("Failed")]


def _give_reason(stops: list[BlockEvent], reason: StopReason) -> list[BlockEvent]:
    """Give the last stop the reason of the run."""
    if stops and isinstance(last := stops[-1], BlockStop):
        stops[-1] = replace(last, stop_reason=reason)
    return stops


def _translate_usage(response: Response | None) -> list[BlockEvent]:
    usage = response.usage if response else None
    if usage is None:
        return []
    cached = usage.input_tokens_details.cached_tokens
    return [Usage(usage.input_tokens, usage.output_tokens, usage.total_tokens, cached)]
