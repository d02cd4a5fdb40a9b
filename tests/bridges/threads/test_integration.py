import pytest

from antiphon.bridges.threads import (
    AgentMessageItem,
    CommandExecutionItem,
    ContextReset,
    ErrorItem,
    ExecUsage,
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
    OpenResponsesConfig,
    OpenResponsesIntegration,
    ReasoningItem,
    ThreadEvent,
    ThreadStarted,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from antiphon.protocol.events import Event, ItemEvent, OutputItemAdded
from antiphon.protocol.response import Response
from tests.bridges.threads.play import check_stream
from tests.protocol.builders import event_types

COMPLETED = TurnCompleted(usage=ExecUsage(input_tokens=1, output_tokens=2))

# Something of everything, item by item and interleaved, with updates of each that could leak.
THREAD: list[ThreadEvent] = [
    ThreadStarted(thread_id="thread_1"),
    TurnStarted(),
    ItemStarted(item=ReasoningItem(id="1", text="Let me")),
    ItemStarted(item=ToolInvocationItem(id="2", tool_name="f", arguments={"a": 1}, status="in_progress")),
    ItemUpdated(item=ReasoningItem(id="1", text="Let me see")),
    ItemStarted(item=ToolOutputItem(id="2:output", call_id="2", status="in_progress")),
    ItemStarted(item=AgentMessageItem(id="3", text="Hel")),
    ItemUpdated(item=ToolOutputItem(id="2:output", call_id="2", output="so far", status="in_progress")),
    ItemStarted(item=CommandExecutionItem(id="4", command="ls", status="in_progress")),
    ItemUpdated(item=AgentMessageItem(id="3", text="Hello")),
    ItemCompleted(item=ToolInvocationItem(id="2", tool_name="f", arguments={"a": 1})),
    ItemCompleted(item=ToolOutputItem(id="2:output", call_id="2", output="so far, so good")),
    ItemCompleted(item=ReasoningItem(id="1", text="Let me see.")),
    ContextReset(thread_id="thread_1"),
    ItemCompleted(item=CommandExecutionItem(id="4", command="ls", exit_code=0)),
    ItemCompleted(item=McpToolCallItem(id="5", tool_name="g", result="ok", status="completed")),
    ItemCompleted(item=ErrorItem(id="6", message="Careful.")),
    ItemCompleted(item=AgentMessageItem(id="3", text="Hello.")),
    COMPLETED,
]


def run(**switches: bool) -> tuple[list[Event], Response | None]:
    integration = OpenResponsesIntegration(OpenResponsesConfig(**switches))  # pyright: ignore[reportArgumentType]
    integration.start_response("gpt-5")
    for event in THREAD:
        integration.process_event(event)
    response = integration.finish_response()
    return integration.take_events(), response


def test_without_enabled_nothing_is_built_or_emitted():
    assert run() == ([], None)
    integration = OpenResponsesIntegration()
    integration.start_response("gpt-5")
    assert not integration.enabled
    assert integration.current_response() is None


def test_everything_is_in_the_response_by_default():
    events, response = run(enabled=True)
    assert response is not None
    check_stream(events, response)
    assert [item.type for item in response.output] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
        "vtcode:command_execution",
        "function_call",
        "function_call_output",
        "vtcode:error",
    ]
    assert "vtcode:context_reset" in event_types(events)


def test_without_emit_events_there_is_only_the_response():
    events, response = run(enabled=True, emit_events=False)
    assert events == []
    assert response is not None
    assert response.status == "completed"
    assert len(response.output) == 8


@pytest.mark.parametrize(
    ("switch", "left_out"),
    [
        ("include_reasoning", {"reasoning"}),
        ("map_tool_calls", {"function_call", "function_call_output"}),
        ("include_extensions", {"vtcode:command_execution", "vtcode:error", "vtcode:context_reset"}),
    ],
)
def test_a_switch_leaves_its_items_out_of_the_events_and_of_the_response(switch: str, left_out: set[str]):
    everything, _ = run(enabled=True)
    events, response = run(enabled=True, **{switch: False})
    assert response is not None
    check_stream(events, response)
    kept = types_of(everything) - left_out
    assert types_of(events) == kept
    assert {item.type for item in response.output} == {type for type in kept if type != "vtcode:context_reset"}


