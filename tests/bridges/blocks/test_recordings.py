"""Recorded runs become legal streams with the text, the calls and the usage that were recorded."""

import json
from pathlib import Path

import pytest

from antiphon.bridges.blocks.events import TextBlock, ToolUseBlock
from antiphon.bridges.blocks.jsonl import RecordedEvent, RunInfo, encode_recording, read_line
from antiphon.bridges.blocks.timeline import collect_blocks
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.fold import fold
from antiphon.protocol.items import FunctionCall
from tests.bridges.blocks.runs import SCHEMES, find_recordings, record, translate
from tests.protocol.builders import to_json
from tests.spec.schema_checks import check_event

Call = tuple[str, str, object]


def summarize(lines: list[bytes]) -> tuple[str, list[Call], dict[str, int]]:
    """Return the text, the calls and the token counts of a recording, read without the code that is tested."""
    text, calls, usage = "", dict[int, list[str]](), dict[str, int]()
    for line in lines[1:]:
        ((name, fields),) = json.loads(json.loads(line)["data"]).items()
        if name == "Usage":
            usage |= {field: count for field, count in fields.items() if count is not None}
        elif name == "BlockStart" and fields["block_type"] == "ToolUse":
            calls[fields["index"]] = [*fields["metadata"]["ToolUse"].values(), ""]
        elif name == "BlockDelta" and "Text" in fields["delta"]:
            text += fields["delta"]["Text"]
        elif name == "BlockDelta":
            calls[fields["index"]][2] += fields["delta"]["InputJson"]
    return text, [(id, tool, json.loads(arguments)) for id, tool, arguments in calls.values()], usage


def read(lines: list[bytes]) -> tuple[RunInfo, list[RecordedEvent]]:
    """Read a recording."""
    info, *events = map(read_line, lines)
    assert isinstance(info, RunInfo)
    return info, [event for event in events if isinstance(event, RecordedEvent)]


def check_recording(lines: list[bytes], *, repeated_ids: bool = False) -> None:
    """Check that a recording becomes the stream and the blocks that it should."""
    info, recorded = read(lines)
    run = [one.event for one in recorded]
    text, calls, usage = summarize(lines)
    events, response = translate(run)
    assert find_violations(events) == []
    assert fold(events) == response
    for event in events:
        check_event(to_json(event))
    made = [item for item in response.output if isinstance(item, FunctionCall)]
    assert (response.status, response.output_text) == ("completed", text)
    assert [(item.name, json.loads(item.arguments)) for item in made] == [(name, value) for _, name, value in calls]
    assert repeated_ids or [item.call_id for item in made] == [id for id, _, _ in calls]
    assert response.usage
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (
        usage["input_tokens"],
        usage["output_tokens"],
        usage["total_tokens"],
    )
    blocks = collect_blocks(run)
    assert "".join(one.text for one in blocks if isinstance(one.block, TextBlock)) == text
    assert sum(isinstance(one.block, ToolUseBlock) for one in blocks) == len(calls)
    assert list(encode_recording(info, recorded)) == lines


def count_text_deltas(lines: list[bytes], *, empty: bool) -> int:
    """Return how many deltas of text were recorded."""
    recorded = [json.loads(json.loads(line)["data"]).get("BlockDelta", {}).get("delta", {}) for line in lines[1:]]
    return sum("Text" in delta and (empty or delta["Text"] != "") for delta in recorded)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_small_recording_of_each_scheme_becomes_its_stream(scheme: str):
    check_recording(record(SCHEMES[scheme]), repeated_ids=scheme == "gemini")


# `llm_client`'s own recordings are no part of the project.
@pytest.mark.parametrize("path", find_recordings(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_run_that_llm_client_recorded_becomes_its_stream(path: Path):
    lines = path.read_bytes().splitlines()
    check_recording(lines)
    for empty in (False, True):
        events, _ = translate([one.event for one in read(lines)[1]], empty_deltas=empty)
        assert find_violations(events) == []
        assert sum(isinstance(event, OutputTextDelta) for event in events) == count_text_deltas(lines, empty=empty)
