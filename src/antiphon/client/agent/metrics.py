"""How fast a run goes, and what time it is."""

import time
from datetime import UTC, datetime

from antiphon.client.agent.events import Metrics


def to_datetime(seconds: float | None) -> datetime | None:
    """Return a time of day."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


class MetricsRecorder:
    """How fast the words of one run come."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self._first = self._last = 0.0
        self._pieces = 0
        self._characters = 0

    def record(self, text: str) -> None:
        """Take note of a piece."""
        self._last = time.monotonic()
        self._first = self._first or self._last
        self._pieces += 1
        self._characters += len(text)

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the run began."""
        return round((time.monotonic() - self.start) * 1000, 3)

    def snapshot(self, llm_tokens: int | None = None) -> Metrics:
        """Tell how it goes; at the end with the tokens that the server counted."""
        elapsed = self.elapsed_ms
        took = self._last - self._first
        gaps = self._pieces - 1
        return Metrics(
            elapsed_time=elapsed,
            total_time=None if llm_tokens is None else elapsed,
            conversation_duration=elapsed,
            ttft=round((self._first - self.start) * 1000, 3) if self._pieces else None,
            token_count=self._pieces,
            llm_tokens=llm_tokens,
            avg_token_delay=round(took * 1000 / gaps, 3) if gaps > 0 else None,
            streaming_throughput=round(self._characters / took, 1) if took else None,
        )
