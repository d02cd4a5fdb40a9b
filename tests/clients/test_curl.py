"""Six examples, run by a real `curl`."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from tests.http_client import parse_stream
from tests.run_server import run_command

MY_AGENTS = """
from antiphon import agent

@agent("my-agent")
async def my_agent(turn):
    for word in ["You", " asked:", " ", turn.text]:
        yield word
    if turn.history:
        yield f" (after {len(turn.history)} items)"
"""

BASIC = """\
curl -X POST http://localhost:8000/openai/responses \\
  -H "Content-Type: application/json" \\
  -d '{
    "input": "What is the capital of France?",
    "model": "my-agent"
  }'
"""
STREAMING = """\
curl -X POST http://localhost:8000/openai/responses \\
  -H "Content-Type: application/json" \\
  -d '{
    "input": "Tell me a story",
    "model": "my-agent",
    "stream": true
  }'
"""
CONTINUATION = """\
curl -X POST http://localhost:8000/openai/responses \\
  -H "Content-Type: application/json" \\
  -d '{
    "input": "What about Germany?",
    "model": "my-agent",
    "previous_response_id": "resp_abc123"
  }'
"""
RETRIEVE = """\
curl http://localhost:8000/openai/responses/resp_abc123
"""
INPUT_ITEMS = """\
curl "http://localhost:8000/openai/responses/resp_abc123/input_items?limit=10&order=asc"
"""
DELETE = """\
curl -X DELETE http://localhost:8000/openai/responses/resp_abc123
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve `my-agent` from a folder of its own, as a user would."""
    folder: Path = tmp_path_factory.mktemp("agents")
    (folder / "my_agents.py").write_text(MY_AGENTS)
    with run_command("--app", "my_agents:my_agent", cwd=folder) as (address, _):
        yield address


def run(example: str, address: str, id: str = "") -> str:
    """Run an example as written, but for its port and the id in it."""
    assert shutil.which("curl"), "these tests need curl: install it (apt-get install curl)"
    line = example.replace("http://localhost:8000", address).replace("resp_abc123", id)
    line = line.replace("curl", "curl -sS", 1)
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_basic_creation(address: str) -> None:
    response = json.loads(run(BASIC, address))
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["model"] == "my-agent"
    (message,) = response["output"]
    assert message["content"] == [
        {"type": "output_text", "text": "You asked: What is the capital of France?", "annotations": []}
    ]


def test_streaming(address: str) -> None:
    events = parse_stream(run(STREAMING, address))
    assert find_violations(map(decode_event, events)) == []
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == ["You", " asked:", " ", "Tell me a story"]


def test_continuation(address: str) -> None:
    first = json.loads(run(BASIC, address))
    response = json.loads(run(CONTINUATION, address, first["id"]))
    assert response["previous_response_id"] == first["id"]
    (message,) = response["output"]
    assert message["content"][0]["text"] == "You asked: What about Germany? (after 2 items)"


def test_retrieve(address: str) -> None:
    response = json.loads(run(BASIC, address))
    assert json.loads(run(RETRIEVE, address, response["id"])) == response


def test_list_input_items(address: str) -> None:
    response = json.loads(run(BASIC, address))
    page = json.loads(run(INPUT_ITEMS, address, response["id"]))
    (id,) = [item["id"] for item in page["data"]]
    command = {"type": "input_text", "text": "What is the capital of France?"}
    assert page == {
        "object": "list",
        "data": [{"type": "message", "id": id, "role": "user", "content": [command]}],
        "first_id": id,
        "last_id": id,
        "has_more": False,
    }


def test_delete(address: str) -> None:
    response = json.loads(run(BASIC, address))
    gone = json.loads(run(DELETE, address, response["id"]))
    assert gone == {"id": response["id"], "object": "response", "deleted": True}
    missing = json.loads(run(RETRIEVE, address, response["id"]))
    assert missing["detail"] == "Response not found"
    assert json.loads(run(DELETE, address, response["id"])) == missing
