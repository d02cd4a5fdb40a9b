"""Hypothesis strategies for thread events: any that an agent could report, sensible or not."""

from hypothesis import strategies as st

from antiphon.bridges.threads import (
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
    LLMResponse,
    McpToolCallItem,
    NormalizedDone,
    NormalizedReasoningDelta,
    NormalizedTextDelta,
    NormalizedToolCallDelta,
    NormalizedToolCallStart,
    NormalizedUsage,
    OpenResponsesConfig,
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
    ThreadStarted,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WebSearchItem,
)
from antiphon.bridges.threads.events import ThreadItem
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.response import ResponseUsage

IDS = st.sampled_from(["1", "2", "3", "", "long" * 20, "\ud83c"])
TEXTS = st.sampled_from(
    ["", "a", "ab", "ab ", "abc", "x", "👋", "👋 🌍", "\ud83c", "\ud83c\udfb5", "a\ud83c"]
) | st.text(max_size=3)
STATUSES = st.sampled_from(["in_progress", "started", "completed", "failed", "declined", "?"])
ARGUMENTS = st.sampled_from([None, {}, {"a": 1}, {"a": "\ud83c"}, [], "", "text", 7, '{"a":'])
CALL_IDS = st.none() | st.sampled_from(["", "call_1", "call_2", "1", "c" * 65])

ITEMS: st.SearchStrategy[ThreadItem] = st.one_of(
    st.builds(AgentMessageItem, id=IDS, text=TEXTS),
    st.builds(ReasoningItem, id=IDS, text=TEXTS),
    st.builds(PlanItem, id=IDS, text=TEXTS),
    st.builds(
        CommandExecutionItem, id=IDS, command=TEXTS, arguments=ARGUMENTS, aggregated_output=TEXTS, status=STATUSES
    ),
    st.builds(
        ToolInvocationItem,
        id=IDS,
        tool_name=st.sampled_from(["", "f", "\ud83c"]),
        arguments=ARGUMENTS,
        tool_call_id=CALL_IDS,
        status=STATUSES,
    ),
    st.builds(
        ToolOutputItem,
        id=IDS,
        call_id=IDS,
        tool_call_id=CALL_IDS,
        spool_path=st.none() | TEXTS,
        output=TEXTS,
        status=STATUSES,
    ),
    st.builds(FileChangeItem, id=IDS, changes=st.just([FileUpdateChange(path="a")]), status=STATUSES),
    st.builds(McpToolCallItem, id=IDS, tool_name=st.just("f"), arguments=ARGUMENTS, result=ARGUMENTS, status=STATUSES),
    st.builds(WebSearchItem, id=IDS, query=TEXTS),
    st.builds(HarnessEventItem, id=IDS, event=st.just("turn_blocked"), message=st.none() | TEXTS),
    st.builds(ErrorItem, id=IDS, message=TEXTS),
    st.builds(OtherItem, type=st.sampled_from(["", "todo_list", "a:b", "\ud83c"]), id=IDS),
)
COUNTS = st.integers(-2, 1000)
USAGES = st.builds(ExecUsage, input_tokens=COUNTS, cached_input_tokens=COUNTS, output_tokens=COUNTS)
ITEM_EVENTS: st.SearchStrategy[ThreadEvent] = st.one_of(
    *(st.builds(kind, item=ITEMS) for kind in (ItemStarted, ItemUpdated, ItemCompleted))
)
ENDS: st.SearchStrategy[ThreadEvent] = st.one_of(
    st.builds(TurnCompleted, usage=USAGES),
    st.builds(TurnFailed, message=TEXTS, usage=USAGES),
    st.builds(ThreadError, message=TEXTS),
)
EVENTS: st.SearchStrategy[ThreadEvent] = st.one_of(
    ITEM_EVENTS,
    ITEM_EVENTS,
    st.sampled_from([ThreadStarted(), TurnStarted(), ThreadCompactBoundary(), ContextReset(), OtherEvent(type="x")]),
    st.builds(PlanApprovalRequested, plan_file=TEXTS),
    st.builds(ThreadCompleted, subtype=st.sampled_from(["success", "cancelled", "unknown"]), result=st.none() | TEXTS),
)


