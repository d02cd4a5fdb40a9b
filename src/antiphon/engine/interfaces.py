"""Where the events of a run go, as the run meets it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from antiphon.protocol.events import Event
from antiphon.protocol.fast_text import TextFastPath

WriteText = Callable[[list[str]], bool]
"""Takes more words of one text, a delta each; tells whether there is too much to be sent now.

No delta is empty, and none holds what JSON escapes, or half a character.
"""


class EventSink(Protocol):
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

    def text_fast_path(self, fast_path: TextFastPath) -> WriteText | None:
        """Return what takes more of a text without the making of events, if there is such a way."""
        del fast_path
        return None

    @abstractmethod
    async def drain(self) -> None:
        """Return when more may be written."""
        ...
