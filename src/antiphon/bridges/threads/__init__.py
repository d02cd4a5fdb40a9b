"""The thread events of VT Code and Codex as Open Responses streams.

events       the typed thread events and items, and the usage of a turn
read         JSON lines to thread events
config       the five switches, and the section `[agent.open_responses]` of a TOML file
items        constructors of items, and the items that thread items become
shown_text   a message or reasoning item whose source shows its whole text again and again
translate    thread events to parts
normalized   the events of a normalised provider stream, and these to parts
builder      a response from thread events; emitters
integration  the object by which an agent offers its thread events as responses
log          a log of thread events as one response, for `antiphon convert`
"""

from antiphon.bridges.threads.builder import Emitter, ResponseBuilder, SseWriter
from antiphon.bridges.threads.config import OpenResponsesConfig, load_config, parse_config
from antiphon.bridges.threads.events import (
    AgentMessageItem,
    CommandExecutionItem,
    ContextReset,
    ErrorItem,
    ExecUsage,
    FileChangeItem,
    FileUpdateChange,
    HarnessEventItem,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpToolCallItem,
    OtherEvent,
    OtherItem,
    PlanApprovalRequested,
    PlanApprovalResolved,
    PlanItem,
    ReasoningItem,
    ThreadCompactBoundary,
    ThreadCompleted,
    ThreadError,
    ThreadEvent,
    ThreadItem,
    ThreadStarted,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WebSearchItem,
    from_exec_usage,
)
from antiphon.bridges.threads.integration import OpenResponsesIntegration
from antiphon.bridges.threads.items import OutputItem
from antiphon.bridges.threads.normalized import (
    LLMResponse,
    NormalizedDone,
    NormalizedEvent,
    NormalizedReasoningDelta,
    NormalizedTextDelta,
    NormalizedToolCallDelta,
    NormalizedToolCallStart,
    NormalizedUsage,
)
from antiphon.bridges.threads.read import decode_thread_event, read_thread_events

__all__ = [
    "AgentMessageItem",
    "CommandExecutionItem",
    "ContextReset",
    "Emitter",
    "ErrorItem",
    "ExecUsage",
    "FileChangeItem",
    "FileUpdateChange",
    "HarnessEventItem",
    "ItemCompleted",
    "ItemStarted",
    "ItemUpdated",
    "LLMResponse",
    "McpToolCallItem",
    "NormalizedDone",
    "NormalizedEvent",
    "NormalizedReasoningDelta",
    "NormalizedTextDelta",
    "NormalizedToolCallDelta",
    "NormalizedToolCallStart",
    "NormalizedUsage",
    "OpenResponsesConfig",
    "OpenResponsesIntegration",
    "OtherEvent",
    "OtherItem",
    "OutputItem",
    "PlanApprovalRequested",
    "PlanApprovalResolved",
    "PlanItem",
    "ReasoningItem",
    "ResponseBuilder",
    "SseWriter",
    "ThreadCompactBoundary",
    "ThreadCompleted",
    "ThreadError",
    "ThreadEvent",
    "ThreadItem",
    "ThreadStarted",
    "ToolInvocationItem",
    "ToolOutputItem",
    "TurnCompleted",
    "TurnFailed",
    "TurnStarted",
    "WebSearchItem",
    "decode_thread_event",
    "from_exec_usage",
    "load_config",
    "parse_config",
    "read_thread_events",
]
