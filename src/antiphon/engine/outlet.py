"""Where the events of a run go, as the run meets it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from antiphon.core.events import Event
from antiphon.core.opened import Flow

Flowing = Callable[[list[str]], bool]
"""Takes more words of one text, a delta each; tells whether there is too much to be sent now.

No delta is empty, and none holds what JSON escapes, or half a character.
"""


class Outlet(Protocol):
    """Where a run's events go."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether more than enough is waiting to be sent."""
        ...

    @abstractmethod
    def write(self, events: list[Event]) -> None:
        """Take events, at once."""
        ...

    def flow(self, flow: Flow) -> Flowing | None:
        """Return what takes more of a text without the making of events, if there is such a way."""
        del flow
        return None

    @abstractmethod
    async def drained(self) -> None:
        """Return when more may be written."""
        ...
