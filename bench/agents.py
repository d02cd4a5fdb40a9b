"""CPU per streamed response of an agent, the rate, and the share of deltas delivered, beside Xaibo's own adapter.

The same agent says twenty words, one per turn of the event loop: in plain Python (`plain`), and as a Xaibo agent
behind our bridge (`bridge`), our drop-in adapter (`dropin`) and Xaibo's own adapter (`xaibo`). All servers run in
Xaibo's environment, with uvloop, and take turns; every figure is the median of some rounds. CPU time is that of the
server's process (/proc). Responses are stored, except in the figures named `unstored`.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from statistics import median

from msgspec import Struct

from antiphon.agents.agent import Agent, agent
from bench.compare import ROOT
from bench.programs import run_process
from bench.serve import cpu_seconds, free_port
from bench.table import show

WORDS = 20
ROUNDS = 5
RESPONSES = 200
"""How many responses are made in a round."""
CONNECTIONS = 8
PYTHON = ROOT / ".venv/xaibo/bin/python"

SERVERS = {"plain": "/v1", "bridge": "/v1", "dropin": "/openai", "xaibo": "/openai"}
"""What is measured, and its door."""


def serve(which: str, port: int, folder: str) -> None:
    """Run one of the servers, in Xaibo's environment."""
    import uvicorn
    from fastapi import FastAPI
    from tests.bridges.xaibo.agents import make_xaibo

    from antiphon.bridges.xaibo import wrap_agents
    from antiphon.server.app import create_app
    from antiphon.server.settings import Settings
    from antiphon.server.uvicorn.server import uvicorn_config
    from antiphon.server.xaibo import OpenAiResponsesApiAdapter

    if which in ("plain", "bridge"):
        agents = wrap_agents(make_xaibo()) if which == "bridge" else [plain_agent()]
        config = uvicorn_config(create_app(Settings(agents=agents, responses_dir=folder)), "127.0.0.1", port)
    else:
        from xaibo.server.adapters import openai_responses  # pyright: ignore[reportMissingImports]

        app = FastAPI()
        adapter = OpenAiResponsesApiAdapter if which == "dropin" else openai_responses.OpenAiResponsesApiAdapter
        adapter(make_xaibo(), responses_dir=folder).adapt(app)
        config = uvicorn.Config(app, port=port, log_level="critical", access_log=False)
    uvicorn.Server(config).run()


def plain_agent() -> Agent:
    """Return the agent in plain Python."""

    @agent("words")
    async def words() -> AsyncIterator[str]:
        for number in range(WORDS):
            yield f"word{number} "
            await asyncio.sleep(0)

    return words


class Server(Struct):
    """A running server."""

    pid: int
    port: int
    door: str

    async def stream(self, count: int, *, store: bool) -> int:
        """Have a number of responses streamed over one connection; return how many deltas arrived."""
        body = json.dumps({"model": "words", "input": "hi", "stream": True, "store": store})
        request = (
            f"POST {self.door}/responses HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}"
        ).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        deltas = 0
        for _ in range(count):
            writer.write(request)
            answer = await reader.readuntil(b"0\r\n\r\n")
            deltas += answer.count(b'"type": "response.output_text.delta"')  # as Xaibo writes it
            deltas += answer.count(b'"type":"response.output_text.delta"')
        writer.close()
        return deltas

    async def stream_all(self, *, store: bool) -> int:
        """Have the responses of a round streamed, several at the same time; return how many deltas arrived."""
        streams = [self.stream(RESPONSES // CONNECTIONS, store=store) for _ in range(CONNECTIONS)]
        return sum(await asyncio.gather(*streams))

    def measure(self, *, store: bool) -> Iterator[tuple[str, float]]:
        """Yield the figures of one round."""
        prefix = "" if store else "unstored_"
        spent, began = cpu_seconds(self.pid), time.monotonic()
        deltas = asyncio.run(self.stream_all(store=store))
        yield f"{prefix}ms_per_response", (cpu_seconds(self.pid) - spent) / RESPONSES * 1e3
        if store:
            yield "responses_per_second", RESPONSES / (time.monotonic() - began)
            yield "deltas_share", deltas / RESPONSES / WORDS


@contextmanager
def run_server(which: str) -> Iterator[Server]:
    """Run a server in Xaibo's environment."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(PYTHON), "-m", "bench.agents", which, str(port), folder]
        with run_process(*command, port=port, environment={"PYTHONPATH": str(ROOT)}) as pid:
            yield Server(pid, port, SERVERS[which])


def main() -> None:
    """Measure."""
    if not PYTHON.exists():
        subprocess.run([ROOT / "scripts/setup-xaibo"], check=True)
    taken: defaultdict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers = {which: stack.enter_context(run_server(which)) for which in SERVERS}
        for server in servers.values():
            asyncio.run(server.stream_all(store=True))  # to warm up
        for _, store, (which, server) in product(range(ROUNDS), (True, False), servers.items()):
            for name, value in server.measure(store=store):
                taken[f"{which}_{name}"].append(value)
    figures = {name: median(values) for name, values in taken.items()}
    for which, prefix in product(list(SERVERS)[:-1], ("", "unstored_")):
        name = f"{prefix}ms_per_response"
        figures[f"{which}_{name}_over_xaibo"] = figures[f"{which}_{name}"] / figures[f"xaibo_{name}"]
    figures["xaibo_last_round_over_first"] = taken["xaibo_ms_per_response"][-1] / taken["xaibo_ms_per_response"][0]
    rows = [(name.replace("_", " "), value, "×" if "_over_" in name else "") for name, value in figures.items()]
    title = (
        f"agents: {WORDS} deltas, {ROUNDS} rounds of {RESPONSES} responses (aim: all deltas, at most 0.1× Xaibo's CPU)"
    )
    show(title, rows, figures)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
