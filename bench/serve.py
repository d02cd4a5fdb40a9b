"""CPU per streamed event of the whole server, under wrk, beside a bare ASGI application.

CPU time is that of the server's process (/proc); wrk does not count. The baseline sends the same
number of prepared events, one per send, on unmodified uvicorn. `burst` is a model that never waits;
`paced` yields to the event loop before each word, so each event is written alone.
"""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.agents.agent import agent
from antiphon.agents.turn import Turn
from antiphon.server.app import create_app
from antiphon.server.asgi import Message, Receive, Scope, Send
from antiphon.server.settings import Settings
from antiphon.server.uvicorn.server import uvicorn_config
from bench.table import show

EVENTS = 200
SECONDS = 4
CONNECTIONS = 16
FRAME = b"event: response.output_text.delta\ndata: " + b'{"type":"x"}'.ljust(230, b" ") + b"\n\n"


@agent("burst")
async def burst(turn: Turn) -> AsyncIterator[str]:
    """Yield all words without waiting."""
    del turn
    for _ in range(EVENTS):
        yield " word"


@agent("paced")
async def paced(turn: Turn) -> AsyncIterator[str]:
    """Yield to the event loop before every word, so that each event is written alone."""
    del turn
    for _ in range(EVENTS):
        await asyncio.sleep(0)
        yield " word"


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Send prepared events one by one; on `/paced`, yield to the event loop before each."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    chunk: Message = {"type": "http.response.body", "body": FRAME, "more_body": True}
    is_paced = scope["path"] == "/paced"
    for _ in range(EVENTS):
        if is_paced:
            await asyncio.sleep(0)
        await send(chunk)
    await send({"type": "http.response.body", "body": b""})


def serve(which: str, port: int) -> None:
    """Run the server that is measured."""
    import uvicorn

    if which == "bare":
        settings = uvicorn.Config(bare, port=port, log_level="critical", access_log=False, lifespan="off")
    else:
        served = Settings(agents=[burst, paced], responses_dir=None)
        settings = uvicorn_config(create_app(served), "127.0.0.1", port)
    uvicorn.Server(settings).run()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_server(which: str) -> Iterator[tuple[int, int]]:
    """Run a server in another process; give its pid and port."""
    port = free_port()
    command = [sys.executable, "-m", "bench.serve", which, str(port)]
    with subprocess.Popen(command) as process:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process.pid, port
        process.terminate()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(which: str, path: str, model: str = "") -> tuple[float, float]:
    """Return CPU microseconds per event, and events per second."""
    body = f'{{"model":"{model}","input":"hi","stream":true,"store":false}}'
    script = f"wrk.method='POST' wrk.body='{body}' wrk.headers['Content-Type']='application/json'"
    with run_server(which) as (pid, port), tempfile.NamedTemporaryFile("w", suffix=".lua") as lua:
        lua.write(script)
        lua.flush()
        url = f"http://127.0.0.1:{port}/{path}"
        headers = {"Content-Type": "application/json"}
        ask = urllib.request.Request(url, body.encode(), headers)
        with urllib.request.urlopen(ask) as answer:
            answer.read()
        wrk = ["wrk", "-t1", f"-c{CONNECTIONS}", "-s", lua.name, url]
        subprocess.run([*wrk, "-d1s"], check=True, capture_output=True)
        before = cpu_seconds(pid)
        done = subprocess.run([*wrk, f"-d{SECONDS}s"], check=True, capture_output=True, text=True)
        spent = cpu_seconds(pid) - before
    if found := re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout):
        raise SystemExit(f"bench serve: {found[1]} bad answers")
    answers = int(re.search(r"(\d+) requests in", done.stdout)[1])  # pyright: ignore[reportOptionalSubscript]
    return spent / (answers * EVENTS) * 1e6, answers * EVENTS / SECONDS


def main() -> None:
    """Measure."""
    if not shutil.which("wrk"):
        if os.geteuid() or not shutil.which("apt-get"):
            raise SystemExit("bench serve needs wrk: sudo apt-get install wrk")
        subprocess.run("apt-get update -qq && apt-get install -y -qq wrk", shell=True, check=True)
    figures: dict[str, float] = {}
    rows: list[tuple[str, float, str]] = []
    for name, which, path, model in [
        ("bare", "bare", "", ""),
        ("burst", "antiphon", "v1/responses", "burst"),
        ("bare_paced", "bare", "paced", ""),
        ("paced", "antiphon", "v1/responses", "paced"),
    ]:
        cost, rate = measure(which, path, model)
        figures |= {f"{name}_us_per_event": cost, f"{name}_events_per_second": rate}
        rows += [(f"{name}: CPU per event", cost, "µs"), (f"{name}: events", rate, "/s")]
    for name, base in (("burst", "bare"), ("paced", "bare_paced")):
        ratio = figures[f"{name}_us_per_event"] / figures[f"{base}_us_per_event"]
        figures[f"{name}_over_bare"] = ratio
        rows.append((f"{name} over bare ASGI", ratio, "×"))
    show(f"serve: {EVENTS} events a response, {CONNECTIONS} connections, one process", rows, figures)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        main()
