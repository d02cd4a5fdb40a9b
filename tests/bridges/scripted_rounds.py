"""A model that answers round by round as a test says, and the agent that uses it, both on real servers."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager

import httpx2
from openai import AsyncOpenAI

from antiphon import Client
from antiphon.agents.agent import Agent, Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.server.settings import Settings
from tests.http_client import WAIT
from tests.run_server import run_server

Answer = Sequence[object]
"""What an agent may yield, or an exception to raise."""

USAGE = parts.Usage(input_tokens=10, output_tokens=5, cached_tokens=2, reasoning_tokens=1)


class ScriptedRounds:
    """The model `scripted`: `answers` holds what is still to be answered, `turns` what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.turns: list[Turn] = []
        self.address = ""
        """Where OpenAI's clients find it."""

    @property
    def agent(self) -> Agent:
        @agent("scripted")
        async def scripted(turn: Turn) -> AsyncIterator[object]:
            self.turns.append(turn)
            yield USAGE
            for value in self.answers.pop(0):
                if isinstance(value, Exception):
                    raise value
                yield value

        return scripted

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Serve the model."""
        with run_server(Settings(agents=[self.agent])) as address:
            self.address = f"{address}/openai/v1"
            yield

    def prepare(self, *answers: Answer) -> None:
        """Set the answers of the next rounds, and forget what was asked before."""
        self.answers, self.turns = list(answers), []


def openai_client(address: str) -> AsyncOpenAI:
    """Return a client that leaves no connection open: nobody closes it in the loop that used it."""
    http = httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0))
    return AsyncOpenAI(base_url=address, api_key="none", max_retries=0, http_client=http)


@contextmanager
def serve_agent(served: Agent) -> Iterator[Client]:
    """Serve an agent; give a client that accepts no stream which breaks a rule."""
    with run_server(Settings(agents=[served])) as address, Client(f"{address}/v1", strict=True, retries=0) as client:
        yield client


def ask(client: Client, served: Agent, input: object, **params: object) -> Response:
    """Stream a response, so that the rules are checked, and return it."""
    with client.stream(model=served.name, input=input, **params) as stream:  # pyright: ignore[reportArgumentType]
        for _ in stream:
            pass
    return stream.response


def ask_for_error(client: Client, served: Agent, input: object, **params: object) -> tuple[int, str | None, str]:
    """Ask for an answer that fails; return the status, the code and the message of the error.

    The status is 200 if the answer had begun.
    """
    try:
        response = ask(client, served, input, **params)
    except UpstreamError as error:
        return error.status, error.payload.code, error.payload.message.partition(": ")[2]
    assert response.error is not None
    return 200, response.error.code, response.error.message


def summarize(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """Return what items say, without ids."""
    summary: list[tuple[str, ...]] = []
    for item in items:
        match item:
            case Message():
                summary.append((item.role, item.text))
            case FunctionCall():
                summary.append(("call", item.name, item.arguments))
            case FunctionCallOutput():
                summary.append(("output", item.text))
            case Reasoning():
                pieces = [*item.summary, *(item.content or [])]
                summary.append(("reasoning", "".join(getattr(piece, "text", "") for piece in pieces)))
            case _:
                summary.append((item.type,))
    return summary


async def leave_at_first_call(served: Agent) -> None:
    """Read an answer up to its first whole call and leave it; return when no new task runs."""
    before = asyncio.all_tasks()
    request = Request.from_message(served.name, "Hi!")
    async with aclosing(served.stream(Turn(request, request.input))) as answer:
        async for part in answer:
            if isinstance(part, parts.Call) and part.complete:
                break
    # The SDKs close the connection in a task of its own.
    async with asyncio.timeout(WAIT):
        while not asyncio.all_tasks() <= before:
            await asyncio.sleep(0.01)
