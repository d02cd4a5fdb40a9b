"""An event sink that records its events."""

from antiphon.engine.models import EventSink
from antiphon.protocol.events import Event


class RecordingSink(EventSink):
    """Records every event, and is never full."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def full(self) -> bool:
        """Never."""
        return False

    def write(self, events: list[Event]) -> None:
        """Keep some events."""
        self.events += events

    async def drain(self) -> None:
        """Return at once."""
