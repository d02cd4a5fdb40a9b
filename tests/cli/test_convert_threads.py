"""`antiphon convert --from threads`, run as a user would."""

import json
import subprocess
import sys
from pathlib import Path

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from antiphon.protocol.fold import fold
from antiphon.protocol.response import Response
from antiphon.protocol.struct import decode
from antiphon.wire import sse
from tests.bridges.threads.test_read import CODEX


def convert(*arguments: str, log: bytes = b"") -> tuple[int, bytes, str]:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "convert", "--from", "threads", *arguments],
        input=log,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_log_becomes_a_legal_stream_that_folds_to_the_same_response(tmp_path: Path):
    file = tmp_path / "codex.jsonl"
    file.write_bytes(CODEX)
    code, out, errors = convert(str(file))
    assert (code, errors) == (0, "")
    *frames, done = sse.Decoder().feed(out)
    assert done.data == sse.DONE
    events = [decode_event(json.loads(frame.data)) for frame in frames]
    assert find_violations(events) == []
    code, out, errors = convert("-", "--to", "response", log=CODEX)
    assert (code, errors) == (0, "")
    response = decode(Response, json.loads(out))
    assert response.output_text == fold(events).output_text == "Done."
    assert response.usage == fold(events).usage


def test_a_line_that_cannot_be_read_is_named():
    code, out, errors = convert("-", log=b'{"type":"turn.started"}\n\n{"type":"item.started","item":{"id":1}}\n')
    assert code == 1
    assert out.startswith(b"event: response.created\n")
    assert errors.splitlines() == ["antiphon: standard input, line 3: Invalid item.type: this field is required."]
