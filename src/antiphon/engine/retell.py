"""A finished response told once more, as the events that could have made it."""

from msgspec.structs import replace

from antiphon.core.events import Event, ResponseCompleted, ResponseFailed, ResponseIncomplete
from antiphon.core.parts import Finish, Whole
from antiphon.core.response import Response
from antiphon.core.synth import Synth

ENDINGS = {
    "completed": ResponseCompleted,
    "failed": ResponseFailed,
    "incomplete": ResponseIncomplete,
    "cancelled": ResponseIncomplete,
}


def retell(response: Response) -> list[Event]:
    """Return a legal stream that ends with exactly this response."""
    ids = iter([str(item.id) for item in response.output])
    begun = replace(
        response, status="in_progress", output=[], usage=None, completed_at=None, error=None
    )
    begun = replace(begun, incomplete_details=None)
    synth = Synth(
        begun, ids=lambda _: next(ids), clock=lambda: response.completed_at or 0, silent=True
    )
    events = synth.start()
    for item in response.output:
        events += synth.feed(Whole(item))
    if response.status != "completed":  # what it left open was closed as incomplete
        synth.feed(Finish("cancelled"))
    *closing, last = synth.end()
    ending = ENDINGS[response.status]
    return [*events, *closing, ending(sequence_number=last.sequence_number, response=response)]
