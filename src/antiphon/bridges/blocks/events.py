"""The events of `llm_client`: blocks of text, thinking and tool use, and what surrounds them.

A block is identified by its index. Only `ToolUseBlock` and `ToolResultBlock` have fields of their own. `RefusalBlock`
is added here: `llm_client` has no refusals.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

BlockType = Literal["Text", "Thinking", "ToolUse", "ToolResult", "Refusal"]
DeltaType = Literal["Text", "Thinking", "InputJson", "Refusal"]
StopReason = Literal["EndTurn", "MaxTokens", "StopSequence", "ToolUse"]
RunStatus = Literal["Started", "Completed", "Cancelled", "Failed"]

# Bounded: JSON with a larger number could be read, but not be written again.
Count = Annotated[int, Meta(ge=0, le=2**53)]

DELTA_BLOCK_TYPES: dict[DeltaType, BlockType] = {
    "Text": "Text",
    "Thinking": "Thinking",
    "InputJson": "ToolUse",
    "Refusal": "Refusal",
}
"""The type of block that each type of delta extends; a text delta may extend a tool result, too."""


class Ping(Struct, frozen=True):
    """A sign of life."""

    timestamp: Count | None = None


class Usage(Struct, frozen=True):
    """Token counts so far; later ones replace earlier ones."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None


class Status(Struct, frozen=True):
    """The status of the run."""

    status: RunStatus


class Error(Struct, frozen=True):
    """An error of the provider."""

    message: str
    code: str | None = None


class TextBlock(Struct, frozen=True):
    """Text of the answer."""

    block_type: ClassVar[BlockType] = "Text"


class ThinkingBlock(Struct, frozen=True):
    """Reasoning of the model."""

    block_type: ClassVar[BlockType] = "Thinking"


class RefusalBlock(Struct, frozen=True):
    """Text of a refusal."""

    block_type: ClassVar[BlockType] = "Refusal"


class ToolUseBlock(Struct, frozen=True):
    """A call of a tool; its deltas are the arguments, as JSON."""

    block_type: ClassVar[BlockType] = "ToolUse"
    id: str
    name: str


class ToolResultBlock(Struct, frozen=True):
    """The result of a call."""

    block_type: ClassVar[BlockType] = "ToolResult"
    tool_use_id: str


Block = TextBlock | ThinkingBlock | RefusalBlock | ToolUseBlock | ToolResultBlock


class BlockStart(Struct, frozen=True):
    """The start of a block."""

    index: Count
    block: Block


class BlockDelta(Struct, frozen=True):
    """A piece of a block."""

    index: Count
    type: DeltaType
    text: str

    @property
    def block_type(self) -> BlockType:
        """The type of block that the piece extends."""
        return DELTA_BLOCK_TYPES[self.type]


class BlockStop(Struct, frozen=True):
    """The end of a block; some providers name the wrong type."""

    index: Count
    block_type: BlockType
    stop_reason: StopReason | None = None


class BlockAbort(Struct, frozen=True):
    """The end of a block that was cut off."""

    index: Count
    block_type: BlockType
    reason: str


class UnknownEvent(Struct, frozen=True):
    """An event that is not defined here, as a newer `llm_client` may write."""

    name: str
    value: object


BlockEvent = Ping | Usage | Status | Error | BlockStart | BlockDelta | BlockStop | BlockAbort | UnknownEvent
