"""An outlet that keeps what it is told."""

from antiphon.core.events import Event
from antiphon.engine.outlet import Outlet


class Told(Outlet):
    """Keeps every event; there is always room."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def full(self) -> bool:
        """Never."""
        return False

    def write(self, events: list[Event]) -> None:
        """Keep some events."""
        self.events += events

    async def drained(self) -> None:
        """Return at once."""
