"""Thread events become responses: the events and items of each, and VT Code's own tests of its bridge, ported."""

import io
import itertools

import pytest
from msgspec.structs import replace

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
    McpToolCallItem,
    OtherEvent,
    OtherItem,
    PlanApprovalRequested,
    PlanApprovalResolved,
    PlanItem,
    ReasoningItem,
    ResponseBuilder,
    SseWriter,
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
)
from antiphon.protocol.events import Event, ExtensionEvent, OutputTextDelta, decode_event
from antiphon.protocol.items import (
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    OutputText,
    Reasoning,
    ReasoningText,
)
from antiphon.protocol.response import ResponseError, ResponseUsage
from antiphon.wire import json, sse
from tests.bridges.threads.play import check_stream, complete, grow, messages, output_of, play, thoughts
from tests.protocol.builders import (
    arguments_delta,
    call_end_events,
    event_types,
    item_added,
    item_done,
    make_call,
    make_message,
    message_events,
    number_events,
    reasoning_part_events,
)

STARTED = ThreadStarted(thread_id="thread_1")
COMPLETED = TurnCompleted(usage=ExecUsage(input_tokens=100, cached_input_tokens=50, output_tokens=25))


def events_between(*thread: ThreadEvent) -> list[Event]:
    """Return what comes after `in_progress`, numbered from zero."""
    return [replace(event, sequence_number=number) for number, event in enumerate(play(*thread)[0][2:])]


def warning_codes(response_of: ResponseBuilder) -> list[str]:
    return [warning.code for warning in response_of.response().warnings or []]


def test_response_builder_thread_lifecycle():
    events, builder = play(STARTED)
    assert event_types(events) == ["response.created", "response.in_progress"]
    assert (builder.response().status, builder.response().model) == ("in_progress", "gpt-5")
    builder.process_event(TurnStarted(), events.append)
    builder.process_event(COMPLETED, events.append)
    assert event_types(events)[2:] == ["response.completed"]
    assert builder.response().status == "completed"
    assert builder.response().usage == ResponseUsage.of(100, 25, cached=50)
    assert builder.response().output == []
    check_stream(events, builder.response())


def test_a_builder_without_events_has_a_response_in_progress():
    response = ResponseBuilder("gpt-5").response()
    assert (response.status, response.model, response.output) == ("in_progress", "gpt-5", [])
    assert response.id.startswith("resp_")
    assert ResponseBuilder("gpt-5").response().id != response.id


def test_response_builder_message_item():
    thread = grow(*messages("msg_1", "Hello", "Hello, world!"))
    assert events_between(*thread) == number_events(message_events("msg_0", 0, "Hello", ", world!"))


def test_an_item_that_begins_is_announced_even_without_text():
    assert event_types(events_between(ItemStarted(item=AgentMessageItem(id="1")))) == [
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert event_types(events_between(ItemStarted(item=ReasoningItem(id="1")))) == ["response.output_item.added"]


def test_atomic_completion_emits_added_and_done():
    thread = complete(*messages("msg_atomic", "Atomic message"))
    assert events_between(*thread) == number_events(message_events("msg_0", 0, "Atomic message"))


def test_update_without_start_handles_implicit_start():
    events, _ = play(ItemUpdated(item=AgentMessageItem(id="msg_implicit", text="Hello")))
    assert event_types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]


def test_unicode_delta_safety():
    thread = grow(*messages("msg_unicode", "Hello 👋", "Hello 👋 World 🌍", "Hello 👋 World 🌍🎵"))
    assert events_between(*thread) == number_events(message_events("msg_0", 0, "Hello 👋", " World 🌍", "🎵"))


def test_non_append_update_begins_another_content_part_with_the_whole_text():
    events, builder = play(
        *grow(*messages("msg_edit", "Original text", "Completely different", "Completely different!"))
    )
    deltas = [event.delta for event in events if isinstance(event, OutputTextDelta)]
    assert deltas == ["Original text", "Completely different", "!"]
    assert builder.response().output == [make_message("msg_0", "Original text", "Completely different!")]
    builder.process_event(COMPLETED, events.append)
    check_stream(events, builder.response())
    assert warning_codes(builder) == ["text_replaced"]


def test_a_text_that_is_trimmed_at_its_end_is_not_sent_again():
    events, builder = play(*grow(*messages("1", "Hello \n", "Hello")), COMPLETED)
    assert builder.response().output == [make_message("msg_0", "Hello \n")]
    assert warning_codes(builder) == []
    check_stream(events, builder.response())


