"""One prompt, made ready for one adapter: what to send, and what will hear the answer."""

from antiphon.adapters.base import Adapter, Decoder, Prompt
from antiphon.adapters.carry import remove_unsupported
from antiphon.adapters.forced import AnswerToolDecoder, add_answer_tool, needs_answer_tool
from antiphon.wire.upstream import Upstream


def encode_prompt(adapter: Adapter, prompt: Prompt) -> tuple[Upstream, Decoder]:
    """Write a prompt for a provider; raises RequestError for what it cannot carry.

    What it left out is in the prompt's warnings afterwards.
    """
    given = remove_unsupported(adapter, prompt)
    if not needs_answer_tool(adapter, given):
        return adapter.encode(given), adapter.decoder(given)
    asked = add_answer_tool(adapter, given)
    return adapter.encode(asked), AnswerToolDecoder(adapter.decoder(asked), given.request)
