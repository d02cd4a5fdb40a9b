"""CPU per streamed event of the whole gateway, a chat upstream to a Responses client, beside nginx.

A scripted upstream plays the same chat completion to every gateway: 200 chunks, one write each.
`saturated` is full speed. `paced` is 100 streams of 50 events a second (or as many as take half a
core), spread so evenly that nearly every event arrives alone. Every stream is read to its end, so
each played event was delivered. CPU time is that of the gateway's processes (/proc); the upstream
and wrk do not count. nginx passes the bytes through unchanged, and `bench.baseline` is a minimal
Python gateway: both alternate with ours, and every figure is the median of three rounds. The
gateway runs as users run it, with its log line per request. `bench.programs` lists the others.
"""

import asyncio
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from http.client import HTTPException
from itertools import product
from pathlib import Path
from statistics import median

from bench.compare import ROOT, compare, extract, import_path
from bench.programs import MeasurementFailed, Program, baseline, litellm, nginx, ogx, run_process
from bench.serve import cpu_seconds, free_port
from bench.table import show, unit

EVENTS = 200
STREAMS = 100
PACE = 0.02
ROUNDS = 3
SATURATED_SECONDS = 3
WHOLE_SECONDS = 3
PACED_SECONDS = 6
CONNECTIONS = 16
RIVAL_CONNECTIONS = 4
HALF_A_CORE = 0.5e6


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    """Write one chunk of a chat completion, as an event in an HTTP chunk."""
    return encode_chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


def encode_chunk(choices: list[dict[str, object]], **more: object) -> bytes:
    """Encode a chunk with these choices and other fields."""
    value: dict[str, object] = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "small",
        "system_fingerprint": "fp_0123456789",
        "choices": choices,
    }
    return http_chunk(b"data: " + json.dumps(value | more, separators=(",", ":")).encode() + b"\n\n")


def http_chunk(data: bytes) -> bytes:
    """Write one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


USAGE = {"prompt_tokens": 10, "completion_tokens": EVENTS, "total_tokens": EVENTS + 10}
FIRST = chunk({"role": "assistant", "content": ""})
# LiteLLM aborts a stream that repeats the same chunk a hundred times.
WORDS = [chunk({"content": " word"}), chunk({"content": " next"})]
LAST = chunk({}, "stop") + encode_chunk([], usage=USAGE)
DONE = http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = json.dumps(
    {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "small",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": " word" * EVENTS}}
        ],
        "usage": USAGE,
    }
).encode()


def answer(body: bytes) -> bytes:
    """Encode an HTTP response with a JSON body."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


WHOLE_ANSWER = answer(WHOLE)
MODELS_ANSWER = answer(b'{"object":"list","data":[]}')


class Pacer:
    """Advances the paced streams one after the other, so that each event is sent alone.

    The event loop's timers have a resolution of a millisecond, in which five streams would advance.
    """

    def __init__(self) -> None:
        self._slots: list[Iterator[None] | None] = [None] * STREAMS
        self._task: asyncio.Task[None] | None = None

    def join(self, beats: Iterator[None]) -> None:
        """Advance a stream until it ends."""
        free = self._slots.index(None) if None in self._slots else len(self._slots)
        self._slots[free : free + 1] = [beats]
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        at = time.monotonic()
        while any(self._slots):
            for place, beats in enumerate(self._slots):
                at += PACE / STREAMS
                time.sleep(max(0, at - time.monotonic()))
                if beats and next(beats, OVER) is OVER:
                    self._slots[place] = None
                await asyncio.sleep(0)


OVER = object()
PACER = Pacer()


