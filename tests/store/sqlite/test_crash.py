"""A process that is killed while it writes loses no acknowledged event."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon.store.base import LoggedEvents
from antiphon.store.sqlite.store import SqliteStore
from tests.store.builders import ended_response, make_events

pytestmark = pytest.mark.anyio

ROUNDS = 4
STREAMS = 8
CHILD = f"""
import asyncio, sys
from antiphon.store.sqlite.store import SqliteStore
from tests.store.builders import make_events, new_response, user_message

async def stream(store, id):
    await store.begin(new_response(id), [user_message(id + "_in")])
    print(id, -1, flush=True)
    last = -1
    while True:
        assert await store.append(id, 0, last, make_events(last + 1, 3))
        last += 3
        print(id, last, flush=True)

async def main():
    store = SqliteStore(sys.argv[1])
    await asyncio.gather(*(stream(store, f"{{sys.argv[2]}}_{{n}}") for n in range({STREAMS})))

asyncio.run(main())
"""


def run_and_kill(folder: Path, name: str, after: float) -> dict[str, int]:
    """Run a child that appends, kill it, and return the last acknowledged event of each log."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), name],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout
    lines = [child.stdout.readline() for _ in range(STREAMS)]  # all streams have begun
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.readlines()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    complete = [line.split() for line in lines if line.endswith(b"\n")]
    return {id.decode(): int(last) for id, last in complete}


async def test_acknowledged_events_survive_a_kill(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        acknowledged |= run_and_kill(tmp_path, f"r{number}", 0.05 + 0.05 * number)
        store = SqliteStore(tmp_path)
        unfinished = {stored.response.id: stored for _, stored in await store.list_unfinished()}
        ours = {id: last for id, last in acknowledged.items() if id.startswith(f"r{number}_")}
        assert unfinished.keys() == ours.keys()
        for id, last in ours.items():
            stored = unfinished[id]
            assert stored.last_sequence >= last
            final = ended_response(stored.response, status="failed")
            epoch = await store.claim(id) or 0
            assert await store.append(id, epoch, stored.last_sequence, [], final=final)
            log = await store.read(id, -1, limit=2**31)
            assert log == LoggedEvents(make_events(0, stored.last_sequence + 1), ended=True)
        await store.close()
        connection = sqlite3.connect(store.database.path)
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        connection.close()
    assert max(acknowledged.values()) > 10
