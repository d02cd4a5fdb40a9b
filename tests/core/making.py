"""What the core's tests make their values with: ids that count, a clock that stands still."""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from antiphon.core.events import Event
from antiphon.core.parts import Part
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.core.value import encode

NOW = 1_700_000_000
LATER = NOW + 5


def counting_ids() -> Callable[[str], str]:
    """Return a source of ids that counts per prefix: msg_0, msg_1, fc_0 …"""
    taken: Counter[str] = Counter()

    def next_id(prefix: str) -> str:
        taken[prefix] += 1
        return f"{prefix}_{taken[prefix] - 1}"

    return next_id


def begun(**changes: object) -> Response:
    """Make the response that every stream here tells of."""
    fields: dict[str, object] = {"id": "resp_0", "created_at": NOW, "model": "m", **changes}
    return Response(**fields)  # pyright: ignore[reportArgumentType]


def synth(response: Response | None = None, **options: object) -> Synth:
    """Make a synthesizer whose every value is known beforehand."""
    return Synth(
        response or begun(),
        ids=counting_ids(),
        clock=lambda: float(LATER),
        **options,  # pyright: ignore[reportArgumentType]
    )


def stream(*parts: Part, response: Response | None = None, **options: object) -> list[Event]:
    """Return the whole stream that some parts become."""
    return stream_of(parts, synth(response, **options))


def stream_of(parts: Iterable[Part], made: Synth) -> list[Event]:
    """Return the whole stream that a synthesizer makes of some parts."""
    events = made.start()
    for part in parts:
        if made.ended:
            break
        events += made.feed(part)
    return events + made.end()


def jsoned(value: object) -> object:
    """Return a value as a client reads it."""
    return msgspec.json.decode(encode(value))


def types(events: Iterable[Event]) -> list[str]:
    """Return only the names of some events."""
    return [event.type for event in events]
