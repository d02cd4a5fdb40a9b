"""The engine of an application: started once, drained at shutdown; failures of its store."""

import asyncio
import json
import resource
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Collection
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from antiphon.agents.agent import agent
from antiphon.protocol.errors import RequestError, StoreError, UpstreamError
from antiphon.protocol.request import Request
from antiphon.server.app import create_app
from antiphon.server.service import Service, server_stopping_error
from antiphon.server.settings import Settings
from antiphon.store.base import StoredResponse
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from tests.engine.builders import wait_for_end
from tests.http_client import WAIT, event_types, http_client, parse_event, parse_stream, wait_until
from tests.run_server import run_command
from tests.server.stateful_server import (
    create_response,
    error_code,
    get_response,
    output_text,
    serve_agents,
    wait_until_ended,
)
from tests.store.builders import new_response

pytestmark = pytest.mark.anyio


def service(folder: Path | None = None, **settings: object) -> Service:
    """Make a service that does not wait at its end."""
    chosen = {"responses_dir": folder, "drain_seconds": 0, **settings}
    return Service(Settings(**chosen))  # pyright: ignore[reportArgumentType]


async def test_concurrent_requests_start_one_engine(tmp_path: Path) -> None:
    one = service(tmp_path)
    first, *others = await asyncio.gather(*(one.engine() for _ in range(20)))
    assert all(other is first for other in others)
    assert isinstance(first.store, SqliteStore)
    assert (tmp_path / "responses.db").exists()
    await one.close()


async def test_without_a_folder_everything_is_in_memory() -> None:
    one = service()
    engine = await one.engine()
    assert isinstance(engine.store, MemoryStore)
    await one.close()


async def test_the_cache_size_is_a_setting() -> None:
    one = service(memory_bytes=7, memory_seconds=8.0)
    recent = (await one.engine()).history.cache
    assert (recent._max_bytes, recent._max_age_seconds) == (7, 8.0)
    await one.close()


async def test_agents_have_the_limits_of_the_settings() -> None:
    running: list[int] = [0]

    @agent("silent")
    async def silent() -> None:
        await asyncio.Event().wait()

    @agent("busy")
    def busy() -> None:
        running.append(running[-1] + 1)
        time.sleep(0.02)
        running.append(running[-1] - 1)

    one = service(agents=[silent, busy], chunk_timeout=1, agent_threads=1)
    engine = await one.engine()
    with pytest.raises(UpstreamError, match=r"'silent' sent nothing for 1 seconds"):
        await (await engine.create_run(Request.from_message("silent", "Hi"))).execute()
    runs = [await engine.create_run(Request.from_message("busy", "Hi")) for _ in range(5)]
    await asyncio.gather(*(run.execute() for run in runs))
    assert max(running) == 1
    await one.close()


async def test_draining_interrupts_work_and_accepts_none() -> None:
    one = service(drain_seconds=0.1)
    await one.engine()
    short = one.start_task(asyncio.sleep(0.05, "done"))
    long = one.start_task(asyncio.sleep(60))
    draining = asyncio.create_task(one.drain())
    await asyncio.sleep(0.01)
    with pytest.raises(RequestError) as caught:
        one.start_task(asyncio.sleep(0))
    assert caught.value.payload == server_stopping_error().payload
    await draining
    assert await short == "done"
    with pytest.raises(asyncio.CancelledError, match="drain"):
        await long
    await one.close()


async def test_a_drain_with_nothing_to_do_is_over_at_once() -> None:
    one = service(drain_seconds=3600)
    await one.engine()
    await asyncio.wait_for(one.close(), WAIT)


