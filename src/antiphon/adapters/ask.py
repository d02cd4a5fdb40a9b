"""One prompt, made ready for one adapter: what to send, and what will hear the answer."""

from antiphon.adapters.base import Adapter, Decoder, Prompt
from antiphon.adapters.carry import carried
from antiphon.adapters.forced import ForcedDecoder, forced, needed
from antiphon.wire.upstream import Upstream


def ask(adapter: Adapter, prompt: Prompt) -> tuple[Upstream, Decoder]:
    """Write a prompt for a provider; raises RequestError for what it cannot carry.

    What it left out is in the prompt's warnings afterwards.
    """
    given = carried(adapter, prompt)
    if not needed(adapter, given):
        return adapter.encode(given), adapter.decoder(given)
    asked = forced(adapter, given)
    return adapter.encode(asked), ForcedDecoder(adapter.decoder(asked), given.request)
