"""`antiphon convert`, run as a user would."""

import json
import subprocess
from pathlib import Path

import pytest

from antiphon.bridges.blocks.events import ToolResultBlock
from antiphon.wire import sse
from tests.bridges.blocks.runs import COMPLETED, SCHEMES, STARTED, block, record
from tests.run_server import ROOT


def convert(*arguments: str, input: bytes = b"") -> tuple[int, bytes, str]:
    """Run the command; return its exit code, its output and its errors."""
    command = [ROOT / ".venv/bin/antiphon", "convert", *arguments]
    done = subprocess.run(command, input=input, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_recording_becomes_a_stream(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"\n\n".join(record(SCHEMES["anthropic"])))
    code, written, errors = convert("--from", "blocks", str(tmp_path / "run.jsonl"))
    events = sse.Decoder().feed(written)
    assert (code, errors) == (0, "")
    assert events[-1].data == sse.DONE
    assert [event.event for event in events[:2]] == ["response.created", "response.in_progress"]
    final = json.loads(events[-2].data)["response"]
    assert (final["model"], final["created_at"], final["completed_at"]) == ("m", 1_767_624_445, 1_767_624_445)
    assert final["usage"]["total_tokens"] == 50


def test_a_pipe_becomes_a_response() -> None:
    lines = b"\n".join(record(SCHEMES["openai"]))
    code, written, errors = convert("--from", "blocks", "--to", "response", "-", input=lines)
    response = json.loads(written)
    assert (code, errors) == (0, "")
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]
    assert response["status"] == "completed"


def test_tool_results_are_input_of_the_next_request() -> None:
    run = [*SCHEMES["ollama"], *block(1, ToolResultBlock("call_1"), "12 degrees")]
    code, written, _ = convert("--from", "blocks", "--to", "input", "-", input=b"\n".join(record(run)))
    call, result = json.loads(written)
    assert code == 0
    assert (call["type"], call["call_id"]) == ("function_call", "call_1")
    assert result == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": "12 degrees",
        "status": "completed",
    }


def test_a_line_that_is_wrong_is_named() -> None:
    lines = b'{"Ping":{}}\n{"BlockDelta":{"index":0,"delta":{"Song":"la"}}}\n'
    known = "unknown name 'Song'; known: Text, Thinking, InputJson, Refusal"
    assert convert("--from", "blocks", "--to", "response", "-", input=lines) == (
        1,
        b"",
        f"antiphon: standard input, line 2: Invalid BlockDelta.delta: {known}.\n",
    )


def test_a_line_that_is_no_json_is_named() -> None:
    code, _, errors = convert("--from", "blocks", "-", input=b'{"Ping"')
    assert code == 1
    assert errors.startswith("antiphon: standard input, line 1: Invalid JSON: ")


@pytest.mark.parametrize("lines", [record(SCHEMES["openai"]) * 2, [*record([COMPLETED]), *record([STARTED])[1:]]])
def test_a_second_run_in_a_log_is_named(lines: list[bytes]) -> None:
    code, _, errors = convert("--from", "blocks", "-", input=b"\n".join(lines))
    assert code == 1
    assert errors.endswith("Invalid event: another run begins here; convert one run at a time.\n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    message = f"antiphon: cannot convert {path}: No such file or directory.\n"
    assert convert("--from", "blocks", str(path)) == (2, b"", message)


def test_an_empty_log_is_a_response_without_output() -> None:
    code, written, _ = convert("--from", "blocks", "--to", "response", "-")
    response = json.loads(written)
    assert code == 0
    assert (response["output"], [warning["code"] for warning in response["antiphon:warnings"]]) == (
        [],
        ["no_stop_reason"],
    )