def test_a_folder_that_cannot_be_used_is_a_503_and_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.write_text("not a folder")
    app = TestClient(create_app(Settings(responses_dir=folder)), raise_server_exceptions=False)
    answer = app.post("/v1/responses", json={"model": "demo", "input": "Hi!"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert app.get("/readyz").status_code == 503
    folder.unlink()
    assert app.get("/readyz").status_code == 200
    answer = app.post("/v1/responses", json={"model": "demo", "input": "Hi!"})
    assert answer.status_code == 200


async def test_a_store_that_fails_at_startup_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(MemoryStore):
        """Fails when it is asked what was left unfinished, and knows whether it was closed."""

        closed = False

        async def take_abandoned(self, running: Collection[str]) -> list[tuple[str, StoredResponse]]:
            """Fail."""
            raise StoreError("the disk is full")

        async def close(self) -> None:
            """Note that it was closed."""
            self.closed = True

    one, store = service(), Failing()
    with monkeypatch.context() as patch:
        patch.setattr("antiphon.server.service.MemoryStore", lambda: store)
        with pytest.raises(StoreError, match="the disk is full"):
            await one.engine()
    assert store.closed
    assert isinstance((await one.engine()).store, MemoryStore)
    await one.close()


async def test_the_store_stays_open_until_interrupted_work_is_stored(tmp_path: Path) -> None:
    @agent("endless")
    async def endless() -> AsyncIterator[str]:
        while True:
            yield "more "
            await asyncio.sleep(0.001)

    one = service(tmp_path, agents=[endless])
    engine = await one.engine()
    runs = [await engine.create_run(Request.from_message("endless", "go")) for _ in range(20)]
    tasks = [one.start_task(run.execute()) for run in runs]
    await asyncio.gather(*(run.started.wait() for run in runs))
    await one.close()
    assert all(task.done() for task in tasks)
    store = SqliteStore(tmp_path)
    for run in runs:
        assert await store.find(run.response.id) == StoredResponse(run.response)
        assert run.response.status == "failed"
    await store.close()


AGENTS = """
import asyncio
from antiphon import agent

@agent("endless")
async def endless():
    while True:
        yield "more "
        await asyncio.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with an agent that never stops by itself."""
    (tmp_path / "mine.py").write_text(AGENTS)
    return tmp_path


class StreamReader(threading.Thread):
    """A client that reads a stream to its end."""

    def __init__(self, address: str, **body: object) -> None:
        super().__init__()
        self.text = ""
        self._address = address
        self._body = {"model": "endless", "input": "go", "stream": True, **body}
        self.start()

    def run(self) -> None:
        with http_client(self._address) as http, http.stream("POST", "/v1/responses", json=self._body) as answer:
            for chunk in answer.iter_text():
                self.text += chunk

    @property
    def id(self) -> str:
        """The response that is read."""
        wait_until(lambda: "\n\n" in self.text)
        return parse_event(self.text.split("\n\n")[0])["response"]["id"]


def test_a_stopping_server_disconnects_clients_that_do_not_read(folder: Path) -> None:
    options = ["--data", str(folder / "data"), "--drain-seconds", "1"]
    with run_command(*options, cwd=folder) as (address, process):
        host, port = address.removeprefix("http://").split(":")
        body = json.dumps({"model": "echo", "input": "word " * 400_000, "stream": True}).encode()
        head = f"POST /v1/responses HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
            client.recv(1000)
            process.terminate()
            log, _ = process.communicate(timeout=20)
    assert "POST /v1/responses" in log
    assert "Traceback" not in log


def test_a_stopping_server_finishes_running_work_and_exits(folder: Path) -> None:
    data = folder / "data"
    options = ["--app", "mine", "--data", str(data), "--drain-seconds", "2"]
    with run_command(*options, cwd=folder) as (address, process):
        readers = [StreamReader(address) for _ in range(3)]
        readers.append(StreamReader(address, background=True))
        job = create_response(address, "endless", "go", background=True)["id"]
        ids = [reader.id for reader in readers]
        wait_until(lambda: get_response(address, job)["status"] == "in_progress")
        with http_client(address) as http:
            assert http.get("/healthz").status_code == 200  # the connection is there
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            refused_somehow(http)
        assert all(reader.is_alive() for reader in readers)  # they have their time
        for reader in readers:
            reader.join(20)
        process.wait(20)
    for reader in readers:
        events = parse_stream(reader.text)
        assert event_types(events)[-2:] == ["error", "response.failed"]
        assert events[-1]["response"]["error"]["code"] == "server_error"
    with serve_agents(data) as address:
        for id in [*ids, job]:
            response = get_response(address, id)
            assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
            assert output_text(response).startswith("more ")


def test_a_mounted_application_is_drained_too(folder: Path) -> None:
    (folder / "outer.py").write_text(
        "from starlette.applications import Starlette\n"
        "from starlette.routing import Mount\n"
        "from antiphon import Settings, create_app\n"
        "from mine import endless\n"
        "mounted = create_app(Settings(agents=[endless], responses_dir='data', drain_seconds=0.5))\n"
        "app = Starlette(routes=[Mount('/ai', mounted)])\n"
    )
    with run_command("--app", "outer:app", cwd=folder) as (address, process):
        job = create_response(f"{address}/ai", "endless", "go", background=True)["id"]
        wait_until(lambda: get_response(f"{address}/ai", job)["status"] == "in_progress")
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    with closing(sqlite3.connect(folder / "data" / "responses.db")) as database:
        assert database.execute("SELECT id, status FROM responses").fetchall() == [(job, "failed")]


def test_a_server_with_a_full_disk_is_not_ready(folder: Path) -> None:
    with run_command("--data", str(folder / "data")) as (address, process), http_client(address) as http:
        assert http.get("/readyz").status_code == 200
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, before[1]))
        refused = http.get("/readyz")
        assert error_code(refused) == (503, "store_unavailable", None)
        assert http.get("/healthz").status_code == 200
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        assert http.get("/readyz").status_code == 200


