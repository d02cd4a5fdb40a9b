"""An outlet that keeps what it is told."""

from antiphon.core.events import Event, deltas


class Told:
    """Keeps every event; there is always room."""

    full = False

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, events: list[Event]) -> None:
        """Keep some events."""
        self.events += events

    def go_on(self, like: Event, number: int, said: list[str]) -> None:
        """Keep some deltas."""
        self.write(deltas(like, number, said))

    async def drained(self) -> None:
        """Return at once."""
