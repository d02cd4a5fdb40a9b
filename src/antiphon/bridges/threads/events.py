"""The thread events of VT Code and Codex: what a coding agent reports while it works, one JSON object per line.

A thread has turns, a turn has items, and each item event shows the whole item as it is then. The names and defaults are
those of the crate `vtcode-exec-events`; Codex writes most of the same events. Where the two differ, both are read. An
item or event of another type is kept with all its fields, because each release of either tool adds some.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import UNSET, UnsetType, field

from antiphon.protocol.response import ResponseUsage
from antiphon.protocol.struct import (
    JsonObject,
    ProtocolStruct,
    as_object,
    as_string,
    decode,
    join_path,
    omit,
    type_names,
)


class ExecUsage(ProtocolStruct):
    """The tokens that a turn used; `input_tokens` includes the cached ones."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_creation_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "ExecUsage") -> "ExecUsage":
        return ExecUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_creation_tokens=self.cache_creation_tokens + other.cache_creation_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


def from_exec_usage(usage: ExecUsage) -> ResponseUsage:
    """Return a turn's usage as that of a response; the total is the sum of input and output."""
    return ResponseUsage.of(usage.input_tokens, usage.output_tokens, cached=usage.cached_input_tokens)


class AgentMessageItem(ProtocolStruct):
    """A message of the agent."""

    type: Literal["agent_message"] = "agent_message"
    id: str
    text: str = ""


class ReasoningItem(ProtocolStruct):
    """Reasoning of the model; `stage` is such as "analysis" or "plan"."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    text: str = ""
    stage: str | None = None


class PlanItem(ProtocolStruct):
    """A plan, in Markdown."""

    type: Literal["plan"] = "plan"
    id: str
    text: str = ""


class CommandExecutionItem(ProtocolStruct):
    """A command and its output so far."""

    type: Literal["command_execution"] = "command_execution"
    id: str
    command: str = ""
    arguments: Any = None
    aggregated_output: str = ""
    exit_code: int | None = None
    status: str = "completed"


class ToolInvocationItem(ProtocolStruct):
    """A call of a tool; `tool_call_id` is the model's own id of the call."""

    type: Literal["tool_invocation"] = "tool_invocation"
    id: str
    tool_name: str
    arguments: Any = None
    tool_call_id: str | None = None
    status: str = "completed"
    outcome: str | None = None


class ToolOutputItem(ProtocolStruct):
    """The output of a tool so far; `call_id` is the id of the invocation item, `spool_path` a file with all of it."""

    type: Literal["tool_output"] = "tool_output"
    id: str
    call_id: str
    tool_call_id: str | None = None
    spool_path: str | None = None
    output: str = ""
    exit_code: int | None = None
    status: str = "completed"

    @property
    def text(self) -> str:
        """The output, or where it is if it was too long."""
        return self.output or (f"Output saved to {self.spool_path}" if self.spool_path else "")


class FileUpdateChange(ProtocolStruct):
    """A file, and whether it was added, deleted or updated."""

    path: str
    kind: str = "update"


class FileChangeItem(ProtocolStruct):
    """Changes of files."""

    type: Literal["file_change"] = "file_change"
    id: str
    changes: list[FileUpdateChange] = field(default_factory=list[FileUpdateChange])
    status: str = "completed"


class McpToolCallItem(ProtocolStruct):
    """A call of an MCP server's tool, with its result once there is one."""

    type: Literal["mcp_tool_call"] = "mcp_tool_call"
    id: str
    tool_name: str
    arguments: Any = None
    result: Any = None
    status: str | None = None

    @classmethod
    def normalize(cls, raw: JsonObject, path: str) -> JsonObject:
        """Read Codex's `tool`, and its `error` as the result."""
        del path
        renamed = dict(raw)
        if "tool_name" not in renamed and "tool" in renamed:
            renamed["tool_name"] = renamed.pop("tool")
        if renamed.get("result") is None and (message := as_object(renamed.get("error")).get("message")):
            renamed["result"] = message
        return renamed


class WebSearchItem(ProtocolStruct):
    """A search of the web."""

    type: Literal["web_search"] = "web_search"
    id: str
    query: str = ""
    provider: str | None = None
    results: list[str] | None = None


class HarnessEventItem(ProtocolStruct):
    """Something that the agent's harness did, such as a verification or a retry."""

    type: Literal["harness"] = "harness"
    id: str
    event: str
    message: str | None = None
    command: str | None = None
    path: str | None = None
    exit_code: int | None = None


class ErrorItem(ProtocolStruct):
    """An error that did not end the turn."""

    type: Literal["error"] = "error"
    id: str
    message: str = ""


class OtherItem(ProtocolStruct):
    """An item of a type that is not known here; `extra` holds its fields."""

    type: str
    id: str


