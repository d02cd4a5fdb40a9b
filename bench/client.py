"""CPU per streamed event in the client's process, beside openai-python, on the same bytes.

A server in another process plays one response of many deltas, one event per HTTP chunk, as fast as
the client reads. The clients take turns; each reads typed events to the end. The figure is the CPU
time of this process, all threads and system time included.
"""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from antiphon.protocol.parts import Finish, Text, Usage
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.wire import sse
from antiphon.wire.openresponses import OpenAIDialect
from bench.compare import ROOT, compare, extract, import_path
from bench.serve import free_port
from bench.stream_readers import CLIENTS, cost
from bench.table import show

DELTAS = 1000
ROUNDS = 5

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def recorded_frames() -> list[bytes]:
    """Return the events of one response, as OpenAI writes them."""
    counter = itertools.count()
    response = Response.new(Request(model="played"), id="resp_" + "0" * 48, created_at=0)
    synth = Synth(response, ids=lambda prefix: f"{prefix}_{next(counter):048}", clock=time.time)
    events = synth.start()
    for number in range(DELTAS):
        events += synth.feed(Text(f" word {number}"))
    events += synth.feed(Usage(8, DELTAS))
    events += synth.feed(Finish("stop"))
    events += synth.end()
    dialect = OpenAIDialect()
    return [dialect.encode_sse(event) for event in events]


FRAMES = recorded_frames()


async def play(port: int) -> None:
    """Run a server that plays the recorded stream."""
    chunks = [b"%x\r\n%b\r\n" % (len(f), f) for f in [*FRAMES, sse.DONE_FRAME]]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(HEAD)
                for chunk in chunks:
                    writer.write(chunk)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


@contextlib.contextmanager
def run_playback_server() -> Iterator[str]:
    """Run the playback server in a process; give its address."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "bench.client", str(port)]) as process:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def main(old: str | None = None) -> bool:
    """Measure; with `old`, beside that commit. Return whether nothing got worse."""
    if old:
        return compare_with(old)
    best = dict.fromkeys(CLIENTS, float("inf"))
    with run_playback_server() as url:
        for _, name in product(range(ROUNDS), CLIENTS):
            best[name] = min(best[name], asyncio.run(cost(name, url, len(FRAMES))))
    figures = {f"{name}_us_per_event": value for name, value in best.items()}
    figures["openai_over_antiphon"] = best["openai"] / best["antiphon"]
    figures["openai_over_antiphon_sync"] = best["openai_sync"] / best["antiphon_sync"]
    rows = [(name.replace("_", ", "), value, "µs") for name, value in best.items()]
    rows += [
        ("openai over antiphon", figures["openai_over_antiphon"], "×"),
        ("openai over antiphon, sync", figures["openai_over_antiphon_sync"], "×"),
    ]
    title = f"client: CPU per event, {len(FRAMES)} events a stream (aim: antiphon ≤ 15 µs)"
    show(title, rows, figures)
    return True


def compare_with(commit: str) -> bool:
    """Measure the clients of an older commit beside those of this checkout."""
    with extract(commit) as old, run_playback_server() as url:

        def read_with(source: Path) -> Callable[[], dict[str, float]]:
            command = [sys.executable, "-m", "bench.stream_readers", url, str(len(FRAMES))]
            environment = os.environ | import_path(source)

            def measure() -> dict[str, float]:
                output = subprocess.check_output(command, env=environment)
                return json.loads(output)

            return measure

        title = f"client: this checkout and {commit}"
        return compare(title, read_with(old), read_with(ROOT / "src"), read_with(old))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        asyncio.run(play(int(sys.argv[1])))
    else:
        main()
