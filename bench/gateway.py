"""CPU per streamed event of the whole gateway, a chat upstream to a Responses client, beside nginx.

An upstream of our own plays the same chat completion to everyone: 200 chunks, each in a write of
its own, and counts them. `saturated` is as fast as the gateway goes; `paced` is 100 streams of 50
events a second each, so that nearly every event arrives and leaves alone. nginx passes the very
same bytes through. CPU time is what the kernel charges the gateway's processes (/proc), so that the
upstream's and wrk's do not count. LiteLLM is measured too if its command is on the path.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.adapters.base import Provider
from antiphon.cli.serve import Announced, config
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from bench.serve import cpu_seconds, free_port
from bench.table import show

EVENTS = 200
STREAMS = 100
PACE = 0.02
SATURATED_SECONDS = 5
PACED_SECONDS = 12
CONNECTIONS = 16


# --- the upstream ---------------------------------------------------------------------------------


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    """Write one chunk of a chat completion, as an event in an HTTP chunk."""
    return told([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


def told(choices: list[dict[str, object]], **more: object) -> bytes:
    """Write a chunk of these choices, and of what else it tells."""
    value: dict[str, object] = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "small",
        "system_fingerprint": "fp_0123456789",
        "choices": choices,
    }
    return framed(b"data: " + json.dumps(value | more, separators=(",", ":")).encode() + b"\n\n")


def framed(data: bytes) -> bytes:
    """Write one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


USAGE = {"prompt_tokens": 10, "completion_tokens": EVENTS, "total_tokens": EVENTS + 10}
FIRST = chunk({"role": "assistant", "content": ""})
# LiteLLM takes a model that says one word a hundred times for a broken one.
WORDS = [chunk({"content": " word"}), chunk({"content": " next"})]
LAST = chunk({}, "stop") + told([], usage=USAGE)
DONE = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = json.dumps(
    {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "small",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": " word" * EVENTS},
            }
        ],
        "usage": USAGE,
    }
).encode()


def answer(body: bytes) -> bytes:
    """Write a whole HTTP answer."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


WHOLE_ANSWER = answer(WHOLE)
MODELS_ANSWER = answer(b'{"object":"list","data":[]}')


class Upstream(asyncio.Protocol):
    """Plays the completion to every request, slowly to a model named `paced`; tells how much."""

    played = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: asyncio.Transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        self._heard = b""
        self._playing: asyncio.Task[None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop playing."""
        if self._playing:
            self._playing.cancel()

    def data_received(self, data: bytes) -> None:
        """Wait for a whole request, then play."""
        self._heard += data
        head, found, body = self._heard.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if not found or len(body) < int(length[1] if length else 0):
            return
        self._heard = b""
        if head.startswith(b"GET /v1/models"):
            self._transport.write(MODELS_ANSWER)
        elif head.startswith(b"GET"):
            self._transport.write(answer(str(Upstream.played).encode()))
        elif b'"stream":true' not in body.replace(b": ", b":"):
            self._transport.write(WHOLE_ANSWER)
        else:
            pace = PACE if b"paced" in body else 0
            self._playing = asyncio.get_running_loop().create_task(self._play(pace))

    async def _play(self, pace: float) -> None:
        write = self._transport.write
        write(HEAD + FIRST)
        for number in range(EVENTS):
            await asyncio.sleep(pace)
            write(WORDS[number % 2])
            Upstream.played += 1
        write(LAST + DONE)


async def play(port: int) -> None:
    """Be the upstream."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


# --- the gateways ---------------------------------------------------------------------------------


def serve(port: int, upstream: int) -> None:
    """Be the gateway that is measured."""
    provider = Provider(name="local", adapter="openai", base_url=f"http://127.0.0.1:{upstream}/v1")
    served = Settings(providers=[provider], responses_dir=None)
    Announced(config(create_app(served), "127.0.0.1", port), None).run()


NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream chat {{ server 127.0.0.1:{upstream}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://chat; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""

LITELLM = """
model_list:
  - model_name: saturated
    litellm_params: {{model: openai/saturated, api_base: "{upstream}", api_key: x}}
  - model_name: paced
    litellm_params: {{model: openai/paced, api_base: "{upstream}", api_key: x}}
"""


class Unmeasured(Exception):
    """A gateway that did not start, or did not answer as it should."""


@contextmanager
def running(*command: str, port: int) -> Iterator[int]:
    """Run a process that listens on a port; give its pid. Raises Unmeasured."""
    environment = os.environ | {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment) as process:
        try:
            wait_for(process, f"http://127.0.0.1:{port}/healthz")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Wait until a process answers, whatever it says."""
    deadline = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=1)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise Unmeasured("it did not start")


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    return [pid, *(p for child in children.split() for p in family(int(child)))]


def cpu(pid: int) -> float:
    """Return the CPU time that a process and its descendants have used."""
    return sum(cpu_seconds(member) for member in family(pid))


