"""One response being made: parts in from the model, events out to whoever listens.

This is the one place that turns an exception into `response.failed`. A model that fails before its
first part has not answered at all: if the error has a status of its own, it is raised, so that the
caller can still give it as one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from antiphon.agents.turn import Turn
from antiphon.core import parts, tokens
from antiphon.core.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.core.events import Event
from antiphon.core.parts import Part
from antiphon.core.response import Response
from antiphon.core.synth import Synth

logger = logging.getLogger("antiphon.engine")

FAIR = 64
"""After how many parts a model that never waits lets others have their turn."""

Model = Callable[[Turn], AsyncGenerator[Part]]


class Outlet(Protocol):
    """Where a run's events go."""

    @property
    def full(self) -> bool:
        """Whether more than enough is waiting to be sent."""
        ...

    def write(self, events: list[Event]) -> None:
        """Take events, at once."""
        ...

    async def drained(self) -> None:
        """Return when more may be written."""
        ...


class Run:
    """One response being made."""

    def __init__(self, model: Model, turn: Turn, synth: Synth, outlet: Outlet | None) -> None:
        self._model = model
        self._turn = turn
        self._synth = synth
        self._outlet = outlet
        self.answering = False
        """Whether the model has begun to answer, or the caller has been promised a stream."""
        self.begun = asyncio.Event()
        """Set when the model has begun to answer, or has ended without."""

    @property
    def response(self) -> Response:
        """The response as far as it has been made."""
        return self._synth.response

    async def drive(self) -> Response:
        """Make the response, to its end."""
        self._write(self._synth.start())
        try:
            await self._answer()
        except asyncio.CancelledError:
            if is_cancelled():
                self._cancel()
                raise
            self._break()  # a cancellation of the model's own, which it let escape
        except (RequestError, UpstreamError) as error:
            if not self.answering:
                raise
            self._fail(error.payload)
        except (Exception, SystemExit):  # noqa: BLE001 - a process boundary: models raise anything
            self._break()
        else:
            self._end()
        finally:
            self.begun.set()
        return self.response

    async def _answer(self) -> None:
        synth, outlet = self._synth, self._outlet
        async with aclosing(self._model(self._turn)) as answer:
            count = 0
            async for part in answer:
                if events := synth.feed(part):
                    if not self.answering:
                        self.answering = True
                        self.begun.set()
                    if outlet:
                        outlet.write(events)
                        if outlet.full:
                            await outlet.drained()
                    if synth.ended:
                        return
                count += 1
                if count % FAIR == 0:
                    await asyncio.sleep(0)

    def _end(self) -> None:
        self._account()
        self._write(self._synth.end())

    def _cancel(self) -> None:
        """End as cancelled, unless the response has ended already."""
        self._turn.cancelled.set()
        if not self._synth.ended:
            self._synth.feed(parts.Finish("cancelled"))
        self._end()

    def _break(self) -> None:
        """Fail for a reason that only the log may know."""
        model = self._turn.model
        logger.exception("model %s failed in %s", model, self._turn.response_id)
        message = f"The model '{model}' failed while answering."
        self._fail(ErrorPayload(message=message, type="server_error", code="server_error"))

    def _fail(self, error: ErrorPayload) -> None:
        self._account()
        self._write(self._synth.fail(error))

    def _account(self) -> None:
        """Estimate the tokens that the model did not count, and say that they are estimates."""
        known, turn = self._synth.usage, self._turn
        if self._synth.ended or not (known.input_tokens is None or known.output_tokens is None):
            return
        if known.input_tokens is None:
            read = tokens.of_prompt(turn.instructions, turn.tools, turn.items)
            self._synth.feed(parts.Usage(input_tokens=read))
        if known.output_tokens is None:
            written = tokens.of_items(self.response.output)
            self._synth.feed(parts.Usage(output_tokens=written))
        message = "The model did not count its tokens; these are estimates."
        self._synth.feed(parts.Warn("usage_estimated", message, "usage"))

    def _write(self, events: list[Event]) -> None:
        if self._outlet and events:
            self._outlet.write(events)


def is_cancelled() -> bool:
    """Tell whether this task was asked to stop, and not only something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