ThreadItem = (
    AgentMessageItem
    | ReasoningItem
    | PlanItem
    | CommandExecutionItem
    | ToolInvocationItem
    | ToolOutputItem
    | FileChangeItem
    | McpToolCallItem
    | WebSearchItem
    | HarnessEventItem
    | ErrorItem
    | OtherItem
)

ITEM_CLASSES: Mapping[str, type[ProtocolStruct]] = {
    name: kind for kind in get_args(ThreadItem) for name in type_names(kind)
}


class ThreadStarted(ProtocolStruct):
    """A thread begins."""

    type: Literal["thread.started"] = "thread.started"
    thread_id: str = ""


class TurnStarted(ProtocolStruct):
    """A turn begins."""

    type: Literal["turn.started"] = "turn.started"


class TurnCompleted(ProtocolStruct):
    """A turn is complete."""

    type: Literal["turn.completed"] = "turn.completed"
    usage: ExecUsage = field(default_factory=ExecUsage)


class TurnFailed(ProtocolStruct):
    """A turn failed."""

    type: Literal["turn.failed"] = "turn.failed"
    message: str = ""
    usage: ExecUsage | UnsetType = UNSET

    @classmethod
    def normalize(cls, raw: JsonObject, path: str) -> JsonObject:
        """Read Codex's error object."""
        del path
        if "message" in raw:
            return raw
        return {**omit(raw, {"error"}), "message": as_string(as_object(raw.get("error")).get("message"))}


class ItemEventBase(ProtocolStruct):
    """An event that shows an item."""

    item: ThreadItem

    @classmethod
    def normalize(cls, raw: JsonObject, path: str) -> JsonObject:
        """Decode the item, also one of an unknown type."""
        item = raw.get("item")
        kind = ITEM_CLASSES.get(as_string(as_object(item).get("type")), OtherItem)
        return raw if item is None else {**raw, "item": decode(kind, item, join_path(path, "item"))}


class ItemStarted(ItemEventBase):
    """An item begins."""

    type: Literal["item.started"] = "item.started"


class ItemUpdated(ItemEventBase):
    """An item has changed."""

    type: Literal["item.updated"] = "item.updated"


class ItemCompleted(ItemEventBase):
    """An item will not change any more."""

    type: Literal["item.completed"] = "item.completed"


class ThreadCompleted(ProtocolStruct):
    """A thread ends; `subtype` is `success`, `cancelled` or the kind of error."""

    type: Literal["thread.completed"] = "thread.completed"
    thread_id: str = ""
    session_id: str = ""
    subtype: str = "success"
    outcome_code: str = ""
    result: str | None = None
    stop_reason: str | None = None
    usage: ExecUsage = field(default_factory=ExecUsage)
    total_cost_usd: float | None = None
    num_turns: int = 0


class ThreadCompactBoundary(ProtocolStruct):
    """The history before this point was compacted."""

    type: Literal["thread.compact_boundary"] = "thread.compact_boundary"
    thread_id: str = ""
    trigger: str = ""
    mode: str = ""
    original_message_count: int = 0
    compacted_message_count: int = 0
    history_artifact_path: str | None = None


class ContextReset(ProtocolStruct):
    """An approved plan continues in a fresh context."""

    type: Literal["context.reset"] = "context.reset"
    thread_id: str = ""
    turn_id: str = ""
    trigger: str = ""
    plan_preserved: bool = False
    previous_context_usage_percent: int = 0
    tool_budget_reset: bool = False


class PlanApprovalRequested(ProtocolStruct):
    """A plan waits for the user's decision."""

    type: Literal["plan.approval.requested"] = "plan.approval.requested"
    thread_id: str = ""
    turn_id: str = ""
    plan_file: str | None = None


class PlanApprovalResolved(ProtocolStruct):
    """The decision about a plan."""

    type: Literal["plan.approval.resolved"] = "plan.approval.resolved"
    thread_id: str = ""
    turn_id: str = ""
    decision: str = ""
    automatic: bool = False


class ThreadError(ProtocolStruct):
    """An error that ends the turn."""

    type: Literal["error"] = "error"
    message: str = ""


class OtherEvent(ProtocolStruct):
    """An event that has no counterpart in a response, such as `plan.delta` or `permission.requested`."""

    type: str


NoticeEvent = ThreadCompleted | ThreadCompactBoundary | ContextReset | PlanApprovalRequested | PlanApprovalResolved
"""The events that become extension events."""

ThreadEvent = (
    ThreadStarted
    | TurnStarted
    | TurnCompleted
    | TurnFailed
    | ItemStarted
    | ItemUpdated
    | ItemCompleted
    | NoticeEvent
    | ThreadError
    | OtherEvent
)

EVENT_CLASSES: Mapping[str, type[ProtocolStruct]] = {
    name: kind for kind in get_args(ThreadEvent) for name in type_names(kind)
}
