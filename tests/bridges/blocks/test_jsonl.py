"""Lines of JSON as block events, and back."""

import json

import pytest

from antiphon.bridges.blocks.events import (
    BlockDelta,
    BlockEvent,
    BlockStart,
    Ping,
    RefusalBlock,
    Status,
    TextBlock,
    ToolUseBlock,
    UnknownEvent,
    Usage,
)
from antiphon.bridges.blocks.jsonl import RecordedEvent, RunInfo, encode_block_event, encode_recording, read_line
from antiphon.protocol.struct import InvalidValueError
from antiphon.wire.json import JSONError
from tests.bridges.blocks.runs import FAILED, SCHEMES, WEATHER, block, record


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_recording_is_read_event_by_event(scheme: str):
    info, *read = map(read_line, record(SCHEMES[scheme]))
    assert info == RunInfo(1_767_624_445, "m", "A call")
    assert read == [RecordedEvent(event, elapsed) for elapsed, event in enumerate(SCHEMES[scheme])]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_recording_is_written_as_the_recorder_writes_it(scheme: str):
    recorded = [RecordedEvent(event, elapsed) for elapsed, event in enumerate(SCHEMES[scheme])]
    assert list(encode_recording(RunInfo(1_767_624_445, "m", "A call"), recorded)) == record(SCHEMES[scheme])


@pytest.mark.parametrize(
    ("event", "written"),
    [
        (Ping(), '{"Ping":{"timestamp":null}}'),
        (FAILED, '{"Status":{"status":"Failed"}}'),
        (block(0, TextBlock())[0], '{"BlockStart":{"index":0,"block_type":"Text","metadata":"Text"}}'),
        (block(2, RefusalBlock())[0], '{"BlockStart":{"index":2,"block_type":"Refusal","metadata":"Refusal"}}'),
        (
            BlockStart(1, WEATHER),
            '{"BlockStart":{"index":1,"block_type":"ToolUse",'
            '"metadata":{"ToolUse":{"id":"call_1","name":"get_weather"}}}}',
        ),
        (BlockDelta(0, "InputJson", "{}"), '{"BlockDelta":{"index":0,"delta":{"InputJson":"{}"}}}'),
        (
            block(0, TextBlock(), stop_reason="EndTurn")[-1],
            '{"BlockStop":{"index":0,"block_type":"Text","stop_reason":"EndTurn"}}',
        ),
    ],
)
def test_an_event_is_one_object_that_is_tagged_with_its_name(event: BlockEvent, written: str):
    assert encode_block_event(event).decode() == written
    assert read_line(written.encode()) == RecordedEvent(event)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ('"Ping"', Ping()),
        ('{"Status":"Completed"}', Status("Completed")),
        ('{"Usage":{"input_tokens":1,"cost":2}}', Usage(1)),
        ('{"BlockStart":{"index":0,"block_type":"Text"}}', BlockStart(0, TextBlock())),
        (
            '{"BlockStart":{"index":0,"metadata":{"ToolUse":{"id":"a","name":"f"}}}}',
            BlockStart(0, ToolUseBlock("a", "f")),
        ),
        ('{"UnhandledSse":{"provider":"openai"}}', UnknownEvent("UnhandledSse", {"provider": "openai"})),
        ('{"elapsed_ms":7,"data":{"Ping":{}}}', Ping()),
        ('{"BlockDelta":{"index":0,"delta":{"Text":"\\ud83c"}}}', BlockDelta(0, "Text", "\ud83c")),
    ],
)
def test_other_spellings_and_unknown_fields_are_read(line: str, event: BlockEvent):
    read = read_line(line.encode())
    assert isinstance(read, RecordedEvent)
    assert read.event == event


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("[]", ""),
        ('{"Ping":{},"Usage":{}}', ""),
        ('{"Ping":[]}', "Ping"),
        ('{"Usage":{"input_tokens":"many"}}', "Usage.input_tokens"),
        ('{"Usage":{"input_tokens":-1}}', "Usage.input_tokens"),
        ('{"Status":"Dancing"}', "Status.status"),
        ('{"Error":{"code":"x"}}', "Error.message"),
        ('{"BlockStart":{"block_type":"Text"}}', "BlockStart.index"),
        ('{"BlockStart":{"index":1e300,"block_type":"Text"}}', "BlockStart.index"),
        ('{"BlockStart":{"index":0}}', "BlockStart.block_type"),
        ('{"BlockStart":{"index":0,"block_type":"Poem"}}', "BlockStart.block_type"),
        ('{"BlockStart":{"index":0,"metadata":{"ToolUse":{"id":"a"}}}}', "BlockStart.metadata.ToolUse.name"),
        ('{"BlockDelta":{"index":0,"delta":{"Song":"la"}}}', "BlockDelta.delta"),
        ('{"BlockDelta":{"index":0,"delta":{"Text":1}}}', "BlockDelta.delta.Text"),
        ('{"BlockStop":{"index":0,"block_type":"Text","stop_reason":"Bored"}}', "BlockStop.stop_reason"),
        ('{"elapsed_ms":"x","data":"\\"Ping\\""}', "elapsed_ms"),
        ('{"elapsed_ms":1,"data":"{\\"Error\\":{}}"}', "data.Error.message"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_where(line: str, path: str):
    with pytest.raises(InvalidValueError) as raised:
        read_line(line.encode())
    assert raised.value.path == path


@pytest.mark.parametrize(
    "line", [b"", b"{", b'{"Ping":{}} {}', b"\xff", b'{"data":"{"}', b'{"data":"\\ud83c"}', b"[" * 9999]
)
def test_what_is_no_json_is_an_error(line: bytes):
    with pytest.raises(JSONError):
        read_line(line)


def test_a_line_about_the_run_may_lack_all_but_one_field():
    assert read_line(b'{"model":"gpt-4o"}') == RunInfo(model="gpt-4o")
    assert json.loads(next(encode_recording(RunInfo(model="x"), []))) == {
        "timestamp": 0,
        "model": "x",
        "description": "",
    }
