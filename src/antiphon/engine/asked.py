"""A request understood: who answers it, what they read, and what of it is new."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.agents.turn import Turn
from antiphon.core import context
from antiphon.core.items import Item
from antiphon.core.request import Request
from antiphon.engine.models import Model
from antiphon.engine.opening import ItemSealer
from antiphon.engine.recent import Context


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
