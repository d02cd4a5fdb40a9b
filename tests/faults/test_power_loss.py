"""A power cut at any moment loses no row that the store has acknowledged."""

import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest

from antiphon.store.sqlite import database
from antiphon.store.sqlite.store import SqliteStore
from tests.faults.recording_disk import Acknowledged, RecordingDisk, record_disk
from tests.store.builders import ended_response, new_response, user_message

CUTS = int(os.environ.get("ANTIPHON_POWER_CUTS", "200"))
RESPONSES = 240
WRITERS = 4
TEXT = "x" * 20_000  # large enough that checkpoints move pages into the database while we record


async def write_responses(disk: RecordingDisk, folder: Path) -> None:
    """Store responses from several tasks, and record each acknowledgement."""
    store = SqliteStore(folder)

    async def write(first: int) -> None:
        for number in range(first, RESPONSES, WRITERS):
            response = new_response(f"resp_{number}")
            await store.begin(response, [user_message(f"msg_{number}", TEXT)])
            disk.acknowledge(f"begun resp_{number}")
            await store.end(ended_response(response))
            disk.acknowledge(f"ended resp_{number}")

    await asyncio.gather(*(write(first) for first in range(WRITERS)))
    await store.close()


def count_lost_rows(folder: Path, acknowledged: list[str]) -> int:
    """Open the database after a cut the way the server does, and count acknowledged rows that are not there."""
    connection = database.connect_writer(folder / "responses.db")
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        statuses = dict(connection.execute("SELECT id, status FROM responses").fetchall())
    finally:
        connection.close()
    begun = {row.removeprefix("begun ") for row in acknowledged if row.startswith("begun ")}
    ended = {row.removeprefix("ended ") for row in acknowledged if row.startswith("ended ")}
    return len(begun - set(statuses)) + sum(statuses.get(id) != "completed" for id in ended)


def cut_power(disk: RecordingDisk, folder: Path, cuts: int) -> int:
    """Rebuild and open the database as it is after each of some cuts; return how many rows were lost in all."""
    chance = random.Random(15)
    lost = 0
    for _ in range(cuts):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        acknowledged = disk.restore(chance.randrange(len(disk.operations)), folder, chance)
        lost += count_lost_rows(folder, acknowledged)
    return lost


def record_run(folder: Path) -> RecordingDisk:
    folder.mkdir()
    with record_disk(folder) as disk:
        asyncio.run(write_responses(disk, folder))
    written = {Path(operation.path).name for operation in disk.operations if not isinstance(operation, Acknowledged)}
    assert {"responses.db", "responses.db-wal"} <= written
    return disk


def test_no_acknowledged_row_is_lost_in_a_power_cut(tmp_path: Path) -> None:
    disk = record_run(tmp_path / "data")
    assert cut_power(disk, tmp_path / "after", CUTS) == 0


def test_without_a_sync_per_commit_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: SQLite's weaker setting loses rows on the same disk."""
    weaker = tuple(pragma.replace("synchronous = FULL", "synchronous = NORMAL") for pragma in database._WRITER_PRAGMAS)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(database, "_WRITER_PRAGMAS", weaker)
    disk = record_run(tmp_path / "data")
    assert cut_power(disk, tmp_path / "after", 20) > 0
