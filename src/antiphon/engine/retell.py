"""A finished response told once more, as the events that could have made it."""

from msgspec.structs import replace

from antiphon.core.events import Event
from antiphon.core.parts import Whole
from antiphon.core.response import Response
from antiphon.core.synth import Synth


def replay_response(response: Response) -> list[Event]:
    """Return a legal stream that ends with exactly this response."""
    ids = iter([str(item.id) for item in response.output])
    begun = replace(
        response, status="in_progress", output=[], usage=None, completed_at=None, error=None
    )
    begun = replace(begun, incomplete_details=None)
    synth = Synth(begun, ids=lambda _: next(ids), clock=lambda: 0)
    events = synth.start()
    for item in response.output:
        events += synth.feed(Whole(item))
    return events + synth.end_as(response)