class UpstreamProtocol(asyncio.Protocol):
    """Plays the completion to every request, paced for the model `paced`; counts the chunks."""

    played = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport: asyncio.Transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        self._received = b""
        self._steps: Generator[None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop playing."""
        if self._steps:
            self._steps.close()

    def data_received(self, data: bytes) -> None:
        """Collect a whole request, then play."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if not found or len(body) < int(length[1] if length else 0):
            return
        self._received = b""
        if head.startswith(b"GET /v1/models"):
            self._transport.write(MODELS_ANSWER)
        elif head.startswith(b"GET"):
            self._transport.write(answer(str(UpstreamProtocol.played).encode()))
        elif b'"stream":true' not in body.replace(b": ", b":"):
            self._transport.write(WHOLE_ANSWER)
        else:
            self._transport.write(HEAD + FIRST)
            self._steps = self._play()
            if b"paced" in body:
                PACER.join(self._steps)
            else:
                self._task = asyncio.get_running_loop().create_task(run_unpaced(self._steps))

    def _play(self) -> Generator[None]:
        """Write one chunk per step."""
        for number in range(EVENTS):
            self._transport.write(WORDS[number % 2])
            UpstreamProtocol.played += 1
            if number < EVENTS - 1:
                yield
        self._transport.write(LAST + DONE)


async def run_unpaced(beats: Iterator[None]) -> None:
    """Run a stream at full speed, yielding to the others after each chunk."""
    for _ in beats:
        await asyncio.sleep(0)


async def play(port: int) -> None:
    """Run the upstream."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(UpstreamProtocol, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


CONFIG = """
[providers.local]
adapter = "openai"
base_url = "http://127.0.0.1:{upstream}/v1"
"""


def antiphon(upstream: int, folder: Path, source: Path = ROOT / "src") -> Program:
    """Translate with Antiphon, as its command line starts it; `source` may be an older checkout."""
    port, config = free_port(), folder / "antiphon.toml"
    config.write_text(CONFIG.format(upstream=upstream))
    command = [sys.executable, "-m", "antiphon", "serve", "--port", str(port)]
    command += ["--config", str(config), "--data", str(folder / "data")]
    environment = import_path(source)
    return Program("antiphon", command, port, models="local/", environment=environment)


def process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    return [pid, *(p for child in children.split() for p in process_tree(int(child)))]


def cpu(pid: int) -> float:
    """Return the CPU time that a process and its descendants have used."""
    return sum(cpu_seconds(member) for member in process_tree(pid))


# After `seconds` a connection sends no further request; running answers have `rest` seconds to end.
SCRIPT = """
wrk.method, wrk.body = 'POST', [[{body}]]
wrk.headers['Content-Type'] = 'application/json'
local over
function delay()
  over = over or os.time() + {seconds}
  return os.time() < over and 0 or 1000000
end
"""


def load(url: str, body: dict[str, object], connections: int, seconds: int, rest: int) -> int:
    """Send requests repeatedly; return the number of complete answers."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT.format(body=json.dumps(body), seconds=seconds))
        script.flush()
        wrk = ["wrk", "-t1", f"-c{connections}", f"-d{seconds + rest}s", "--timeout", "30s"]
        command = [*wrk, "-s", script.name, url]
        try:
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + rest + 30)
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"{url} did not answer") from None
    if found := re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout):
        raise MeasurementFailed(f"{found[1]} bad answers from {url}")
    counted = re.search(r"(\d+) requests in", done.stdout)
    if not counted or not int(counted[1]):
        raise MeasurementFailed(f"no whole answer from {url} in {seconds + rest} s")
    return int(counted[1])


class Gateway:
    """One running gateway, and the measurements on it."""

    def __init__(self, program: Program, pid: int, upstream: int) -> None:
        self._program, self._pid, self._upstream = program, pid, upstream
        self._connections = RIVAL_CONNECTIONS if program.is_rival else CONNECTIONS
        self._rest = 2

    def _played(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._upstream}/") as answer:
            return int(answer.read())

    def _per_event(self, model: str, connections: int, seconds: int, rest: int) -> float:
        body = self._body(model, stream=True)
        spent, before = cpu(self._pid), self._played()
        answers = load(self._program.url, body, connections, seconds, rest)
        spent, played = cpu(self._pid) - spent, self._played() - before
        if abs(answers * EVENTS - played) > 0.05 * played:
            came = f"{answers} streams came whole, and {played / EVENTS:.1f} were played"
            raise MeasurementFailed(f"{model}, {connections} at once: {came}")
        return spent / played * 1e6

    def _body(self, model: str, *, stream: bool) -> dict[str, object]:
        if self._program.who == "nginx":
            said = [{"role": "user", "content": "hi"}]
            return {"model": model, "stream": stream, "messages": said}
        name = self._program.models + model
        return {"model": name, "stream": stream, "input": "hi", "store": False}

    def check(self) -> None:
        """Read two streams to the end; the second shows how long one takes."""
        self._read_stream()
        began = time.monotonic()
        self._read_stream()
        wave = self._connections * (time.monotonic() - began)
        self._rest = min(20, 2 + math.ceil(2 * wave))

    def _read_stream(self) -> None:
        body = json.dumps(self._body("saturated", stream=True)).encode()
        headers = {"Content-Type": "application/json"}
        ask = urllib.request.Request(self._program.url, body, headers)
        try:
            with urllib.request.urlopen(ask, timeout=30) as answer:
                heard = answer.read().decode()
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise MeasurementFailed(f"{self._program.url}: {error}: {said}") from None
        except (OSError, HTTPException) as error:
            raise MeasurementFailed(f"{self._program.url}: {error}") from None
        *_, last = re.findall(r"^data: *({.*})", heard, re.MULTILINE) or ["nothing"]
        end = '"usage":' if self._program.who == "nginx" else '"response.completed"'
        if end not in last:
            raise MeasurementFailed(f"its stream ends with {last[:500]}")

    def saturated(self) -> float:
        """Return CPU microseconds per event, at full speed."""
        body = self._body("saturated", stream=True)
        load(self._program.url, body, self._connections, 1, self._rest)
        return self._per_event("saturated", self._connections, SATURATED_SECONDS, self._rest)

    def paced(self, streams: int) -> float:
        """Return CPU microseconds per event, each arriving alone."""
        return self._per_event("paced", streams, PACED_SECONDS, rest=6)

    def whole(self) -> float:
        """Return CPU milliseconds per response that is not streamed."""
        body = self._body("saturated", stream=False)
        load(self._program.url, body, self._connections, 1, rest=2)
        before = cpu(self._pid)
        answers = load(self._program.url, body, self._connections, WHOLE_SECONDS, rest=2)
        return (cpu(self._pid) - before) / answers * 1e3