def refused_somehow(http: httpx.Client) -> None:
    """Send a request to a stopping server: it is a 503, or the connection is refused."""
    try:
        answer = http.post("/v1/responses", json={"model": "demo", "input": "Hi!"})
    except httpx.TransportError:
        return
    assert error_code(answer) == (503, "server_stopping", None)


def test_a_server_with_nothing_to_do_stops_at_once(folder: Path) -> None:
    with run_command("--data", str(folder / "data"), cwd=folder) as (address, process):
        create_response(address, "demo", "Hi!")
        process.send_signal(signal.SIGTERM)
        process.wait(20)  # less than the drain time of 25 seconds


def test_queued_responses_run_after_a_restart(tmp_path: Path) -> None:
    with serve_agents(tmp_path, background_slots=1) as address:
        running = create_response(address, "endless", "go", background=True)["id"]
        wait_until(lambda: get_response(address, running)["status"] == "in_progress")
        waiting = [create_response(address, "counter", f"{n}", background=True)["id"] for n in range(3)]
    with serve_agents(tmp_path) as address:
        assert get_response(address, running)["status"] == "failed"
        for n, id in enumerate(waiting):
            assert output_text(wait_until_ended(address, id)) == "".join(f"{word} " for word in range(n))


async def test_a_full_disk_is_a_503_that_passes_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    app = create_app(Settings(responses_dir=tmp_path, drain_seconds=0))
    engine = await app.state.service.engine()
    body = {"model": "echo", "input": "Hi! " * 20_000}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here/v1") as http:
        stored = (await http.post("/responses", json={"model": "echo", "input": "Hi!"})).json()
        await engine.store.database.write(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone())
        full = await http.post("/responses", json=body)
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
        assert full.json()["error"]["code"] == "store_unavailable"
        unstored = await http.post("/responses", json=body | {"store": False})
        assert unstored.status_code == 200
        await engine.store.database.write(
            lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchone()
        )
        assert (await http.post("/responses", json=body)).status_code == 200
        assert (await http.get(f"/responses/{stored['id']}")).json() == stored
    await app.state.service.close()


async def test_a_second_server_on_a_folder_does_not_touch_running_responses(tmp_path: Path) -> None:
    first, second = service(tmp_path), service(tmp_path)
    engine = await first.engine()
    run = await engine.create_run(Request.from_message("demo", "Hi!"))
    await second.engine()
    response = await run.execute()
    assert await engine.find(response.id) == StoredResponse(response)
    await second.close()
    await first.close()


async def test_a_second_server_on_a_folder_takes_over_from_the_first(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path)
    await first.begin(new_response("left"), [])
    second = service(tmp_path, sweep_seconds=0.01)
    engine = await second.engine()
    await asyncio.sleep(0.1)
    assert len(await first.list_unfinished()) == 1
    await first.close()
    assert (await wait_for_end(engine.store, "left")).status == "failed"
    await second.close()


def test_an_application_can_be_started_twice(tmp_path: Path) -> None:
    app = create_app(Settings(responses_dir=tmp_path, drain_seconds=0))
    for _ in range(2):
        with TestClient(app) as http:
            body = {"model": "demo", "input": "Hi!"}
            assert http.post("/v1/responses", json=body).status_code == 200