def types_of(events: list[Event]) -> set[str]:
    """Return the types of all items and extension events of a stream."""
    items = {event.item.type for event in events if isinstance(event, OutputItemAdded)}
    return items | {event.type for event in events if event.type.startswith("vtcode:")}


def test_with_all_switches_off_only_the_message_is_left_without_gaps_or_orphans():
    off = dict.fromkeys(["include_extensions", "map_tool_calls", "include_reasoning"], False)
    events, response = run(enabled=True, **off)
    assert response is not None
    check_stream(events, response)
    assert [item.type for item in response.output] == ["message"]
    assert response.output_text == "Hello."
    assert {event.output_index for event in events if isinstance(event, ItemEvent | OutputItemAdded)} == {0}
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_callback_receives_each_event_and_its_type():
    integration, types = OpenResponsesIntegration(OpenResponsesConfig(enabled=True)), list[str]()
    integration.set_callback(lambda event: types.append(event.type))
    integration.start_response("gpt-5")
    for event in THREAD:
        integration.process_event(event)
    assert types == event_types(run(enabled=True)[0])
    assert integration.take_events() == []


def test_events_can_be_taken_while_the_response_is_built():
    integration = OpenResponsesIntegration(OpenResponsesConfig(enabled=True))
    integration.start_response("gpt-5")
    integration.process_event(ThreadStarted())
    assert event_types(integration.take_events()) == ["response.created", "response.in_progress"]
    current = integration.current_response()
    assert current is not None
    assert (current.status, current.model) == ("in_progress", "gpt-5")
    integration.process_event(COMPLETED)
    assert event_types(integration.take_events()) == ["response.completed"]


def test_finish_ends_the_stream_of_a_turn_that_has_not_ended():
    integration = OpenResponsesIntegration(OpenResponsesConfig(enabled=True))
    integration.start_response("gpt-5")
    integration.process_event(ItemStarted(item=AgentMessageItem(id="1", text="Hel")))
    response = integration.finish_response()
    assert response is not None
    assert response.status == "failed"
    check_stream(integration.take_events(), response)
    assert integration.current_response() is None
    assert integration.finish_response() is None


def test_each_response_has_a_stream_of_its_own():
    integration = OpenResponsesIntegration(OpenResponsesConfig(enabled=True))
    integration.process_event(ThreadStarted())
    assert integration.take_events() == []
    integration.start_response("gpt-5")
    integration.process_event(ThreadStarted())
    integration.start_response("gpt-5")
    first = integration.take_events()
    assert event_types(first) == ["response.created", "response.in_progress", "response.failed"]
    integration.process_event(TurnFailed(message="boom"))
    response = integration.finish_response()
    assert response is not None
    second = integration.take_events()
    check_stream(second, response)
    assert response.error
    assert response.error.message == "boom"


def test_the_switches_apply_to_the_stream_of_a_provider_too():
    off = OpenResponsesConfig(enabled=True, map_tool_calls=False, include_reasoning=False)
    integration = OpenResponsesIntegration(off)
    integration.start_response("gpt-5")
    for event in [
        NormalizedReasoningDelta("Hm"),
        NormalizedToolCallStart("call_1", "f"),
        NormalizedTextDelta("Hello"),
        NormalizedToolCallDelta("call_1", "{}"),
        NormalizedDone(LLMResponse(content="Hello", reasoning="Hm", tool_calls=[])),
    ]:
        integration.process_normalized_event(event)
    response = integration.finish_response()
    assert response is not None
    check_stream(integration.take_events(), response)
    assert [item.type for item in response.output] == ["message"]
