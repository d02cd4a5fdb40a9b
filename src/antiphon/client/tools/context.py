"""What a tool may know of the call it answers, beside its arguments."""

from collections.abc import Callable
from threading import Event


class ToolContext:
    """One call, as its tool sees it; given to a parameter annotated with this class.

    `cancelled` is set when nobody waits for the result any more: a function that runs in a thread
    cannot be stopped, and may look at it.
    """

    def __init__(
        self, call_id: str = "", name: str = "", report: Callable[[object], None] | None = None
    ) -> None:
        self.call_id = call_id
        self.name = name
        self.cancelled = Event()
        self._report = report

    def __repr__(self) -> str:
        return f"<ToolContext {self.name} {self.call_id}>"

    def progress(self, value: object) -> None:
        """Tell how far it is, from any thread; after the end it goes unheard."""
        if self._report is not None:
            self._report(value)
