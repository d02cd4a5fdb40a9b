"""The block events of `llm_client`, to Open Responses and back.

events          the events
open_blocks     which blocks are open
jsonl           their JSON, one event per line
to_responses    block events -> a response, its events, and input of the next request
from_responses  the events of a response -> block events
timeline        calls functions per kind of block, and rebuilds blocks
log             a log as a response, for `antiphon convert`
"""

from antiphon.bridges.blocks.events import (
    Block,
    BlockAbort,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    Error,
    Ping,
    RefusalBlock,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.bridges.blocks.from_responses import EventTranslator
from antiphon.bridges.blocks.jsonl import (
    RecordedEvent,
    RunInfo,
    decode_block_event,
    encode_block_event,
    encode_recording,
    read_line,
)
from antiphon.bridges.blocks.timeline import BlockCollector, CollectedBlock, Timeline, collect_blocks
from antiphon.bridges.blocks.to_responses import BlockOptions, BlockTranslator

__all__ = [
    "Block",
    "BlockAbort",
    "BlockCollector",
    "BlockDelta",
    "BlockEvent",
    "BlockOptions",
    "BlockStart",
    "BlockStop",
    "BlockTranslator",
    "CollectedBlock",
    "Error",
    "EventTranslator",
    "Ping",
    "RecordedEvent",
    "RefusalBlock",
    "RunInfo",
    "Status",
    "TextBlock",
    "ThinkingBlock",
    "Timeline",
    "ToolResultBlock",
    "ToolUseBlock",
    "UnknownEvent",
    "Usage",
    "collect_blocks",
    "decode_block_event",
    "encode_block_event",
    "encode_recording",
    "read_line",
]