def measure(program: Program, gateway: Gateway) -> Iterator[tuple[str, float]]:
    """Measure one gateway: yield each figure. Raises MeasurementFailed."""
    prefix = "" if program.who == "antiphon" else f"{program.who}_"
    gateway.check()
    saturated = gateway.saturated()
    yield f"{prefix}us_per_event_saturated", saturated
    yield f"{prefix}ms_per_response", gateway.whole()
    streams = max(1, min(STREAMS, int(HALF_A_CORE * PACE / saturated)))
    yield f"{prefix}us_per_event_paced", gateway.paced(streams)
    if program.is_rival:
        yield f"{prefix}paced_streams", streams


def side_by_side(programs: list[Program], upstream: int) -> dict[str, float]:
    """Measure gateways alternately, so that a slow moment affects all. Raises MeasurementFailed."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        gateways = [
            (program, Gateway(program, stack.enter_context(program.running()), upstream)) for program in programs
        ]
        for _, (program, gateway) in product(range(ROUNDS), gateways):
            for name, value in measure(program, gateway):
                taken[name].append(value)
    return {name: median(values) for name, values in taken.items()}


def require_program(program: str, package: str) -> None:
    """Make sure that a program is installed; install its package if we are root."""
    if shutil.which(program):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise SystemExit(f"bench gateway needs {program}: sudo apt-get install {package}")
    command = f"apt-get update -qq && apt-get install -y -qq {package}"
    subprocess.run(command, shell=True, check=True, capture_output=True)


def report_missing(who: str, reason: MeasurementFailed, figures: dict[str, float]) -> None:
    """Report what could not be measured of another gateway, and why."""
    how = "not wholly" if any(name.startswith(who) for name in figures) else "not"
    where = f"its command is looked for in BENCH_{who.upper()}, then on the path"
    print(f"bench gateway: {who} was {how} measured: {reason} ({where})", file=sys.stderr)


def compare_with(commit: str) -> bool:
    """Measure an older commit beside this checkout; return whether no figure is worse."""
    port = free_port()
    with ExitStack() as stack:
        old = stack.enter_context(extract(commit))
        stack.enter_context(run_process(*upstream_command(port), port=port))

        def start(source: Path) -> Callable[[], dict[str, float]]:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            program = antiphon(port, folder, source)
            gateway = Gateway(program, stack.enter_context(program.running()), port)
            return lambda: dict(measure(program, gateway))

        title = f"gateway: this checkout and {commit}"
        return compare(title, start(old), start(ROOT / "src"), start(old))


def upstream_command(port: int) -> list[str]:
    """Return the command that runs the upstream."""
    return [sys.executable, "-m", "bench.gateway", "play", str(port)]


def main(old: str | None = None) -> bool:
    """Measure; with `old`, beside that commit. Return whether nothing got worse."""
    require_program("wrk", "wrk")
    if old:
        return compare_with(old)
    require_program("nginx", "nginx-light")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, run_process(*upstream_command(port), port=port):
        ours = [make(port, Path(folder)) for make in (antiphon, nginx, baseline)]
        try:
            figures = side_by_side(ours, port)
        except MeasurementFailed as reason:
            raise SystemExit(f"bench gateway: {reason}") from None
        for make in (litellm, ogx):
            program = make(port, Path(folder))
            try:
                with program.running() as pid:
                    figures.update(measure(program, Gateway(program, pid, port)))
            except MeasurementFailed as reason:
                report_missing(program.who, reason, figures)
    rows = [(name.replace("_", " "), value, unit(name)) for name, value in figures.items()]
    for who, pace in product(("nginx", "bare"), ("saturated", "paced")):
        ratio = figures[f"us_per_event_{pace}"] / figures[f"{who}_us_per_event_{pace}"]
        figures[f"over_{who}_{pace}"] = ratio
        rows.append((f"over {who}, {pace}", ratio, "×"))
    show(f"gateway: chat upstream to Responses client, {EVENTS} events a response", rows, figures)
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        import uvloop

        uvloop.run(play(int(sys.argv[2])))
    else:
        main()
