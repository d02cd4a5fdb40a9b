"""Graphlit's events, field by field, in Python's spelling."""

import pytest

from antiphon.client.agent import events
from antiphon.client.agent.context_window import ContextUsage

FIELDS = {
    events.ConversationStarted: "conversation_id timestamp model",
    events.ConversationQueued: "conversation_id timestamp",
    events.ConversationCancelled: "conversation_id timestamp",
    events.ContextWindow: "usage timestamp",
    ContextUsage: "used_tokens max_tokens percentage remaining_tokens",
    events.ContextManagement: "action usage timestamp",
    events.ContextAction: """type tool_name original_tokens truncated_tokens dropped_rounds
        kept_rounds""",
    events.MessageUpdate: "message is_streaming reasoning metrics",
    events.AgentMessage: """message role timestamp model throughput completion_time tokens
        tool_calls""",
    events.AgentReasoning: "content format signature",
    events.Metrics: """ttft elapsed_time conversation_duration token_count avg_token_delay
        streaming_throughput total_time llm_tokens""",
    events.ToolUpdate: """tool_call status timestamp started_at completed_at duration_ms failed_at
        result error""",
    events.AgentToolCall: """id name arguments started_at completed_at duration_ms failed_at
        first_status_at status""",
    events.ReasoningUpdate: "content format is_complete",
    events.ConversationCompleted: "message reasoning metrics context_window usage",
    events.AgentUsage: """prompt_tokens completion_tokens total_tokens model cached_input_tokens
        rounds""",
    events.AgentFailed: "error conversation_id timestamp",
    events.AgentErrorDetails: "message code recoverable",
    events.TokenReceived: "token",
    events.ToolCallStart: "id name",
    events.ToolCallDelta: "tool_call_id argument_delta",
    events.ToolCallParsed: "id name arguments",
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_an_event_has_the_fields_of_graphlits_event(kind: type):
    assert set(FIELDS[kind].split()) <= set(kind.__struct_fields__)  # type: ignore[attr-defined]
