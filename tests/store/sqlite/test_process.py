"""Processes on one data folder: which of them live, and notifications between them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.store import base
from antiphon.store.sqlite.process import Process
from antiphon.store.sqlite.store import SqliteStore
from tests.store.builders import ended_response, make_events, new_response

pytestmark = pytest.mark.anyio


def test_a_process_lives_until_it_is_closed(tmp_path: Path) -> None:
    one, other = Process(tmp_path), Process(tmp_path)
    assert one.is_alive(other.id)
    other.close()
    assert not one.is_alive(other.id)
    assert not one.is_alive(None)
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_is_gone(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from antiphon.store.sqlite.process import Process;"
        "print(Process(pathlib.Path(sys.argv[1])).id, flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    id = child.stdout.readline().strip()
    own = Process(tmp_path)
    assert own.is_alive(id)
    child.kill()
    child.communicate()
    assert not own.is_alive(id)
    own.close()
    assert list(tmp_path.iterdir()) == []


def test_an_unusable_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used"):
        Process(tmp_path / "file")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere readers poll")
async def test_a_reader_in_another_process_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "POLL_SECONDS", 60)
    # A path that is too long for the name of a socket.
    folder = tmp_path / ("long" * 40)
    writer, reader = SqliteStore(folder), SqliteStore(folder)
    await writer.begin(new_response("r"), [])
    for last, change in (
        (-1, lambda: writer.append("r", 0, -1, make_events(0, 1))),
        (0, lambda: writer.end(ended_response(new_response("r")))),
        (0, lambda: writer.delete("r")),
    ):
        waiting = asyncio.create_task(reader.wait("r", last))
        await asyncio.sleep(0.05)
        await change()
        await asyncio.wait_for(waiting, 20)
    await writer.close()
    await reader.close()


async def test_of_several_processes_those_that_are_gone_lose_their_responses(tmp_path: Path) -> None:
    first, second, third = (SqliteStore(tmp_path) for _ in range(3))
    for n, store in enumerate((first, second, third)):
        await store.begin(new_response(f"r{n}"), [])
    assert await third.take_abandoned(["r2"]) == []
    await first.close()
    assert [stored.response.id for _, stored in await third.take_abandoned(["r2"])] == ["r0"]
    assert [stored.response.id for _, stored in await third.take_abandoned([])] == ["r0", "r2"]
    await second.close()
    await third.close()
