"""A request understood: who answers it, what they read, and what of it is new."""

import dataclasses
import logging
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.turn import Turn
from antiphon.engine.history import Context
from antiphon.engine.models import Model, PartSink
from antiphon.engine.sealing import ItemSealer
from antiphon.engine.validation import unused_field_warnings
from antiphon.protocol import context, parts
from antiphon.protocol.errors import (
    RequestError,
    UpstreamError,
    describe_for_log,
    drop_tracebacks,
)
from antiphon.protocol.items import Item
from antiphon.protocol.request import Request


class Candidate(Struct, frozen=True):
    """Everything that is known before a response is begun.

    `before` and `said` are as the client knows them and as they are kept; what the model reads of
    them is opened first. `unpaired` holds the call_ids of what it does not read as it was sent, for
    want of its pair.
    """

    request: Request
    model: Model
    sealer: ItemSealer
    history: Context
    new_items: Sequence[Item]
    unpaired_call_ids: set[str]

    def build_turn(self, response_id: str = "", *, truncate: bool = True) -> Turn:
        """Return the model's turn, cut to its window unless all is wanted; raises RequestError."""
        earlier = "previous_response_id" if self.request.previous_response_id else "conversation"
        past = self.sealer.unseal_items(self.history.items, earlier)
        said = self.sealer.unseal_items(self.new_items, "input[{}].encrypted_content")
        if self.unpaired_call_ids:
            past = context.repair_unpaired(past, self.unpaired_call_ids)
            said = context.repair_unpaired(said, self.unpaired_call_ids)
        items = past + said
        window = self.model.window if truncate else None
        fitting = context.fit_to_window(items, window, self.request.truncation)
        history = max(0, len(past) - (len(items) - len(fitting)))
        return Turn(
            request=self.request,
            history=fitting[:history],
            input=fitting[history:],
            entry=self.model.entry,
            response_id=response_id,
        )


logger = logging.getLogger("antiphon.engine")

ModelError = RequestError | UpstreamError
REQUEST_FAULT_STATUSES = frozenset({400, 413, 422})
"""What a provider answers to a request that no other would like better."""

PROVIDER_FAULT_CODES = frozenset(
    """authentication_error invalid_api_key permission_denied permission_error
    insufficient_quota billing_error rate_limit_exceeded context_length_exceeded
    model_not_found invalid_model model_decommissioned""".split()
)
"""The types and codes of what is wrong with one provider or model alone, though it is told so."""


class Fallback:
    """One request, as each of the models that may answer it is asked."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._index = 0
        self._failures: list[tuple[Candidate, ModelError]] = []

    @property
    def current(self) -> Candidate:
        """The request as the model is asked whose turn it is."""
        return self._candidates[self._index]

    def seal_item(self, item: Item) -> Item:
        """Close what the model whose turn it is has made."""
        return self.current.sealer.seal_item(item)

    def build_turn(self, response_id: str) -> Turn:
        """Return the turn of the first model that can read the request; raises RequestError."""
        while True:
            try:
                return self.current.build_turn(response_id)
            except RequestError as error:
                self._next_candidate(error, response_id)

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Have the first model answer that can, beginning with the one whose turn this is."""
        while True:
            model = self.current.model
            if warned := self._fallback_warnings() + (
                [] if model.warns_of_unused_fields else unused_field_warnings(turn.request)
            ):
                sink.feed(warned)  # now, because an answer that fails takes no more
            try:
                await model.answer(turn, sink)
                break
            except (RequestError, UpstreamError) as error:
                self._next_candidate(error, turn.response_id, has_output=sink.has_output)
            turn = dataclasses.replace(self.build_turn(turn.response_id), cancelled=turn.cancelled)
            sink.reset_for_fallback()

    def _next_candidate(
        self, error: ModelError, response_id: str, *, has_output: bool = False
    ) -> None:
        """Turn to the next model, or raise if there is none, or no use in it."""
        theirs = isinstance(error, UpstreamError)
        last = (
            has_output
            or (theirs and is_request_fault(error))
            or self._index == len(self._candidates) - 1
        )
        if theirs or not last:
            after = (
                "" if last else f"; asking {self._candidates[self._index + 1].model.name[:100]!r}"
            )
            word, model = describe_for_log(error.status, error.payload), self.current.model.name
            logger.warning("%s: %.100r cannot answer (%s)%s", response_id, model, word, after)
        if last:
            raise error if has_output else self._add_earlier_errors(error)
        drop_tracebacks(error)
        self._failures.append((self.current, error))
        self._index += 1

    def _add_earlier_errors(self, error: ModelError) -> ModelError:
        """Return an error that tells also what happened before it."""
        if self._failures:
            before = " ".join(f"({asked.model.name}: {cause})" for asked, cause in self._failures)
            message = f"{error.payload.message} Before it, others could not answer: {before}"
            error.payload = replace(error.payload, message=message)
        return error

    def _fallback_warnings(self) -> list[parts.Warn]:
        answered = self.current.model.name
        message = "{} could not answer, and {} was asked instead: {}"
        return [
            parts.Warn("fallback", message.format(asked.model.name, answered, error), "model")
            for asked, error in self._failures
        ]


def is_request_fault(error: UpstreamError) -> bool:
    """Tell whether a request was refused for what it is, and not by a provider in trouble."""
    return error.status in REQUEST_FAULT_STATUSES and PROVIDER_FAULT_CODES.isdisjoint(
        (error.payload.type, error.payload.code)
    )
