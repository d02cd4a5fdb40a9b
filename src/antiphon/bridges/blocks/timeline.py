"""A timeline calls functions for the events of a run, and rebuilds whole blocks.

A function is called with a scope and an event. The scope belongs to the function: for `on_usage`, `on_ping`,
`on_status` and `on_error` there is one from the registration on, for blocks one per block. Tool results are text.
"""

from collections.abc import Callable, Iterable
from typing import Any

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
    RefusalBlock,
    Status,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
)
from antiphon.bridges.blocks.open_blocks import OpenBlocks

StepOfBlock = BlockStart | BlockDelta | BlockStop | BlockAbort
"""An event of a block; the start and the stop may be missing."""

# `Any`: only a function and the scope it was registered with know each other's types.
NewScope = Callable[[], Any]
StepFunction = Callable[[Any, StepOfBlock], None]


class Timeline:
    """Dispatches the events of one run to functions, in the order of their registration."""

    def __init__(self) -> None:
        self._event_functions: dict[type, list[tuple[Callable[[Any, Any], None], Any]]] = {}
        self._block_functions: dict[BlockType, list[tuple[StepFunction, NewScope]]] = {}
        self._open = OpenBlocks[list[tuple[StepFunction, Any]]]()
        self._current: tuple[int, BlockType] | None = None
        """The block that was opened last."""

    def on_usage(self, call: Callable[[Any, Usage], None], scope: NewScope = dict) -> None:
        """Call a function with token counts."""
        self._event_functions.setdefault(Usage, []).append((call, scope()))

    def on_ping(self, call: Callable[[Any, Ping], None], scope: NewScope = dict) -> None:
        """Call a function with signs of life."""
        self._event_functions.setdefault(Ping, []).append((call, scope()))

    def on_status(self, call: Callable[[Any, Status], None], scope: NewScope = dict) -> None:
        """Call a function with the statuses of the run."""
        self._event_functions.setdefault(Status, []).append((call, scope()))

    def on_error(self, call: Callable[[Any, Error], None], scope: NewScope = dict) -> None:
        """Call a function with errors."""
        self._event_functions.setdefault(Error, []).append((call, scope()))

    def on_text_block(self, call: StepFunction, scope: NewScope = dict) -> None:
        """Call a function with the events of text blocks and tool results."""
        self._block_functions.setdefault("Text", []).append((call, scope))

    def on_thinking_block(self, call: StepFunction, scope: NewScope = dict) -> None:
        """Call a function with the events of thinking blocks."""
        self._block_functions.setdefault("Thinking", []).append((call, scope))

    def on_refusal_block(self, call: StepFunction, scope: NewScope = dict) -> None:
        """Call a function with the events of refusal blocks."""
        self._block_functions.setdefault("Refusal", []).append((call, scope))

    def on_tool_use_block(self, call: StepFunction, scope: NewScope = dict) -> None:
        """Call a function with the events of tool use blocks."""
        self._block_functions.setdefault("ToolUse", []).append((call, scope))

    def dispatch(self, event: BlockEvent) -> None:
        """Call the functions of one event."""
        match event:
            case BlockStart(index=index, block=block):
                self._open_block(index, block.block_type)
                self._call_block(index, block.block_type, event)
            case BlockDelta(index=index, block_type=own_type):
                # The text of a tool result comes as text deltas.
                types = ("Text", "ToolResult") if own_type == "Text" else (own_type,)
                block_type = self._open.find(index, *types) or self._open_block(index, own_type)
                self._call_block(index, block_type, event)
            case BlockStop(index=index) | BlockAbort(index=index):
                if block_type := self._open.find_stopped(index, event.block_type):
                    self._call_block(index, block_type, replace(event, block_type=block_type))
                    self._open.pop(index, block_type)
            case _:
                for call, scope in self._event_functions.get(type(event), []):
                    call(scope, event)

    def abort_current_block(self, reason: str = "Cancelled") -> None:
        """Abort the block that was opened last, if it is open."""
        if self._current and self._open.find(*self._current):
            self.dispatch(BlockAbort(*self._current, reason))

    def _open_block(self, index: int, block_type: BlockType) -> BlockType:
        functions = self._block_functions.get("Text" if block_type == "ToolResult" else block_type, [])
        self._open.add(index, block_type, [(call, new_scope()) for call, new_scope in functions])
        self._current = (index, block_type)
        return block_type

    def _call_block(self, index: int, block_type: BlockType, event: StepOfBlock) -> None:
        for call, scope in self._open.get(index, block_type):
            call(scope, event)


IMPLICIT_BLOCKS: dict[BlockType, Block] = {
    "Text": TextBlock(),
    "Thinking": ThinkingBlock(),
    "Refusal": RefusalBlock(),
    "ToolUse": ToolUseBlock("", ""),
}
"""What a block is whose start is missing."""


class CollectedBlock(Struct, frozen=True):
    """A block with everything that came for it."""

    block: Block
    text: str
    """Its text, or the arguments of a tool use as JSON."""
    stop_reason: StopReason | None = None
    abort_reason: str | None = None


class BlockDraft(Struct):
    """A block while it is collected."""

    block: Block | None = None
    pieces: list[str] = []
    stop_reason: StopReason | None = None
    abort_reason: str | None = None


class BlockCollector:
    """Rebuilds the blocks of a timeline, those without a stop included."""

    def __init__(self, timeline: Timeline) -> None:
        self._drafts: list[BlockDraft] = []
        timeline.on_text_block(_extend_draft, self._add_draft)
        timeline.on_thinking_block(_extend_draft, self._add_draft)
        timeline.on_refusal_block(_extend_draft, self._add_draft)
        timeline.on_tool_use_block(_extend_draft, self._add_draft)

    @property
    def blocks(self) -> list[CollectedBlock]:
        """The blocks so far, in the order of their starts."""
        return [
            CollectedBlock(draft.block, "".join(draft.pieces), draft.stop_reason, draft.abort_reason)
            for draft in self._drafts
            if draft.block
        ]

    def _add_draft(self) -> BlockDraft:
        draft = BlockDraft()
        self._drafts.append(draft)
        return draft


def _extend_draft(draft: BlockDraft, event: StepOfBlock) -> None:
    match event:
        case BlockStart(block=block):
            draft.block = block
        case BlockDelta(text=text):
            # An empty delta alone is no block.
            if text and draft.block is None:
                draft.block = IMPLICIT_BLOCKS[event.block_type]
            draft.pieces.append(text)
        case BlockStop(stop_reason=reason):
            draft.stop_reason = reason
        case BlockAbort(reason=reason):
            draft.abort_reason = reason


def collect_blocks(events: Iterable[BlockEvent]) -> list[CollectedBlock]:
    """Return the blocks of a run."""
    timeline = Timeline()
    collector = BlockCollector(timeline)
    for event in events:
        timeline.dispatch(event)
    return collector.blocks
