"""`antiphon serve --workers` and `antiphon worker`, run as a user would."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.http_client import WAIT, parse_stream, wait_until
from tests.postgres_server import create_database
from tests.run_server import run_command

AGENT = """
import asyncio
import os
from antiphon import agent

@agent("mine")
async def mine(turn):
    if turn.text == "slow":
        for number in range(200):
            yield f"{number} "
            await asyncio.sleep(0.05)
    yield str(os.getpid())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with an agent."""
    (tmp_path / "mine.py").write_text(AGENT)
    return tmp_path


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> list[str]:
    """Give the options for each kind of shared store."""
    return ["--data", "./data"] if request.param == "sqlite" else ["--store", create_database()]


def ask(address: str, text: str, **fields: object) -> dict[str, object]:
    """Ask the agent, on a connection of its own."""
    answer = httpx.post(f"{address}/v1/responses", json={"model": "mine", "input": text, **fields}, timeout=WAIT)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(response: dict[str, object]) -> str:
    """Return the text of a response."""
    return response["output"][0]["content"][0]["text"]  # pyright: ignore[reportIndexIssue]


def find(address: str, id: object) -> dict[str, object]:
    """Read a stored response."""
    return httpx.get(f"{address}/v1/responses/{id}", timeout=WAIT).json()


def test_workers_share_a_port_and_a_store(folder: Path, store: list[str]) -> None:
    with run_command("--workers", "2", "--app", "mine", *store, cwd=folder) as (address, process):
        pids = Counter[str]()
        previous = None

        def both_have_answered() -> bool:
            nonlocal previous
            response = ask(address, "pid", **({"previous_response_id": previous} if previous else {}))
            previous = response["id"]
            pids[text_of(response)] += 1
            return len(pids) == 2

        wait_until(both_have_answered)
        assert str(process.pid) not in pids
        assert len(httpx.get(f"{address}/v1/responses/{previous}/input_items", timeout=WAIT).json()["data"]) == 1


def test_a_worker_that_is_killed_is_replaced_and_its_responses_end(folder: Path, store: list[str]) -> None:
    with run_command("--workers", "2", "--app", "mine", *store, cwd=folder) as (address, process):
        slow = ask(address, "slow", background=True)
        wait_until(lambda: find(address, slow["id"])["status"] == "in_progress")
        killed = children_of(process.pid)
        assert len(killed) == 2
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: answers(address))
        # An agent may have had effects: it is not run again.
        # A lease of PostgreSQL lasts 15 seconds.
        with suppress(AssertionError):
            wait_until(lambda: find(address, slow["id"])["status"] == "failed")
        wait_until(lambda: find(address, slow["id"])["status"] == "failed")


def children_of(pid: int) -> list[int]:
    """Return the server processes below a process."""
    return [child.pid for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]


def answers(address: str) -> bool:
    """Tell whether a server answers."""
    try:
        return httpx.get(f"{address}/healthz", timeout=WAIT).status_code == 200
    except httpx.TransportError:
        return False


def test_a_stream_can_be_followed_and_cancelled_at_any_worker(folder: Path, store: list[str]) -> None:
    with run_command("--workers", "2", "--app", "mine", *store, cwd=folder) as (address, _):
        slow = ask(address, "slow", background=True)
        url = f"{address}/v1/responses/{slow['id']}"
        with httpx.stream("GET", url, params={"stream": "true", "starting_after": 1}, timeout=WAIT) as stream:
            lines = stream.iter_lines()
            for line in lines:
                if "output_text.delta" in line:
                    break
            for _ in range(4):  # at least one of them goes to the other worker
                assert httpx.post(f"{url}/cancel", timeout=WAIT).json()["status"] == "cancelled"
            assert "response.incomplete" in "".join(lines)


def test_sigterm_drains_all_workers(folder: Path, store: list[str]) -> None:
    with run_command("--workers", "2", "--app", "mine", *store, cwd=folder) as (address, process):
        slow = {"model": "mine", "input": "slow", "stream": True}
        with httpx.stream("POST", f"{address}/v1/responses", json=slow, timeout=WAIT) as stream:
            lines = stream.iter_lines()
            next(line for line in lines if "output_text.delta" in line)
            process.send_signal(signal.SIGTERM)
            rest = "\n".join(lines)
        assert "response.completed" in rest
        assert "[DONE]" in rest
        assert process.wait(WAIT) == 0


@contextmanager
def run_worker(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `antiphon worker`."""
    command = [sys.executable, "-m", "antiphon", "worker", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    try:
        for line in process.stdout:
            if line.startswith("Antiphon runs"):
                break
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)


SERVER_WITHOUT_BACKGROUND = """
from antiphon import Settings
from mine import mine

settings = Settings(agents=[mine], background_slots=0)
"""


def test_a_worker_runs_the_background_responses_of_a_server(folder: Path, store: list[str]) -> None:
    (folder / "front.py").write_text(SERVER_WITHOUT_BACKGROUND)
    with run_command("--app", "front:settings", *store, cwd=folder) as (address, server):
        response = ask(address, "pid", background=True)
        assert response["status"] == "queued"
        with run_worker(folder, "--app", "mine", *store) as worker:
            wait_until(lambda: find(address, response["id"])["status"] == "completed")
            assert text_of(find(address, response["id"])) == str(worker.pid) != str(server.pid)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(WAIT) == 0
        url = f"{address}/v1/responses/{response['id']}?stream=true&starting_after=0"
        events = parse_stream(httpx.get(url, timeout=WAIT).text)
        assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--workers", "2", "--data", ":memory:"], "--workers needs a store that processes share"),
        (["serve", "--workers", "2", "--reload"], "--reload serves with one process. Leave out --workers."),
        (["serve", "--data", "x", "--store", "postgresql://h/d"], "--data and --store name two places"),
        (
            ["serve", "--store", "mysql://h/d"],
            "store: expected an address as 'postgresql://user:password@host/database'",
        ),
        (["serve", "--store", "postgresql://u:secret@127.0.0.1:1/d"], "postgresql://u@127.0.0.1:1/d cannot be reached"),
        (["worker", "--data", ":memory:"], "antiphon worker needs a store that processes share"),
    ],
)
def test_mistakes_are_explained(folder: Path, arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "antiphon", *arguments, *(["--port", "0"] if arguments[0] == "serve" else [])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_servers_with_different_encryption_keys_do_not_share_a_database(folder: Path) -> None:
    url = create_database()
    keys = ["Q" * 43 + "=", "R" * 42 + "A="]
    with run_command("--store", url, "--seal-keys", keys[0], cwd=folder):
        command = [sys.executable, "-m", "antiphon", "serve", "--port", "0", "--store", url]
        for given in ([], ["--seal-keys", keys[1]]):
            done = subprocess.run(
                [*command, *given], cwd=folder, capture_output=True, text=True, timeout=WAIT, check=False
            )
            assert done.returncode == 2
            assert "Set ANTIPHON_SEAL_KEYS to the same keys on all servers" in done.stderr
        # A new key is added as the second one on all servers, and then moved to the front on all.
        with run_command("--store", url, "--seal-keys", ",".join(keys), cwd=folder):
            pass