@st.composite
def threads(draw: st.DrawFn) -> list[ThreadEvent]:
    """Draw a thread: nearly always some events before the first end of a turn."""
    turns = draw(st.lists(st.tuples(st.lists(EVENTS, max_size=12), ENDS), max_size=2))
    events = [event for events, end in turns for event in [*events, end]]
    return events + draw(st.lists(EVENTS, max_size=4))


RESPONSE_USAGES = st.builds(ResponseUsage.of, st.integers(0, 9), st.integers(0, 9))
CALLS = st.builds(
    FunctionCall,
    call_id=st.sampled_from(["", "call_1", "call_2"]),
    name=st.sampled_from(["", "f"]),
    arguments=st.sampled_from(["", "{", "{}", '{"a":1}']),
)
NORMALIZED = st.lists(
    st.one_of(
        st.builds(NormalizedTextDelta, TEXTS),
        st.builds(NormalizedReasoningDelta, TEXTS),
        st.builds(NormalizedToolCallStart, st.sampled_from(["", "call_1", "call_2"]), st.none() | st.just("f")),
        st.builds(
            NormalizedToolCallDelta,
            st.sampled_from(["", "call_1", "call_2"]),
            st.sampled_from(["", "{", "}", '{"a":1}']),
        ),
        st.builds(NormalizedUsage, RESPONSE_USAGES),
    ),
    max_size=8,
)
DONE = st.builds(
    NormalizedDone,
    st.builds(
        LLMResponse,
        content=st.none() | TEXTS,
        reasoning=st.none() | TEXTS,
        tool_calls=st.lists(CALLS, max_size=2),
        usage=st.none() | RESPONSE_USAGES,
        finish_reason=st.sampled_from(["stop", "length", "tool_calls", "content_filter", "pause", "refusal", "error"]),
        error=TEXTS,
    ),
)

CONFIGS = st.builds(
    OpenResponsesConfig,
    enabled=st.just(True),
    emit_events=st.booleans(),
    include_extensions=st.booleans(),
    map_tool_calls=st.booleans(),
    include_reasoning=st.booleans(),
)

ONE_OF_EACH_ITEM: list[ThreadItem] = [
    AgentMessageItem(id="1", text="Hello"),
    ReasoningItem(id="2", text="Hm", stage="analysis"),
    PlanItem(id="3", text="- Step"),
    CommandExecutionItem(id="4", command="ls", arguments={"cwd": "/"}, exit_code=0),
    ToolInvocationItem(id="5", tool_name="f", arguments={"a": [1]}, tool_call_id="call_1", outcome="success"),
    ToolOutputItem(id="6", call_id="5", tool_call_id="call_1", output="ok", spool_path="a.txt"),
    FileChangeItem(id="7", changes=[FileUpdateChange(path="a", kind="add")]),
    McpToolCallItem(id="8", tool_name="g", arguments=None, result="ok", status="completed"),
    WebSearchItem(id="9", query="q", provider="p", results=["r"]),
    HarnessEventItem(id="10", event="turn_blocked", message="m"),
    ErrorItem(id="11", message="m"),
    OtherItem(type="todo_list", id="12", extra={"items": []}),
]
KNOWN_EVENTS: list[ThreadEvent] = [
    ThreadStarted(thread_id="t"),
    TurnStarted(),
    TurnCompleted(usage=ExecUsage(input_tokens=1, cached_input_tokens=1, cache_creation_tokens=1, output_tokens=1)),
    TurnFailed(message="m", usage=ExecUsage(input_tokens=1)),
    *(ItemStarted(item=item) for item in ONE_OF_EACH_ITEM),
    *(ItemUpdated(item=item) for item in ONE_OF_EACH_ITEM),
    *(ItemCompleted(item=item) for item in ONE_OF_EACH_ITEM),
    ThreadCompleted(thread_id="t", session_id="s", outcome_code="ok", result="r", total_cost_usd=0.5, num_turns=1),
    ThreadCompactBoundary(thread_id="t", trigger="auto", mode="local", original_message_count=2),
    ContextReset(thread_id="t", turn_id="1", plan_preserved=True),
    PlanApprovalRequested(thread_id="t", turn_id="1", plan_file="p.md"),
    PlanApprovalResolved(thread_id="t", turn_id="1", decision="execute", automatic=True),
    ThreadError(message="m"),
    OtherEvent(type="plan.delta", extra={"delta": "-"}),
]
