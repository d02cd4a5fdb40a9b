import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.agent.smoothing import Smoother

EmitLog = list[tuple[float, str]]


class InstantSelector(selectors.DefaultSelector):
    """A selector that returns at once and records the timeout."""

    waited = 0.0

    def select(self, timeout: float | None = None):
        self.waited += timeout or 0
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, which advances when all tasks wait."""

    def __init__(self) -> None:
        self.selector = InstantSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.waited


def run(scenario: Callable[[EmitLog], Coroutine[None, None, None]]) -> EmitLog:
    """Run a coroutine that writes into a list; return it, with times in hundredths of a second."""
    log: EmitLog = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scenario(log))
    return [(round(time * 100, 1), text) for time, text in log]


def writer(log: EmitLog, pause: float = 0) -> Callable[[str], Awaitable[None]]:
    """Return an emit function that records times and texts, and pauses."""

    async def emit(text: str) -> None:
        log.append((asyncio.get_running_loop().time(), text))
        await asyncio.sleep(pause)

    return emit


def test_the_first_chunk_is_emitted_at_once_and_then_one_per_delay():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log))
        await smoother.feed("one two three four ")
        await asyncio.sleep(1)
        await smoother.feed("five six")
        await asyncio.sleep(1)
        await smoother.flush()

    assert run(scenario) == [(0, "one "), (3, "two "), (6, "three "), (100, "four "), (103, "five "), (200, "six")]


def test_a_flush_emits_the_rest_as_one_chunk():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log))
        await smoother.feed("one two three four")
        await smoother.flush()
        await smoother.flush()
        await asyncio.sleep(1)

    assert run(scenario) == [(0, "one "), (0, "two three four")]


def test_text_after_a_flush_starts_anew():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log))
        await smoother.feed("one two three")
        await asyncio.sleep(0.04)
        await smoother.flush()
        await smoother.feed("four five six")
        await smoother.flush()

    assert run(scenario) == [(0, "one "), (3, "two "), (4, "three"), (4, "four "), (4, "five six")]


def test_without_smoothing_text_is_only_throttled():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log), delay=0.1, enabled=False)
        for word in ("He", "llo ", "wo", "", "rld"):
            await smoother.feed(word)
            await asyncio.sleep(0.04)
        await smoother.feed("!")
        await asyncio.sleep(1)
        await smoother.feed("?")
        await smoother.feed(".")
        await smoother.flush()

    assert run(scenario) == [(0, "He"), (10, "llo wo"), (20, "rld!"), (120, "?"), (120, ".")]


@pytest.mark.parametrize("enabled", [True, False])
def test_without_a_delay_every_chunk_is_emitted_at_once(enabled: bool):
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log), delay=0, enabled=enabled)
        await smoother.feed("one two ")
        await smoother.feed("three")
        assert len(asyncio.all_tasks()) == 1
        await smoother.flush()

    chunks = ["one ", "two ", "three"] if enabled else ["one two ", "three"]
    assert run(scenario) == [(0, chunk) for chunk in chunks]


def test_coalescing_emits_the_first_text_at_once_and_then_sentences():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log), "sentence", delay=0.25, coalesce=True)
        for word in ("Let", " me", " see. It", " is. So", " be it. And", " then"):
            await smoother.feed(word)
            await asyncio.sleep(0.1)
        await smoother.flush()

    assert run(scenario) == [(0, "Let"), (25, " me see. "), (50, "It is. So be it. "), (60, "And then")]


def test_a_flush_in_the_middle_of_a_chunk_keeps_the_order():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log, pause=0.02), delay=0.03)
        await smoother.feed("one two three four")
        await asyncio.sleep(0.02)  # "two" is on its way out
        await smoother.flush()
        assert len(asyncio.all_tasks()) == 1

    assert run(scenario) == [(0, "one "), (3, "two "), (5, "three four")]


def test_emit_can_be_a_sync_function():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(lambda text: log.append((0, text)))
        await smoother.feed("one two three")
        await asyncio.sleep(1)
        await smoother.flush()

    assert [text for _, text in run(scenario)] == ["one ", "two ", "three"]


def test_a_slow_emit_delays_the_writer_by_one_chunk_at_most():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log, pause=0.5))
        await smoother.feed("one two three four five")
        assert asyncio.get_running_loop().time() == 0.5
        await asyncio.sleep(0.7)  # "three" is on its way out
        await smoother.flush()
        assert len(asyncio.all_tasks()) == 1

    assert run(scenario) == [(0, "one "), (50, "two "), (100, "three "), (150, "four five")]


def test_discarded_text_is_not_emitted_and_no_task_remains():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log, pause=0.05))
        await smoother.feed("one two three ha")
        await asyncio.sleep(0.01)  # "two" is on its way out
        await smoother.discard()
        await smoother.discard()
        assert len(asyncio.all_tasks()) == 1
        await asyncio.sleep(1)
        await smoother.feed("four")
        await smoother.flush()

    assert run(scenario) == [(0, "one "), (5, "two "), (106, "four")]


def test_discard_waits_until_the_emission_has_stopped():
    async def scenario(log: EmitLog) -> None:
        async def emit(text: str) -> None:
            try:
                await writer(log, pause=0.05)(text)
            finally:
                await asyncio.sleep(0.1)

        smoother = Smoother(emit)
        await smoother.feed("one two three")
        await asyncio.sleep(0.01)  # "two" is on its way out
        await smoother.discard()
        log.append((asyncio.get_running_loop().time(), "stopped"))
        assert len(asyncio.all_tasks()) == 1

    assert run(scenario) == [(0, "one "), (15, "two "), (26, "stopped")]


class EmitFailed(Exception):
    """Raised by a failing emit function."""


def failing(log: EmitLog, times: int) -> Callable[[str], None]:
    """Return an emit function that fails once after some calls."""

    def emit(text: str) -> None:
        log.append((0, text))
        if len(log) == times:
            raise EmitFailed

    return emit


async def expect(failure: Awaitable[None]) -> None:
    """Await something that must raise EmitFailed."""
    with pytest.raises(EmitFailed):
        await failure


def test_an_immediate_failure_of_emit_is_raised_by_feed():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(failing(log, 1))
        await expect(smoother.feed("one two "))
        await smoother.discard()

    assert run(scenario) == [(0, "one ")]


def test_a_background_failure_of_emit_is_raised_by_the_next_call():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(failing(log, 2))
        await smoother.feed("one two three ")
        await asyncio.sleep(1)
        await expect(smoother.feed("four "))
        smoother = Smoother(failing(log, 4))
        await smoother.feed("one two three ")
        await asyncio.sleep(1)
        await expect(smoother.flush())
        await smoother.flush()
        assert len(asyncio.all_tasks()) == 1

    assert [text for _, text in run(scenario)] == ["one ", "two ", "one ", "two ", "three "]


def test_a_background_failure_is_dropped_by_discard():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(failing(log, 2))
        await smoother.feed("one two three ")
        await asyncio.sleep(1)
        await smoother.discard()

    assert run(scenario) == [(0, "one "), (0, "two ")]


def test_a_cancelled_writer_leaves_no_task():
    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log, pause=1))
        await smoother.feed("one two three four")
        flushing = asyncio.create_task(smoother.flush())
        await asyncio.sleep(0.5)
        flushing.cancel()
        await asyncio.wait([flushing])
        await smoother.discard()
        assert (flushing.cancelled(), len(asyncio.all_tasks())) == (True, 1)

    assert run(scenario) == [(0, "one "), (100, "two three four")]


STEP = st.one_of(
    st.text(st.sampled_from("ab .!\n`é中👩\u200d🇫"), max_size=20),
    st.sampled_from([0.0, 0.01, 0.03, 0.2]),
    st.just("flush!"),
)


@settings(deadline=None)
@given(
    steps=st.lists(STEP, max_size=12),
    strategy=st.sampled_from(["character", "word", "sentence"]),
    delay=st.sampled_from([0.0, 0.03, 0.25]),
    pause=st.sampled_from([0.0, 0.01, 0.1]),
    options=st.sampled_from([{}, {"enabled": False}, {"coalesce": True}]),
)
def test_the_emitted_text_is_the_fed_text(steps, strategy, delay: float, pause: float, options):
    flushes: list[int] = []

    async def scenario(log: EmitLog) -> None:
        smoother = Smoother(writer(log, pause), strategy, delay, **options)
        for step in steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif step == "flush!":
                await smoother.flush()
                flushes.append(len(log))
            else:
                await smoother.feed(step)
        await smoother.flush()
        flushes.append(len(log))
        assert len(asyncio.all_tasks()) == 1

    log = run(scenario)
    fed = [step for step in steps if isinstance(step, str) and step != "flush!"]
    assert "".join(text for _, text in log) == "".join(fed)
    for start, end in pairwise([0, *flushes]):
        paced = log[start : max(start, end - 1)]  # the last may be the flush's own
        times = [time for time, _ in paced]
        assert all(after - before >= delay * 100 - 0.2 for before, after in pairwise(times))
