import pytest

from antiphon.bridges.threads.log import ThreadLogConverter
from antiphon.protocol.events import Event
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire.json import JSONError
from tests.bridges.threads.play import check_stream, make_builder
from tests.bridges.threads.test_read import CODEX
from tests.protocol.builders import event_types, make_message


def convert(log: bytes) -> tuple[list[Event], ThreadLogConverter]:
    converter, events = ThreadLogConverter(make_builder(whole_thread=True)), list[Event]()
    for line in filter(bytes.strip, log.splitlines()):
        events += converter.feed(line)
    events += converter.end()
    return events, converter


def test_a_log_becomes_a_response_and_the_input_of_the_next_request():
    events, converter = convert(CODEX)
    check_stream(events, converter.response)
    assert converter.response.status == "completed"
    assert converter.response.output_text == "Done."
    assert [item.type for item in converter.next_input] == [
        "vtcode:todo_list",
        "vtcode:command_execution",
        "function_call",
        "function_call_output",
        "message",
    ]


def test_a_log_of_several_turns_is_one_response():
    item = b'{"id":"item_0","type":"agent_message","text":"%b"}'
    turn = b'{"type":"turn.started"}\n{"type":"item.completed","item":%b}\n' % item
    end = b'{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":2}}\n'
    events, converter = convert(turn % b"a" + end + turn % b"b" + end)
    check_stream(events, converter.response)
    assert converter.response.output == [make_message("msg_0", "a"), make_message("msg_1", "b")]
    assert converter.response.usage is not None
    assert converter.response.usage.total_tokens == 6


@pytest.mark.parametrize("log", [b"", b'{"type":"thread.started","thread_id":"1"}'])
def test_a_log_that_was_cut_is_a_failed_response(log: bytes):
    events, converter = convert(log)
    check_stream(events, converter.response)
    assert event_types(events)[-1] == "response.failed"


def test_what_cannot_be_read_is_an_error():
    converter = ThreadLogConverter()
    with pytest.raises(JSONError):
        converter.feed(b"no JSON")
    with pytest.raises(InvalidValueError, match=r"item: this field is required"):
        converter.feed(b'{"type":"item.started"}')