def test_the_deltas_of_a_message_add_up_to_its_text_whatever_was_shown_when():
    events, builder = play(STARTED, *grow(*messages("1", "Hello", "Hello world", "Hello world!")), COMPLETED)
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == ["Hello", " world", "!"]
    assert builder.response().output_text == "Hello world!"
    check_stream(events, builder.response())


def test_reasoning_is_streamed_as_raw_reasoning():
    thread = grow(*thoughts("1", "", "Let me", "Let me see"))
    item = Reasoning(id="rs_0", content=[ReasoningText(text="Let me see")])
    assert events_between(*thread) == number_events(
        item_added(0, Reasoning(id="rs_0")), reasoning_part_events("rs_0", 0, 0, "Let me", " see"), item_done(0, item)
    )


def test_a_tool_invocation_is_a_function_call_with_its_arguments_as_a_string():
    invocation = ToolInvocationItem(
        id="tool_1", tool_name="exec_command", arguments={"command": ["git", "status"]}, tool_call_id="tool_call_0"
    )
    call = make_call("fc_0", "exec_command", '{"command":["git","status"]}', "tool_call_0")
    assert events_between(*grow(invocation, invocation)) == number_events(
        item_added(0, make_call("fc_0", "exec_command", "", "tool_call_0", "in_progress")),
        arguments_delta("fc_0", 0, call.arguments),
        call_end_events(0, call),
    )


@pytest.mark.parametrize("name", ["exec_command", "write_stdin", "shell"])
def test_the_name_and_the_arguments_of_a_tool_are_kept(name: str):
    invocation = ToolInvocationItem(id="tool_1", tool_name=name, arguments={"input": "y\n"}, status="in_progress")
    assert output_of(*complete(invocation)) == [make_call("fc_0", name, '{"input":"y\\n"}', "tool_1")]


def test_arguments_that_come_with_the_end_are_sent_then():
    started = ToolInvocationItem(id="1", tool_name="f", arguments={}, status="in_progress")
    done = ToolInvocationItem(id="1", tool_name="f", arguments={"a": 1})
    assert output_of(*grow(started, done)) == [make_call("fc_0", "f", '{"a":1}', "1")]


def test_arguments_that_change_after_they_were_sent_are_a_warning():
    shown = [ToolInvocationItem(id="1", tool_name="f", arguments={"a": number}) for number in (1, 2)]
    _, builder = play(*grow(*shown), COMPLETED)
    assert builder.response().output == [make_call("fc_0", "f", '{"a":1}', "1")]
    assert warning_codes(builder) == ["arguments_replaced"]


def test_a_failed_tool_invocation_is_a_completed_call():
    invocation = ToolInvocationItem(id="1", tool_name="f", status="failed")
    assert output_of(*complete(invocation)) == [make_call("fc_0", "f", "{}", "1")]


def test_a_tool_without_a_name_gets_one():
    assert output_of(*complete(ToolInvocationItem(id="1", tool_name=""))) == [
        make_call("fc_0", "unnamed_tool", "{}", "1")
    ]


def tool_output(output: str, call_id: str = "tool_1", **fields: str) -> ToolOutputItem:
    return ToolOutputItem(id=f"{call_id}:output", call_id=call_id, output=output, **fields)  # pyright: ignore[reportArgumentType]


def test_tool_output_updates_stream_as_function_call_output():
    shown = [tool_output(text, tool_call_id="tool_call_0") for text in ("", "On branch", "On branch main")]
    empty = FunctionCallOutput(id="fco_0", call_id="tool_call_0", output="", status="in_progress")
    done = FunctionCallOutput(id="fco_0", call_id="tool_call_0", output="On branch main", status="completed")
    # The specification has no deltas for outputs, so the last state carries the text.
    assert events_between(*grow(*shown)) == number_events(item_added(0, empty), item_done(0, done))


def test_tool_output_falls_back_to_harness_call_id_without_raw_tool_call_id():
    assert output_of(*complete(tool_output("done"))) == [
        FunctionCallOutput(id="fco_0", call_id="tool_1", output="done", status="completed")
    ]


def test_tool_output_uses_spool_reference_when_inline_output_is_empty():
    output = tool_output("", tool_call_id="tool_call_0", spool_path=".vtcode/context/tool_outputs/run-1.txt")
    text = "Output saved to .vtcode/context/tool_outputs/run-1.txt"
    assert output_of(*complete(output)) == [
        FunctionCallOutput(id="fco_0", call_id="tool_call_0", output=text, status="completed")
    ]


