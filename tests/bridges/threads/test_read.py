import itertools

import pytest
from msgspec import UNSET

from antiphon.bridges.threads import (
    AgentMessageItem,
    CommandExecutionItem,
    ExecUsage,
    FileChangeItem,
    FileUpdateChange,
    ItemCompleted,
    ItemStarted,
    McpToolCallItem,
    OtherEvent,
    OtherItem,
    ThreadCompactBoundary,
    ThreadError,
    ThreadEvent,
    ThreadStarted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    decode_thread_event,
    from_exec_usage,
    read_thread_events,
)
from antiphon.protocol.response import ResponseUsage
from antiphon.protocol.struct import InvalidValueError
from tests.bridges.threads.play import check_stream, play
from tests.bridges.threads.strategies import KNOWN_EVENTS
from tests.protocol.builders import make_call, to_json

CODEX = b"""\
{"type":"thread.started","thread_id":"67e55044"}
{"type":"turn.started"}
{"type":"item.started","item":{"id":"item_0","type":"todo_list","items":[{"text":"Run tests","completed":false}]}}
{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"",\
"exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"a\\n",\
"exit_code":0,"status":"declined"}}
{"type":"item.completed","item":{"id":"item_2","type":"mcp_tool_call","server":"fs","tool":"read_file",\
"arguments":{"path":"a"},"result":null,"error":{"message":"File not found"},"status":"failed"}}
{"type":"item.completed","item":{"id":"item_3","type":"agent_message","text":"Done."}}

{"type":"turn.completed","usage":{"input_tokens":250,"cached_input_tokens":50,"output_tokens":120}}
"""


def read(text: bytes) -> list[ThreadEvent]:
    return list(read_thread_events(text.splitlines(keepends=True)))


def test_a_log_of_codex_is_read():
    assert read(CODEX) == [
        ThreadStarted(thread_id="67e55044"),
        TurnStarted(),
        ItemStarted(
            item=OtherItem(type="todo_list", id="item_0", extra={"items": [{"text": "Run tests", "completed": False}]})
        ),
        ItemStarted(item=CommandExecutionItem(id="item_1", command="ls", status="in_progress")),
        ItemCompleted(
            item=CommandExecutionItem(
                id="item_1", command="ls", aggregated_output="a\n", exit_code=0, status="declined"
            )
        ),
        ItemCompleted(
            item=McpToolCallItem(
                id="item_2",
                tool_name="read_file",
                arguments={"path": "a"},
                result="File not found",
                status="failed",
                extra={"server": "fs", "error": {"message": "File not found"}},
            )
        ),
        ItemCompleted(item=AgentMessageItem(id="item_3", text="Done.")),
        TurnCompleted(usage=ExecUsage(input_tokens=250, cached_input_tokens=50, output_tokens=120)),
    ]


def test_a_log_of_codex_becomes_a_legal_stream():
    events, builder = play(*read(CODEX))
    response = builder.response()
    check_stream(events, response)
    assert response.usage == ResponseUsage.of(250, 120, cached=50)
    assert [(item.type, getattr(item, "status", None)) for item in response.output] == [
        ("vtcode:todo_list", "completed"),
        ("vtcode:command_execution", "failed"),
        ("function_call", "completed"),
        ("function_call_output", "completed"),
        ("message", "completed"),
    ]
    assert response.output[2] == make_call("fc_0", "read_file", '{"path":"a"}', "item_2")


def test_the_versions_that_wrap_an_event_of_the_harness_log_are_unwrapped():
    line = b'{"schema_version":"0.14.0","event":{"type":"turn.failed","message":"boom","usage":null}}'
    assert read(line) == [TurnFailed(message="boom")]


def test_the_error_object_of_codex_is_the_message_of_a_failed_turn():
    assert read(b'{"type":"turn.failed","error":{"message":"boom"}}') == [TurnFailed(message="boom")]
    assert read(b'{"type":"turn.failed"}') == [TurnFailed(message="", usage=UNSET)]
    assert read(b'{"type":"error","message":"Lost."}') == [ThreadError(message="Lost.")]


def test_an_unknown_event_and_unknown_fields_are_kept():
    assert read(b'{"type":"plan.delta","item_id":"1","delta":"-"}') == [
        OtherEvent(type="plan.delta", extra={"item_id": "1", "delta": "-"})
    ]
    assert read(b'{"type":"thread.compact_boundary","thread_id":"t","new_prefix_hash":"a"}') == [
        ThreadCompactBoundary(thread_id="t", extra={"new_prefix_hash": "a"})
    ]


def test_blank_lines_carriage_returns_and_a_byte_order_mark_are_skipped():
    assert read(b'\xef\xbb\xbf{"type":"turn.started"}\r\n \r\n\n{"type":"turn.started"}') == [TurnStarted()] * 2


def test_null_is_the_default_of_a_field():
    usage = b'{"input_tokens":null,"cached_input_tokens":null,"output_tokens":5}'
    assert read(b'{"type":"turn.completed","usage":%b}' % usage) == [TurnCompleted(usage=ExecUsage(output_tokens=5))]
    assert read(b'{"type":"turn.completed","usage":null}') == [TurnCompleted()]
    item = b'{"id":"1","type":"file_change","changes":[{"path":"a","kind":null}],"status":null}'
    assert read(b'{"type":"item.completed","item":%b}' % item) == [
        ItemCompleted(item=FileChangeItem(id="1", changes=[FileUpdateChange(path="a")]))
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", r"^line 2: .*JSON.* Each line has to be one event\.$"),
        (b"\xff", r"^line 2: .* Each line has to be one event\.$"),
        (b"7", r"^line 2: expected an object, got 7$"),
        (b"{}", r"^line 2: type: this field is required$"),
        (b'{"type":7}', r"^line 2: type: expected a string, got 7$"),
        (b'{"type":"item.started"}', r"^line 2: item: this field is required$"),
        (b'{"type":"item.started","item":7}', r"^line 2: item: expected an object, got 7$"),
        (b'{"type":"item.started","item":{"type":"plan"}}', r"^line 2: item\.id: this field is required$"),
        (
            b'{"type":"item.updated","item":{"id":"1","type":"agent_message","text":[]}}',
            r"^line 2: item\.text: expected a string, got an array$",
        ),
        (b'{"schema_version":"1","event":{"type":"error","message":1}}', r"^line 2: event\.message: expected a string"),
        (b"[" * 100_000, r"^line 2: "),
    ],
)
def test_an_error_names_the_line_and_the_field(line: bytes, message: str):
    events = read_thread_events([b'{"type":"turn.started"}\n', line])
    assert next(events) == TurnStarted()
    with pytest.raises(InvalidValueError, match=message):
        next(events)


def test_events_are_read_while_the_log_is_written():
    log = itertools.chain([b'{"type":"turn.started"}\n'], iter(lambda: pytest.fail("read too far"), None))
    assert next(read_thread_events(log)) == TurnStarted()


@pytest.mark.parametrize("event", KNOWN_EVENTS, ids=lambda event: event.type)
def test_every_event_that_is_written_as_json_is_read_again(event: ThreadEvent):
    assert decode_thread_event(to_json(event)) == event


def test_from_exec_usage_adds_up_and_has_the_cached_tokens():
    usage = from_exec_usage(ExecUsage(input_tokens=1000, cached_input_tokens=500, output_tokens=200))
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (1000, 200, 1200)
    assert usage.input_tokens_details.cached_tokens == 500
    # The specification requires the details, also where VT Code leaves them out.
    assert from_exec_usage(ExecUsage(input_tokens=1, output_tokens=2)) == ResponseUsage.of(1, 2, cached=0)