def load(url: str, body: dict[str, object], connections: int, seconds: int) -> int:
    """Ask again and again; return how many whole answers came."""
    lines = [
        f"wrk.method='POST' wrk.body='{json.dumps(body)}'",
        "wrk.headers['Content-Type']='application/json'",
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write("\n".join(lines))
        script.flush()
        wrk = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"]
        command = [*wrk, "-s", script.name, url]
        try:
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=seconds + 30
            )
        except subprocess.TimeoutExpired:
            raise Unmeasured(f"{url} did not answer") from None
    if found := re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout):
        raise Unmeasured(f"{found[1]} bad answers from {url}")
    counted = re.search(r"(\d+) requests in", done.stdout)
    return int(counted[1]) if counted else 0


class Gateway:
    """One gateway, under load."""

    def __init__(self, pid: int, url: str, upstream: int, who: str) -> None:
        self._pid, self._url, self._upstream, self._who = pid, url, upstream, who

    def _played(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._upstream}/") as answer:
            return int(answer.read())

    def _per_event(self, body: dict[str, object], connections: int, seconds: int) -> float:
        spent, played = cpu(self._pid), self._played()
        load(self._url, body, connections, seconds)
        return (cpu(self._pid) - spent) / (self._played() - played) * 1e6

    def _body(self, model: str, *, stream: bool) -> dict[str, object]:
        if self._who == "nginx":
            said = [{"role": "user", "content": "hi"}]
            return {"model": model, "stream": stream, "messages": said}
        name = f"local/{model}" if self._who == "antiphon" else model
        return {"model": name, "stream": stream, "input": "hi", "store": False}

    def saturated(self) -> float:
        """Return CPU microseconds per event, as fast as it goes."""
        body = self._body("saturated", stream=True)
        load(self._url, body, CONNECTIONS, 1)
        return self._per_event(body, CONNECTIONS, SATURATED_SECONDS)

    def paced(self) -> float:
        """Return CPU microseconds per event, each arriving alone."""
        body = self._body("paced", stream=True)
        return self._per_event(body, STREAMS, PACED_SECONDS)

    def whole(self) -> float:
        """Return CPU milliseconds per response that is not streamed."""
        body = self._body("saturated", stream=False)
        load(self._url, body, CONNECTIONS, 1)
        before = cpu(self._pid)
        answers = load(self._url, body, CONNECTIONS, 3)
        return (cpu(self._pid) - before) / answers * 1e3


def gateways(upstream: int, folder: Path) -> Iterator[tuple[str, list[str], int, str]]:
    """Name every gateway there is: its command, its port and its path."""
    ours, theirs, other = free_port(), free_port(), free_port()
    us = [sys.executable, "-m", "bench.gateway", "serve", str(ours), str(upstream)]
    yield "antiphon", us, ours, "/v1/responses"
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, upstream=upstream, port=theirs))
    yield "nginx", ["nginx", "-c", str(folder / "nginx.conf")], theirs, "/v1/chat/completions"
    if litellm := shutil.which("litellm"):
        yaml = LITELLM.format(upstream=f"http://127.0.0.1:{upstream}/v1")
        (folder / "litellm.yaml").write_text(yaml)
        command = [litellm, "--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1"]
        yield "litellm", [*command, "--port", str(other)], other, "/v1/responses"


def measured(who: str, gateway: "Gateway") -> dict[str, float]:
    """Measure one gateway."""
    prefix = "" if who == "antiphon" else f"{who}_"
    return {
        f"{prefix}us_per_event_saturated": gateway.saturated(),
        f"{prefix}us_per_event_paced": gateway.paced(),
        f"{prefix}ms_per_response": gateway.whole(),
    }


def need(program: str, package: str) -> None:
    """Have a program, installing its package if we may."""
    if shutil.which(program):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise SystemExit(f"bench gateway needs {program}: sudo apt-get install {package}")
    command = f"apt-get update -qq && apt-get install -y -qq {package}"
    subprocess.run(command, shell=True, check=True, capture_output=True)


def main() -> None:
    """Measure."""
    need("wrk", "wrk")
    need("nginx", "nginx-light")
    port = free_port()
    play = [sys.executable, "-m", "bench.gateway", "play", str(port)]
    figures: dict[str, float] = {}
    rows: list[tuple[str, float, str]] = []
    with tempfile.TemporaryDirectory() as name, subprocess.Popen(play) as upstream:
        for who, command, listens, path in gateways(port, Path(name)):
            try:
                with running(*command, port=listens) as pid:
                    gateway = Gateway(pid, f"http://127.0.0.1:{listens}{path}", port, who)
                    figures |= measured(who, gateway)
            except Unmeasured as reason:
                if who != "litellm":
                    raise SystemExit(f"bench gateway: {who}: {reason}") from None
                print(f"bench gateway: {who} was not measured: {reason}", file=sys.stderr)
        upstream.terminate()
    for name, value in figures.items():
        rows.append((name.replace("_", " "), value, "ms" if name.endswith("response") else "µs"))
    for pace in ("saturated", "paced"):
        ratio = figures[f"us_per_event_{pace}"] / figures[f"nginx_us_per_event_{pace}"]
        figures[f"over_nginx_{pace}"] = ratio
        rows.append((f"over nginx, {pace}", ratio, "×"))
    show(f"gateway: chat upstream to Responses client, {EVENTS} events a response", rows, figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["play"]:
        import uvloop

        uvloop.run(play(int(sys.argv[2])))
    else:
        main()
