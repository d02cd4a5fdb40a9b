"""What state costs: chains of ten and a thousand turns, and responses stored or not.

CPU time is that of the server's process; the client does not count. A chain is continued hot (its
context is cached in memory) and cold (after a restart, from disk).
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from antiphon.agents.agent import agent
from antiphon.agents.turn import Turn
from antiphon.protocol.parts import Part, Text, Usage
from bench.serve import cpu_seconds, free_port
from bench.table import show


@agent("quiet")
async def quiet(turn: Turn) -> AsyncIterator[Part]:
    """Answer without reading the input, so that only the server's own work is measured."""
    del turn
    yield Text("And then.")
    yield Usage(1, 2)


TURNS = 1000
ASKED = 200


class Server:
    """A server process with a data folder, and one connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, **body: object) -> str:
        """Create a response; return its id."""
        data = json.dumps({"model": "quiet", "input": "And then?"} | body)
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/v1/responses", data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"bench state: {answer.status} {text[:200]!r}")
        return "" if body.get("stream") else json.loads(text)["id"]

    def cpu_per_request(self, count: int = ASKED, **body: object) -> float:
        """Return the CPU milliseconds that one request takes."""
        before = cpu_seconds(self.process.pid)
        for _ in range(count):
            self.ask(**body)
        return (cpu_seconds(self.process.pid) - before) / count * 1000

    def rate(self, seconds: float, **body: object) -> float:
        """Return the responses per second of one client."""
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            self.ask(**body)
            count += 1
        return count / (time.perf_counter() - begin)


@contextmanager
def server(folder: str) -> Iterator[Server]:
    """Run `antiphon serve` on a folder."""
    port = free_port()
    command = [sys.executable, "-m", "antiphon", "serve", "--app", "bench.state:quiet"]
    command += ["--port", str(port), "--data", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield Server(process, port)
        process.terminate()


def main() -> None:
    """Measure."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        with server(folder) as running:
            last, tenth = "", ""
            for turn in range(1, TURNS + 1):
                last = running.ask(previous_response_id=last or None)
                tenth = last if turn == 10 else tenth
            running.cpu_per_request(10)
            figures["turn_1_ms"] = running.cpu_per_request()
            figures["turn_10_hot_ms"] = running.cpu_per_request(previous_response_id=tenth)
            figures["turn_1000_hot_ms"] = running.cpu_per_request(previous_response_id=last)
            figures["stored_per_second"] = running.rate(3, stream=True)
            figures["unstored_per_second"] = running.rate(3, stream=True, store=False)
        for name, id in (("turn_10_cold_ms", tenth), ("turn_1000_cold_ms", last)):
            with server(folder) as running:
                running.cpu_per_request(10)
                figures[name] = running.cpu_per_request(1, previous_response_id=id)
    figures["turn_1000_over_10_hot"] = figures["turn_1000_hot_ms"] / figures["turn_10_hot_ms"]
    figures["stored_over_unstored"] = figures["stored_per_second"] / figures["unstored_per_second"]
    rows = [(name, value, "ms CPU" if name.endswith("ms") else "") for name, value in figures.items()]
    show("state: continuing a chain, storing a stream", rows, figures)


if __name__ == "__main__":
    main()