def test_reused_raw_tool_call_id_falls_back_to_harness_id_for_later_pair():
    invocations = [
        ToolInvocationItem(id=f"tool_{number}", tool_name="f", tool_call_id="tool_call_0") for number in (1, 2)
    ]
    assert output_of(*complete(*invocations, tool_output("ok", "tool_2", tool_call_id="tool_call_0"))) == [
        make_call("fc_0", "f", "{}", "tool_call_0"),
        make_call("fc_1", "f", "{}", "tool_2"),
        FunctionCallOutput(id="fco_0", call_id="tool_2", output="ok", status="completed"),
    ]


def test_a_call_id_that_is_too_long_is_the_same_for_the_call_and_its_output():
    id = "tool_" * 20
    call, output = output_of(*complete(ToolInvocationItem(id=id, tool_name="f"), tool_output("ok", id)))
    assert isinstance(call, FunctionCall)
    assert isinstance(output, FunctionCallOutput)
    assert (call.call_id, output.call_id) == ("call_0", "call_0")


def test_an_mcp_tool_call_is_a_function_call_whose_call_id_is_the_id_of_its_item():
    item = McpToolCallItem(id="mcp_1", tool_name="search", arguments={"q": "a"}, status="completed")
    assert output_of(*complete(item)) == [make_call("fc_0", "search", '{"q":"a"}', "mcp_1")]


@pytest.mark.parametrize(("result", "text"), [("found", "found"), ({"content": []}, '{"content":[]}')])
def test_the_result_of_an_mcp_tool_call_is_its_output(result: object, text: str):
    started = McpToolCallItem(id="mcp_1", tool_name="search", status="started")
    done = McpToolCallItem(id="mcp_1", tool_name="search", result=result, status="completed")
    assert output_of(*grow(started, done)) == [
        make_call("fc_0", "search", "{}", "mcp_1"),
        FunctionCallOutput(id="fco_0", call_id="mcp_1", output=text, status="completed"),
    ]


def extension(name: str, data: dict[str, object], status: str = "completed") -> ExtensionItem:
    return ExtensionItem(type=f"vtcode:{name}", id="item_0", status=status, extra={"data": data})


