"""One response being made: parts in from the model, events out to whoever listens.

This is the one place that turns an exception into `response.failed`. A model that fails before its
first part has not answered at all: if the error has a status of its own, it is raised, so that the
caller can still give it as one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from antiphon.agents.turn import Turn
from antiphon.core import parts, tokens
from antiphon.core.errors import (
    ErrorPayload,
    RequestError,
    StoreError,
    UpstreamError,
    drop_tracebacks,
    in_a_word,
)
from antiphon.core.events import Event
from antiphon.core.opened import Flow
from antiphon.core.parts import Part
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.engine.guard import Guard
from antiphon.engine.log import Fenced
from antiphon.engine.models import Sink
from antiphon.engine.outlet import Flowing, Outlet

logger = logging.getLogger("antiphon.engine")

Answer = Callable[[Turn, Sink], Awaitable[None]]
"""Answers a turn into a sink; see `models.py`."""


Keeping = Coroutine[object, object, list[Event]]
"""The keeping of an end; returns the events that may be told then, and may raise StoreError."""

Keep = Callable[[list[Event], Response], Keeping | None]
"""Keeps how a response ended; returns what is to be waited for before it is told, if anything."""

DRAIN = "drain"
"""What a task is cancelled with when the server stops, and not its client."""

LOST = ErrorPayload(
    message="The server stopped while this response was being made.",
    type="server_error",
    code="server_error",
)
BROKEN = ErrorPayload(
    message="Something broke on our side while this response was being made.",
    type="server_error",
    code="server_error",
)
UNKEPT = ErrorPayload(
    message="The response was made but could not be stored. Try again, or set store to false.",
    type="server_error",
    code="store_unavailable",
)


class Run:
    """One response being made; the sink of its model."""

    def __init__(
        self,
        answer: Answer,
        turn: Turn,
        synth: Synth,
        outlet: Outlet | None = None,
        keep: Keep | None = None,
        discard: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._model = answer
        self._turn = turn
        self._guard = Guard.of(turn.request)
        self._synth = synth
        self._outlet = outlet
        self._keep = keep
        self._discard = discard
        self.answering = False
        """Whether the model has begun to answer, or the caller has been promised a stream."""
        self.spoken = False
        """Whether anything of the answer has been told, be it one word."""
        self.begun = asyncio.Event()
        """Set when the model has begun to answer, or has ended without."""
        self.full = False
        """Whether the listener was too far behind when parts were last told."""
        self._flow: Flow | None = None
        self._flowing: Flowing | None = None
        """What tells more of that text, if there is a way past the making of events."""
        self._last: list[Event] = []
        """The events of an end that the model itself brought about."""
        self.refusal: RequestError | UpstreamError | None = None
        """The error with a status of its own that ended the response, if one did: before the
        answer or in the middle of it. A response says less."""

    @property
    def response_id(self) -> str:
        """The id of the response, also before anything is made of it."""
        return self._turn.response_id

    @property
    def response(self) -> Response:
        """The response as far as it has been made."""
        return self._synth.response

    async def drive(self) -> Response:
        """Make the response, to its end; raises a refusal that came before any answer."""
        try:
            self._write(self._synth.begin() if self._synth.started else self._synth.start())
            try:
                await self._make()
            except Exception as error:
                if error is self.refusal or isinstance(error, Fenced):
                    raise
                await self._lose(error)
                drop_tracebacks(error)
        finally:
            self.begun.set()
        return self.response

    async def _make(self) -> None:
        try:
            ending = await self._answer()
        except asyncio.CancelledError as error:
            if is_cancelled():
                await self._conclude(self._cancelled(error))
                raise
            ending = self._broken()  # a cancellation of the model's own, which it let escape
            drop_tracebacks(error)
        except (RequestError, UpstreamError) as error:
            if not self._last:  # or else it comes after the end
                self.refusal = error
            ending = self._failed(error.payload)
            drop_tracebacks(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a boundary: models raise anything
            ending = self._broken()
            drop_tracebacks(error)
        if self.refusal and not self.answering:
            await self._withdraw()
            raise self.refusal
        await self._conclude(ending)

    async def _answer(self) -> list[Event]:
        """Have the model answer; return the events of its end."""
        await self._model(self._turn, self)
        self._account()
        return self._last or self._synth.end()

    # --- the sink ---

    @property
    def live(self) -> bool:
        """Whether somebody listens."""
        return self._outlet is not None

    async def drained(self) -> None:
        """Wait for the listener."""
        if self._outlet:
            await self._outlet.drained()
        self.full = False

    def begin(self) -> None:
        """Take note that the model answers."""
        if not self.answering:
            self.answering = True
            self.begun.set()

    def take(self, heard: Sequence[Part]) -> bool:
        """Feed parts to the synthesizer, and tell what comes of them; false after the end."""
        if heard and type(failure := heard[0]) is parts.Failure:
            self.refusal = failure.exception
            word, model = in_a_word(failure.status, failure.error), self._turn.model
            logger.warning("%s: %.100r broke (%s)", self._turn.response_id, model, word)
            self._account()
        told = self._synth.feed_all(self._guard.allowed(heard) if self._guard else heard)
        if not told:
            return True
        self.spoken = self.spoken or any(map(says, heard))
        if not self.answering:
            self.begin()
        if self._synth.ended:
            self._last = told
            return False
        if outlet := self._outlet:
            outlet.write(told)
            self.full = outlet.full
        return True

    def flow(self) -> Flowing | None:
        """Return what tells more of the text that was told last: the hot path of a stream."""
        flow = self._synth.flow() if self._outlet else None
        if flow is not self._flow:
            self._flow = flow
            self._flowing = self._outlet.flow(flow) if self._outlet and flow else None
        return self._flowing

    def restart(self) -> None:
        """Have another model answer, as if none had begun to."""
        self._synth.restart()

    # --- the end ---

    def _cancelled(self, error: asyncio.CancelledError) -> list[Event]:
        """End as cancelled, or as failed if the server stops, unless it has ended already."""
        self._turn.cancelled.set()
        if error.args == (DRAIN,):
            return self._failed(LOST)
        if not self._synth.ended:
            self._synth.feed(parts.Finish("cancelled"))
        self._account()
        return self._last or self._synth.end()

    def _broken(self) -> list[Event]:
        """Fail for a reason that only the log may know."""
        model = self._turn.model
        logger.exception("model %s failed in %s", model, self._turn.response_id)
        message = f"The model '{model}' failed while answering."
        return self._failed(ErrorPayload(message=message, type="server_error", code="server_error"))

    def _failed(self, error: ErrorPayload) -> list[Event]:
        self._account()
        return self._last or self._synth.fail(error)

    async def _conclude(self, ending: list[Event]) -> None:
        """Keep the end, then tell it. It is kept whoever else gives up waiting meanwhile."""
        if self._keep and (keeping := self._keep(ending, self.response)):
            try:
                kept = asyncio.create_task(keeping)
                kept.add_done_callback(_seen)
                ending = await asyncio.shield(kept)
            except StoreError:
                logger.exception("%s could not be kept", self._turn.response_id)
                ending[-1:] = self._synth.retract(UNKEPT)
        self._write(ending)

    async def _lose(self, error: Exception) -> None:
        """Say at least that the response failed, when its end could not be told."""
        logger.error("the end of %s could not be told", self._turn.response_id, exc_info=error)
        await self._conclude(self._synth.lose(BROKEN))
        if is_cancelled():
            raise asyncio.CancelledError from error

    async def _withdraw(self) -> None:
        """Leave nothing of a response that was refused: nobody has heard of it."""
        if self._discard:
            try:
                await asyncio.shield(asyncio.ensure_future(self._discard()))
            except StoreError:
                logger.exception("%s could not be discarded", self._turn.response_id)

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


def says(part: Part) -> bool:
    """Tell whether a part is some of the answer itself, and not only a sign that one comes."""
    if isinstance(part, parts.Text):
        return bool(part.text or part.logprobs)
    if isinstance(part, parts.Refusal):
        return bool(part.text)
    return not isinstance(part, parts.Usage | parts.Warn | parts.Finish)


def _seen(kept: asyncio.Future[list[Event]]) -> None:
    """Take note of an error that nobody may be waiting for any more."""
    if not kept.cancelled() and (error := kept.exception()):
        logger.info("an end was not kept: %r", error)


def is_cancelled() -> bool:
    """Tell whether this task was asked to stop, and not only something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
