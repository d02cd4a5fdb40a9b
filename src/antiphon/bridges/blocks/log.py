"""A log or a recording of block events as a response, line by line."""

import time
from collections.abc import Callable

from antiphon.bridges.blocks.events import Status
from antiphon.bridges.blocks.jsonl import RunInfo, read_line
from antiphon.bridges.blocks.to_responses import BlockOptions, BlockTranslator
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import InvalidValueError
from antiphon.store.ids import new_id

STARTED = Status("Started")


def another_run_error() -> InvalidValueError:
    """Return the error of a log with several runs, of which only the first would be seen."""
    return InvalidValueError("", "another run begins here; convert one run at a time")


class BlockLogConverter:
    """Converts the lines of one run; the times of a recorded response are those of the recording."""

    def __init__(self, *, options: BlockOptions = BlockOptions(), ids: Callable[[str], str] = new_id) -> None:  # noqa: B008 - it is frozen
        self._options = options
        self._ids = ids
        self._info = RunInfo()
        self._elapsed_ms = 0
        self._begun: BlockTranslator | None = None

    @property
    def _translator(self) -> BlockTranslator:
        # Made for the first event: the model is in the line before it.
        if self._begun is None:
            self._begun = BlockTranslator(self._info.model, options=self._options, ids=self._ids, clock=self._clock)
        return self._begun

    def _clock(self) -> float:
        return self._info.timestamp + self._elapsed_ms / 1000 if self._info.timestamp else time.time()

    @property
    def response(self) -> Response:
        """The response as far as it is known."""
        return self._translator.response

    @property
    def next_input(self) -> list[Item]:
        """The output, then the results of tools."""
        return [*self.response.output, *self._translator.tool_results]

    def feed(self, line: bytes) -> list[Event]:
        """Return the events that one line causes; raises JSONError or InvalidValueError."""
        read = read_line(line)
        if isinstance(read, RunInfo):
            if self._begun is not None:
                raise another_run_error()
            self._info = read
            return []
        if read.event == STARTED and self._translator.ended:
            raise another_run_error()
        self._elapsed_ms = read.elapsed_ms
        return self._translator.feed(read.event)

    def end(self) -> list[Event]:
        """End the response, if no status has."""
        return self._translator.end()
