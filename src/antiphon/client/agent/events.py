"""What a run of an agent tells: one frozen value for each thing that happens.

The names and fields are Graphlit's, in Python's spelling. Times of day are datetimes, durations are
in milliseconds. The last four are the low-level events: what the model said, piece by piece.
"""

from datetime import UTC, datetime
from typing import Literal

from msgspec import field

from antiphon.client.agent.context_window import ContextUsage
from antiphon.protocol.struct import ProtocolStruct

ToolStatus = Literal["preparing", "ready", "executing", "completed", "failed"]
RunStatus = Literal["completed", "incomplete", "max_tool_rounds"]


class Metrics(ProtocolStruct):
    """How fast it goes: tokens are the pieces that came, throughput is characters a second.

    `total_time` and `llm_tokens`, those that the server counted, come with the end.
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
    """What the model thought, and the seal it goes back under."""

    content: str
    format: Literal["thinking_tag", "markdown", "custom"] = "markdown"
    signature: str | None = None


class AgentToolCall(ProtocolStruct):
    """One call of a tool, and how far it is."""

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
    """What the agent has said: the words of all its rounds, and any refusal."""

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
    """How many tokens something took."""

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


class ContextAction(ProtocolStruct):
    """What was done to the context, and why."""

    type: Literal["truncated_tool_result", "windowed_tool_rounds", "resent_context"]
    tool_name: str | None = None
    original_tokens: int | None = None
    truncated_tokens: int | None = None
    dropped_rounds: int | None = None
    kept_rounds: int | None = None
    reason: str | None = None


class AgentErrorDetails(ProtocolStruct):
    """What went wrong; `recoverable` if the same run may succeed another time."""

    message: str
    code: str | None = None
    recoverable: bool = False


def utc_now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


class TimestampedEvent(ProtocolStruct):
    """An event that says when it happens."""

    timestamp: datetime = field(default_factory=utc_now)


class RunEvent(TimestampedEvent):
    """An event in the life of a run."""

    conversation_id: str


# --- the run ---------------------------------------------------------------------------------


class ConversationStarted(RunEvent):
    """The run has begun."""

    type: Literal["conversation_started"] = "conversation_started"
    model: str


class ConversationQueued(RunEvent):
    """Another run of the same conversation is still at work; this one waits for it."""

    type: Literal["conversation_queued"] = "conversation_queued"


class ConversationCancelled(RunEvent):
    """The run was aborted."""

    type: Literal["conversation_cancelled"] = "conversation_cancelled"


class ConversationCompleted(ProtocolStruct):
    """The run is over. `status` says how; an incomplete answer says why."""

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
    """The run broke; the exception follows."""

    type: Literal["error"] = "error"
    error: AgentErrorDetails


class ConnectionUpdate(RunEvent):
    """The server is asked in another way from now on: a socket was refused, or lost."""

    type: Literal["connection_update"] = "connection_update"
    transport: Literal["websocket", "http", "chat"]
    reason: str


# --- its context -----------------------------------------------------------------------------


class ContextWindow(TimestampedEvent):
    """How full the model's window is; told where its size is known."""

    type: Literal["context_window"] = "context_window"
    usage: ContextUsage


class ContextManagement(TimestampedEvent):
    """The context was changed: cut, windowed, or sent again as a whole."""

    type: Literal["context_management"] = "context_management"
    action: ContextAction
    usage: ContextUsage | None = None


# --- what the model does ---------------------------------------------------------------------


class MessageUpdate(ProtocolStruct):
    """The message so far; not streaming means that it was set back to what it was."""

    type: Literal["message_update"] = "message_update"
    message: AgentMessage
    is_streaming: bool
    reasoning: AgentReasoning | None = None
    metrics: Metrics | None = None


class ToolUpdate(TimestampedEvent):
    """A step in the life of a call. `progress` is what its function reports as it runs."""

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
    """The thinking so far."""

    type: Literal["reasoning_update"] = "reasoning_update"
    content: str
    is_complete: bool
    format: Literal["thinking_tag", "markdown", "custom"] = "markdown"


class TokenReceived(ProtocolStruct):
    """A piece of text."""

    type: Literal["token"] = "token"
    token: str


class ToolCallStart(ProtocolStruct):
    """A call has begun."""

    type: Literal["tool_call_start"] = "tool_call_start"
    id: str
    name: str


class ToolCallDelta(ProtocolStruct):
    """A piece of a call's arguments."""

    type: Literal["tool_call_delta"] = "tool_call_delta"
    tool_call_id: str
    argument_delta: str


class ToolCallParsed(ProtocolStruct):
    """A call is whole."""

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
