"""The events of an agent run: one frozen struct per kind.

Names and fields follow Graphlit's SDK, in Python's spelling. Times of day are datetimes, durations
are in milliseconds. The last four are low-level events: the model's output, delta by delta.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct, field

from antiphon.protocol.struct import ProtocolStruct

ToolStatus = Literal["preparing", "ready", "executing", "completed", "failed"]
RunStatus = Literal["completed", "incomplete", "max_tool_rounds"]


# The fields are Graphlit's, so that applications can be ported: do not rename them.
class Metrics(ProtocolStruct):
    """Speed of a run. `token_count` counts deltas, throughput is in characters per second.

    `total_time` and `llm_tokens`, counted by the server, are set at the end.
    """

    elapsed_time: float
    conversation_duration: float
    total_time: float | None = None
    ttft: float | None = None
    token_count: int = 0
    llm_tokens: int | None = None
    avg_token_delay: float | None = None
    streaming_throughput: float | None = None


class AgentReasoning(ProtocolStruct):
    """The model's reasoning; `signature` is its encrypted form, which can be sent back."""

    content: str
    format: Literal["thinking_tag", "markdown", "custom"] = "markdown"
    signature: str | None = None


class AgentToolCall(ProtocolStruct):
    """A tool call and its status."""

    id: str
    name: str
    arguments: str = ""
    status: ToolStatus = "preparing"
    first_status_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    failed_at: datetime | None = None
    duration_ms: float | None = None


class AgentMessage(ProtocolStruct):
    """The agent's text of all rounds, and any refusal."""

    message: str
    timestamp: datetime
    role: Literal["assistant"] = "assistant"
    model: str = ""
    refusal: str | None = None
    tokens: int | None = None
    tool_calls: list[AgentToolCall] | None = None
    throughput: float | None = None
    completion_time: float | None = None


class TokenCounts(ProtocolStruct):
    """Counts of tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0


class RoundUsage(TokenCounts):
    """The tokens of one round."""

    round: int


class AgentUsage(TokenCounts):
    """The tokens of a run, in total and round by round."""

    model: str
    rounds: list[RoundUsage]


class ContextUsage(Struct, frozen=True, kw_only=True):
    """How full the context window is."""

    used_tokens: int
    max_tokens: int
    percentage: float
    remaining_tokens: int

    def exceeds(self, threshold: float) -> bool:
        """Return whether at least this share is used."""
        return self.used_tokens >= self.max_tokens * threshold


class ContextAction(ProtocolStruct):
    """A change of the context, and its reason."""

    type: Literal["truncated_tool_result", "windowed_tool_rounds", "resent_context"]
    tool_name: str | None = None
    original_tokens: int | None = None
    truncated_tokens: int | None = None
    dropped_rounds: int | None = None
    kept_rounds: int | None = None
    reason: str | None = None


class AgentErrorDetails(ProtocolStruct):
    """An error; `recoverable` if the same run may succeed later."""

    message: str
    code: str | None = None
    recoverable: bool = False


def utc_now() -> datetime:
    return datetime.now(UTC)


class TimestampedEvent(ProtocolStruct):
    """An event with a timestamp."""

    timestamp: datetime = field(default_factory=utc_now)


class RunEvent(TimestampedEvent):
    """An event about the run as a whole."""

    conversation_id: str


class ConversationStarted(RunEvent):
    """The run has started."""

    type: Literal["conversation_started"] = "conversation_started"
    model: str


class ConversationQueued(RunEvent):
    """The run waits for another run of the same conversation."""

    type: Literal["conversation_queued"] = "conversation_queued"


class ConversationCancelled(RunEvent):
    """The run was aborted."""

    type: Literal["conversation_cancelled"] = "conversation_cancelled"


class ConversationCompleted(ProtocolStruct):
    """The run has ended; `reason` says why a response is incomplete."""

    type: Literal["conversation_completed"] = "conversation_completed"
    conversation_id: str
    message: AgentMessage
    status: RunStatus
    reason: str | None = None
    reasoning: AgentReasoning | None = None
    metrics: Metrics
    context_window: ContextUsage | None = None
    usage: AgentUsage


class AgentFailed(RunEvent):
    """The run failed; the exception follows."""

    type: Literal["error"] = "error"
    error: AgentErrorDetails


class ConnectionUpdate(RunEvent):
    """The run switched to another transport, because the server lacks the first."""

    type: Literal["connection_update"] = "connection_update"
    transport: Literal["websocket", "http", "chat"]
    reason: str


class ContextWindow(TimestampedEvent):
    """How full the context window is; emitted if its size is known."""

    type: Literal["context_window"] = "context_window"
    usage: ContextUsage


class ContextManagement(TimestampedEvent):
    """The context was truncated, reduced, or sent again as a whole."""

    type: Literal["context_management"] = "context_management"
    action: ContextAction
    usage: ContextUsage | None = None


class MessageUpdate(ProtocolStruct):
    """The message so far. `is_streaming` is false if it was reset to repeat a round."""

    type: Literal["message_update"] = "message_update"
    message: AgentMessage
    is_streaming: bool
    reasoning: AgentReasoning | None = None
    metrics: Metrics | None = None


class ToolUpdate(TimestampedEvent):
    """A new status of a call. `progress` is a value that its function reported."""

    type: Literal["tool_update"] = "tool_update"
    tool_call: AgentToolCall
    status: ToolStatus
    started_at: datetime | None = None
    completed_at: datetime | None = None
    failed_at: datetime | None = None
    duration_ms: float | None = None
    result: str | None = None
    error: str | None = None
    progress: object = None


class ReasoningUpdate(ProtocolStruct):
    """The reasoning so far."""

    type: Literal["reasoning_update"] = "reasoning_update"
    content: str
    is_complete: bool
    format: Literal["thinking_tag", "markdown", "custom"] = "markdown"


class TokenReceived(ProtocolStruct):
    """A delta of the text."""

    type: Literal["token"] = "token"
    token: str


class ToolCallStart(ProtocolStruct):
    """A call has started."""

    type: Literal["tool_call_start"] = "tool_call_start"
    id: str
    name: str


class ToolCallDelta(ProtocolStruct):
    """A delta of a call's arguments."""

    type: Literal["tool_call_delta"] = "tool_call_delta"
    tool_call_id: str
    argument_delta: str


class ToolCallParsed(ProtocolStruct):
    """The arguments of a call are complete."""

    type: Literal["tool_call_parsed"] = "tool_call_parsed"
    id: str
    name: str
    arguments: str


AgentEvent = (
    ConversationStarted
    | ConversationQueued
    | ConversationCancelled
    | ConversationCompleted
    | AgentFailed
    | ConnectionUpdate
    | ContextWindow
    | ContextManagement
    | MessageUpdate
    | ToolUpdate
    | ReasoningUpdate
    | TokenReceived
    | ToolCallStart
    | ToolCallDelta
    | ToolCallParsed
)

EmitEvent = Callable[[AgentEvent], Awaitable[None]]
"""Delivers an event to the caller; waits while the caller is behind."""
