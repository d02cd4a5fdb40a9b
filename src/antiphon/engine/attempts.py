"""The models that may answer one request, tried in order until one has begun to speak.

What a model reads is opened for its own origin, and what it makes is sealed for it: so each of them
has a turn of its own. Once anything of an answer has been told there is no way back.
"""

import dataclasses
import logging
from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.agents.turn import Turn
from antiphon.core import parts
from antiphon.core.errors import RequestError, UpstreamError, drop_tracebacks, in_a_word
from antiphon.core.items import Item
from antiphon.engine.asked import Asked
from antiphon.engine.checks import warnings
from antiphon.engine.models import Sink

logger = logging.getLogger("antiphon.engine")

Trouble = RequestError | UpstreamError
REFUSED = frozenset({400, 413, 422})
"""What a provider answers to a request that no other would like better."""

APART = frozenset(
    """authentication_error invalid_api_key permission_denied permission_error
    insufficient_quota billing_error rate_limit_exceeded context_length_exceeded
    model_not_found invalid_model model_decommissioned""".split()
)
"""The types and codes of what is wrong with one provider or model alone, though it is told so."""


class Attempts:
    """One request, as each of the models that may answer it is asked."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._asked = asked
        self._index = 0
        self._failed: list[tuple[Asked, Trouble]] = []

    @property
    def asked(self) -> Asked:
        """The request as the model is asked whose turn it is."""
        return self._asked[self._index]

    def seal(self, item: Item) -> Item:
        """Close what the model whose turn it is has made."""
        return self.asked.envelope.close(item)

    def turn(self, response_id: str) -> Turn:
        """Return the turn of the first model that can read the request; raises RequestError."""
        while True:
            try:
                return self.asked.turn(response_id)
            except RequestError as error:
                self._advance(error, response_id)

    async def answer(self, turn: Turn, sink: Sink) -> None:
        """Have the first model answer that can, beginning with the one whose turn this is."""
        while True:
            model = self.asked.model
            if warned := self._warnings() + ([] if model.warns else warnings(turn.request)):
                sink.take(warned)  # now, because an answer that fails takes no more
            try:
                await model.answer(turn, sink)
                break
            except (RequestError, UpstreamError) as error:
                self._advance(error, turn.response_id, spoken=sink.spoken)
            turn = dataclasses.replace(self.turn(turn.response_id), cancelled=turn.cancelled)
            sink.restart()

    def _advance(self, error: Trouble, response_id: str, *, spoken: bool = False) -> None:
        """Turn to the next model, or raise if there is none, or no use in it."""
        theirs = isinstance(error, UpstreamError)
        last = spoken or (theirs and is_final(error)) or self._index == len(self._asked) - 1
        if theirs or not last:
            after = "" if last else f"; asking {self._asked[self._index + 1].model.name[:100]!r}"
            word, model = in_a_word(error.status, error.payload), self.asked.model.name
            logger.warning("%s: %.100r cannot answer (%s)%s", response_id, model, word, after)
        if last:
            raise error if spoken else self._in_full(error)
        drop_tracebacks(error)
        self._failed.append((self.asked, error))
        self._index += 1

    def _in_full(self, error: Trouble) -> Trouble:
        """Return an error that tells also what happened before it."""
        if self._failed:
            before = " ".join(f"({asked.model.name}: {cause})" for asked, cause in self._failed)
            message = f"{error.payload.message} Before it, others could not answer: {before}"
            error.payload = replace(error.payload, message=message)
        return error

    def _warnings(self) -> list[parts.Warn]:
        answered = self.asked.model.name
        message = "{} could not answer, and {} was asked instead: {}"
        return [
            parts.Warn("fallback", message.format(asked.model.name, answered, error), "model")
            for asked, error in self._failed
        ]


def is_final(error: UpstreamError) -> bool:
    """Tell whether a request was refused for what it is, and not by a provider in trouble."""
    return error.status in REFUSED and APART.isdisjoint((error.payload.type, error.payload.code))