EXTENSIONS: dict[str, tuple[ThreadItem, ExtensionItem]] = {
    "command": (
        CommandExecutionItem(
            id="1", command="git status", arguments={"cwd": "/repo"}, aggregated_output="On branch main", exit_code=0
        ),
        extension(
            "command_execution",
            {
                "command": "git status",
                "arguments": {"cwd": "/repo"},
                "aggregated_output": "On branch main",
                "exit_code": 0,
                "status": "completed",
            },
        ),
    ),
    "failed command": (
        CommandExecutionItem(id="1", command="false", exit_code=1, status="failed"),
        extension(
            "command_execution",
            {"command": "false", "arguments": None, "aggregated_output": "", "exit_code": 1, "status": "failed"},
            "failed",
        ),
    ),
    "file change": (
        FileChangeItem(id="1", changes=[FileUpdateChange(path="src/main.rs", kind="update")]),
        extension("file_change", {"changes": [{"path": "src/main.rs", "kind": "update"}], "status": "completed"}),
    ),
    "failed file change": (
        FileChangeItem(id="1", status="failed"),
        extension("file_change", {"changes": [], "status": "failed"}, "failed"),
    ),
    "web search": (
        WebSearchItem(id="1", query="rust", provider="duckduckgo", results=["a", "b"]),
        extension("web_search", {"query": "rust", "provider": "duckduckgo", "results": ["a", "b"]}),
    ),
    "plan": (PlanItem(id="1", text="- Step 1\n- Step 2"), extension("plan", {"text": "- Step 1\n- Step 2"})),
    "harness": (
        HarnessEventItem(id="1", event="verification_failed", command="cargo test", exit_code=101),
        extension(
            "harness_event",
            {"event": "verification_failed", "message": None, "command": "cargo test", "path": None, "exit_code": 101},
        ),
    ),
    "error": (ErrorItem(id="1", message="It broke."), extension("error", {"message": "It broke."}, "failed")),
    "unknown": (OtherItem(type="todo_list", id="1", extra={"items": []}), extension("todo_list", {"items": []})),
    "unknown with an odd name": (OtherItem(type="to do!", id="1"), extension("to_do_", {})),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_item_that_the_specification_does_not_have_is_a_vtcode_extension(name: str):
    item, expected = EXTENSIONS[name]
    assert output_of(*complete(item)) == [expected]


def test_an_extension_item_is_announced_when_it_begins_and_done_with_its_last_state():
    shown = [CommandExecutionItem(id="1", command="ls", aggregated_output=text, status="in_progress") for text in "ab"]
    events = events_between(*grow(*shown))
    assert event_types(events) == ["response.output_item.added", "response.output_item.done"]
    [item] = output_of(*grow(*shown))
    assert isinstance(item, ExtensionItem)
    # The item is complete although its own status was not updated.
    assert item.status == "completed"
    assert item.extra
    assert item.extra["data"] == {
        "command": "ls",
        "arguments": None,
        "aggregated_output": "b",
        "exit_code": None,
        "status": "in_progress",
    }


NOTICES: list[tuple[ThreadEvent, str, dict[str, object]]] = [
    (
        ThreadCompactBoundary(
            thread_id="t", trigger="auto", mode="local", original_message_count=40, compacted_message_count=4
        ),
        "vtcode:thread_compact_boundary",
        {
            "thread_id": "t",
            "trigger": "auto",
            "mode": "local",
            "original_message_count": 40,
            "compacted_message_count": 4,
            "history_artifact_path": None,
        },
    ),
    (
        ContextReset(thread_id="t", turn_id="1", trigger="plan_approval", plan_preserved=True),
        "vtcode:context_reset",
        {
            "thread_id": "t",
            "turn_id": "1",
            "trigger": "plan_approval",
            "plan_preserved": True,
            "previous_context_usage_percent": 0,
            "tool_budget_reset": False,
        },
    ),
    (
        PlanApprovalRequested(thread_id="t", turn_id="1", plan_file="plan.md"),
        "vtcode:plan_approval_requested",
        {"thread_id": "t", "turn_id": "1", "plan_file": "plan.md"},
    ),
    (
        PlanApprovalResolved(thread_id="t", turn_id="1", decision="auto_accept", automatic=True),
        "vtcode:plan_approval_resolved",
        {"thread_id": "t", "turn_id": "1", "decision": "auto_accept", "automatic": True},
    ),
    (
        ThreadCompleted(thread_id="t", session_id="s", result="Done.", num_turns=1, total_cost_usd=0.5),
        "vtcode:thread_completed",
        {
            "thread_id": "t",
            "session_id": "s",
            "subtype": "success",
            "outcome_code": "",
            "result": "Done.",
            "stop_reason": None,
            "usage": {"input_tokens": 0, "cached_input_tokens": 0, "cache_creation_tokens": 0, "output_tokens": 0},
            "total_cost_usd": 0.5,
            "num_turns": 1,
        },
    ),
]


@pytest.mark.parametrize(("event", "type", "data"), NOTICES, ids=[type for _, type, _ in NOTICES])
def test_an_event_of_the_thread_is_a_vtcode_event(event: ThreadEvent, type: str, data: dict[str, object]):
    assert events_between(event) == [ExtensionEvent(type=type, sequence_number=0, extra={"data": data})]


def test_an_event_without_a_counterpart_causes_nothing():
    delta = OtherEvent(type="plan.delta", extra={"item_id": "1", "delta": "- Step"})
    assert events_between(STARTED, TurnStarted(), delta, OtherEvent(type="permission.requested")) == []


def test_a_failed_turn_is_a_failed_response_with_its_usage():
    failed = TurnFailed(message="boom", usage=ExecUsage(input_tokens=3, output_tokens=1))
    events, builder = play(STARTED, ItemStarted(item=AgentMessageItem(id="1", text="Hel")), failed)
    response = builder.response()
    assert response.status == "failed"
    assert response.error == ResponseError(code="model_error", message="boom", type="model_error")
    assert response.usage == ResponseUsage.of(3, 1)
    assert response.output == [make_message("msg_0", "Hel", status="incomplete")]
    check_stream(events, response)


def test_an_error_of_the_thread_is_a_failed_response():
    events, builder = play(STARTED, ThreadError(message="Out of disk."))
    assert builder.response().error == ResponseError(code="server_error", message="Out of disk.", type="server_error")
    check_stream(events, builder.response())


def test_failed_response_ignores_late_completion():
    late = [COMPLETED, *complete(*messages("1", "Hello")), ThreadCompleted(), ThreadStarted()]
    events, builder = play(STARTED, TurnFailed(message="boom"), *late)
    assert event_types(events) == ["response.created", "response.in_progress", "response.failed"]
    assert builder.response().status == "failed"


def test_a_late_update_of_a_completed_item_is_ignored():
    first, second = messages("1", "Hello", "Hello again")
    assert output_of(ItemCompleted(item=first), ItemUpdated(item=second), ItemCompleted(item=second)) == [
        make_message("msg_0", "Hello")
    ]


def test_items_with_the_same_id_and_other_types_are_two_items():
    events, builder = play(*complete(AgentMessageItem(id="1", text="a"), PlanItem(id="1", text="b")), COMPLETED)
    assert builder.response().output == [make_message("msg_0", "a"), extension("plan", {"text": "b"})]
    check_stream(events, builder.response())


def test_items_that_overlap_keep_their_own_text():
    (one, one_more), (two, two_more) = messages("1", "a", "ab"), messages("2", "x", "xy")
    shown = [ItemStarted(item=one), ItemStarted(item=two), ItemUpdated(item=one_more), ItemCompleted(item=two_more)]
    events, builder = play(*shown, ItemCompleted(item=one_more), COMPLETED)
    assert builder.response().output == [make_message("msg_0", "ab"), make_message("msg_1", "xy")]
    check_stream(events, builder.response())


def test_finish_fails_a_response_whose_turn_has_no_end():
    events, builder = play(STARTED, ItemStarted(item=AgentMessageItem(id="1", text="Hel")))
    response = builder.finish(events.append)
    assert response.status == "failed"
    assert response.error
    assert response.error.code == "upstream_cut"
    assert response.output == [make_message("msg_0", "Hel", status="incomplete")]
    check_stream(events, response)
    assert builder.finish(events.append) == response
    assert len(events) == events[-1].sequence_number + 1


@pytest.mark.parametrize(
    ("subtype", "status"),
    [("success", "completed"), ("cancelled", "cancelled"), ("error_max_turns", "failed"), ("unknown", "failed")],
)
def test_the_end_of_a_thread_ends_a_turn_that_has_no_end(subtype: str, status: str):
    events, builder = play(STARTED, ThreadCompleted(subtype=subtype, outcome_code="max_turns"))
    response = builder.finish(events.append)
    assert response.status == status
    assert (response.error.code if response.error else None) == ("max_turns" if status == "failed" else None)
    check_stream(events, response)


def test_a_whole_thread_is_one_response_of_all_its_turns():
    turns = [
        [TurnStarted(), *complete(*messages("item_0", "One.")), COMPLETED],
        [TurnStarted(), *complete(*messages("item_0", "Two.")), TurnFailed(message="boom")],
        [
            TurnStarted(),
            *complete(ToolInvocationItem(id="item_0", tool_name="f"), *messages("item_1", "3.")),
            COMPLETED,
        ],
    ]
    events, builder = play(STARTED, *itertools.chain(*turns), ThreadCompleted(), whole_thread=True)
    response = builder.finish(events.append)
    assert response.status == "completed"
    assert response.output_text == "One.Two.3."
    assert response.usage == ResponseUsage.of(200, 50, cached=100)
    assert events[-2].type == "vtcode:thread_completed"
    check_stream(events, response)


def test_a_whole_thread_ends_as_its_last_turn():
    events, builder = play(
        STARTED, COMPLETED, TurnStarted(), ThreadError(message="boom"), ThreadCompleted(), whole_thread=True
    )
    response = builder.finish(events.append)
    assert response.error == ResponseError(code="server_error", message="boom", type="server_error")


def test_an_sse_file_ends_with_done_and_our_reader_reads_it():
    file, events = io.BytesIO(), list[Event]()
    writer, builder = SseWriter(file), ResponseBuilder("gpt-5")
    for event in [STARTED, *complete(*messages("1", "Hello\nworld")), COMPLETED]:
        builder.process_event(event, lambda event: (writer(event), events.append(event)))
    writer.close()
    writer.close()
    *written, done = sse.Decoder().feed(file.getvalue())
    assert done.data == sse.DONE
    assert [event.event for event in written] == event_types(events)
    assert [decode_event(json.decode(event.data)) for event in written] == events


def test_a_thread_with_too_many_items_fails_with_what_fits():
    thread = complete(*(PlanItem(id=str(number)) for number in range(20_001)))
    events, builder = play(*thread)
    response = builder.response()
    assert response.error
    assert response.error.code == "answer_too_large"
    assert len(response.output) == 20_000
    assert events[-1].type == "response.failed"


def test_a_message_holds_plain_text():
    [message] = output_of(*complete(*messages("1", "Hello")))
    assert message == make_message("msg_0", "Hello")
    assert message.content == [OutputText(text="Hello")]  # pyright: ignore[reportAttributeAccessIssue]
