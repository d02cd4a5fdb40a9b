"""The models that may answer one request, tried in order until one of them produces output.

Each candidate has a turn of its own, because reasoning is unsealed for one origin only and sealed
for it again. After the first output there is no fallback: the client has seen it.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.ask import Asker
from antiphon.agents.turn import Turn
from antiphon.engine.models import Model, PartSink
from antiphon.engine.persistence import Context
from antiphon.engine.sealing import ItemSealer
from antiphon.engine.validation import warn_of_unused_fields
from antiphon.protocol import context, parts
from antiphon.protocol.errors import RequestError, UpstreamError, describe_for_log, drop_tracebacks, end_sentence
from antiphon.protocol.items import Item
from antiphon.protocol.request import Request

logger = logging.getLogger("antiphon.engine")

ModelError = RequestError | UpstreamError

REQUEST_FAULT_STATUSES = frozenset({400, 413, 422})
"""The statuses of a request that every other provider would reject too."""

# Several providers send these with one of the statuses above.
PROVIDER_FAULT_CODES = frozenset(
    """authentication_error invalid_api_key permission_denied permission_error
    insufficient_quota billing_error rate_limit_exceeded context_length_exceeded
    model_not_found invalid_model model_decommissioned""".split()
)
"""Error types and codes that concern one provider or model only, whatever the status."""


class Candidate(Struct, frozen=True):
    """One model that may answer a request, and the items that it would read.

    `history` and `new_items` are as the client knows them and as they are stored, reasoning still
    sealed. `unpaired_call_ids` names the calls without output and the outputs without call.
    """

    request: Request
    model: Model
    sealer: ItemSealer
    history: Context
    new_items: Sequence[Item]
    unpaired_call_ids: set[str]
    request_id: str = ""

    def build_turn(self, response_id: str = "", *, truncate: bool = True) -> Turn:
        """Unseal, repair and truncate the items for this model; raises RequestError."""
        earlier = "previous_response_id" if self.request.previous_response_id else "conversation"
        past = self.sealer.unseal_items(self.history.items, earlier)
        new = self.sealer.unseal_items(self.new_items, "input[{}].encrypted_content")
        if self.unpaired_call_ids:
            past = context.repair_unpaired(past, self.unpaired_call_ids)
            new = context.repair_unpaired(new, self.unpaired_call_ids)
        items = past + new
        window = self.model.window if truncate else None
        fitting = context.fit_to_window(items, window, self.request.truncation)
        # Truncation removes the oldest items, so all that is missing is missing in the history.
        history_length = max(0, len(past) - (len(items) - len(fitting)))
        return Turn(
            request=self.request,
            history=fitting[:history_length],
            input=fitting[history_length:],
            entry=self.model.entry,
            response_id=response_id,
            request_id=self.request_id,
        )


OpenAsker = Callable[[str, Turn, PartSink], AbstractAsyncContextManager[Asker]]
"""Opens what an agent asks other models with; see `ask.py`."""


class Fallback:
    """Answers one request with the first of its candidates that can."""

    def __init__(self, candidates: Sequence[Candidate], response_id: str, open_asker: OpenAsker | None = None) -> None:
        self._candidates = candidates
        self._open_asker = open_asker
        self._response_id = response_id
        self._index = 0
        self._failures: list[tuple[Candidate, ModelError]] = []
        self.turn = self._build_turn()
        """The turn of the first candidate that can read the request."""

    @property
    def current(self) -> Candidate:
        """The candidate that is answering."""
        return self._candidates[self._index]

    def seal_item(self, item: Item) -> Item:
        """Seal an item for the origin of the current candidate."""
        return self.current.sealer.seal_item(item)

    def _build_turn(self) -> Turn:
        while True:
            try:
                return self.current.build_turn(self._response_id)
            except RequestError as error:
                self._advance(error)

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Answer with the current candidate, or those after it; raises the last one's error."""
        while True:
            model = self.current.model
            sink.begin_answer(has_own_tools=model.is_agent)
            message = "{} could not answer, and {} was asked instead: {}"
            warnings = [
                parts.Warn("fallback", message.format(failed.model.name, model.name, error), "model")
                for failed, error in self._failures
            ]
            if not model.warns_of_unused_fields:
                warnings += warn_of_unused_fields(turn.request)
            if warnings:
                sink.feed(warnings)  # before the answer: a failed response takes no more parts
            try:
                if model.is_agent and self._open_asker:
                    async with self._open_asker(model.name, turn, sink) as asker:
                        await self.ask(model, dataclasses.replace(turn, asker=asker), sink)
                else:
                    await self.ask(model, turn, sink)
                break
            except (RequestError, UpstreamError) as error:
                self._advance(error, has_output=sink.has_output)
            turn = self._build_turn()

    async def ask(self, model: Model, turn: Turn, sink: PartSink) -> None:
        """Have one model answer."""
        await model.answer(turn, sink)

    def _advance(self, error: ModelError, *, has_output: bool = False) -> None:
        """Go to the next candidate; raise the error if there is none, or none may help."""
        from_provider = isinstance(error, UpstreamError)
        is_final = has_output or (from_provider and is_request_fault(error))
        next_model = None
        if not is_final and self._index + 1 < len(self._candidates):
            next_model = self._candidates[self._index + 1].model
        # A request that the only model cannot read is the client's mistake: not worth a warning.
        if from_provider or next_model:
            reason, name = describe_for_log(error.status, error.payload), self.current.model.name
            then = f"; asking {next_model.name[:100]!r}" if next_model else ""
            logger.warning("%s: %.100r cannot answer (%s)%s", self._response_id, name, reason, then)
        if next_model is None:
            if self._failures and not has_output:
                earlier = " ".join(f"{one.model.name}: {end_sentence(str(cause))}" for one, cause in self._failures)
                message = f"{end_sentence(error.payload.message)} Others could not answer before it. {earlier}"
                error.payload = replace(error.payload, message=message)
            raise error
        drop_tracebacks(error)
        self._failures.append((self.current, error))
        self._index += 1


def is_request_fault(error: UpstreamError) -> bool:
    """Tell whether the request itself was rejected, so that no other model would accept it."""
    codes = (error.payload.type, error.payload.code)
    return error.status in REQUEST_FAULT_STATUSES and PROVIDER_FAULT_CODES.isdisjoint(codes)
