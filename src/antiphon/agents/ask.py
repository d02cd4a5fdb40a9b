"""The answer of another model that an agent asks with `turn.ask`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import Protocol

from antiphon.protocol import parts
from antiphon.protocol.items import Item
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request


class Answer(ABC):
    """The parts of another model's answer as they arrive: with `async for`, or with `for` in a thread.

    `await` reads the answer to its end and returns it. Its model starts at the first read, and is stopped when the
    agent that asked ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The text that has been read."""
        return "".join(self._texts)

    @property
    @abstractmethod
    def output(self) -> Sequence[Item]:
        """The items so far; as `input` of the next `turn.ask`, they continue the conversation."""

    @abstractmethod
    async def read(self) -> Part | None:
        """Return the next part, None at the end; raises RequestError or UpstreamError."""

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> Part:
        part = await self.read()
        if part is None:
            raise StopAsyncIteration
        if isinstance(part, parts.Text):
            self._texts.append(part.text)
        return part

    def __await__(self) -> Generator[object, None, "Answer"]:
        return self._read_all().__await__()

    async def _read_all(self) -> "Answer":
        async for _ in self:
            pass
        return self

    def __iter__(self) -> Iterator[Part]:
        """Iterate in the thread of a plain function; blocks until each part arrives."""
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public function raises
            raise TypeError("An async agent reads an answer with `async for` or `await`: `for` would block the server.")
        while (part := asyncio.run_coroutine_threadsafe(anext(self, None), self._loop).result()) is not None:
            yield part


class Asker(Protocol):
    """Asks other models for one turn of an agent."""

    def ask(self, request: Request) -> Answer:
        """Return the answer to a request; nothing is sent before it is read."""
        ...
