"""Contexts in memory, bounded by bytes and age."""

from antiphon.core.items import user
from antiphon.core.value import encode
from antiphon.engine.recent import GONE, OBJECT, Context, Recent

HELLO = user("hello")
SIZE = len(encode(HELLO)) + OBJECT


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def context(*ids: str) -> Context:
    """Make the context of a chain in which everyone said hello."""
    made = Context()
    for id in ids:
        made = made.then([HELLO], id)
    return made


def recent(room: int = 100, seconds: float = 60, clock: Clock | None = None) -> Recent:
    """Make a memory with room for some greetings."""
    return Recent(room * SIZE, seconds, clock or Clock())


def test_a_context_grows_by_what_was_said_and_knows_its_size() -> None:
    first = Context().then([HELLO], "a")
    assert first == Context((HELLO,), ("a",), SIZE)
    assert first.then([HELLO, HELLO], "b", "c") == Context(
        (HELLO, HELLO, HELLO), ("a", "b", "c"), 3 * SIZE
    )
    assert first == Context((HELLO,), ("a",), SIZE)


def test_what_was_added_is_found_by_its_tenant_only() -> None:
    memory = recent()
    memory.add("a", context("a"), tenant="t")
    assert memory.find("a", tenant="t") == context("a")
    assert memory.find("a") is None
    assert memory.find("b", tenant="t") is None


def test_the_least_used_goes_first_when_there_is_no_more_room() -> None:
    memory = recent(room=3)
    for id in "abc":
        memory.add(id, context(id))
    memory.find("a")
    memory.add("d", context("d"))
    assert [id for id in "abcd" if memory.find(id)] == ["a", "c", "d"]


def test_what_contexts_share_counts_in_each_of_them() -> None:
    memory = recent(room=5)
    memory.add("a", context("a"))
    memory.add("b", context("a", "b"))
    memory.add("c", context("a", "b", "c"))
    assert [id for id in "abc" if memory.find(id)] == ["b", "c"]


def test_a_context_larger_than_the_room_is_not_kept() -> None:
    memory = recent(room=1)
    memory.add("b", context("a", "b"))
    assert len(memory) == 0
    memory.add("a", context("a"))
    assert memory.find("a")


def test_a_context_larger_than_the_room_leaves_the_others_where_they_are() -> None:
    memory = recent(room=2)
    memory.add("a", context("a"))
    memory.add("d", context("b", "c", "d"))
    assert [id for id in "abcd" if memory.find(id)] == ["a"]


def test_adding_again_replaces_and_frees_the_room() -> None:
    memory = recent(room=2)
    for _ in range(10):
        memory.add("a", context("a"))
    memory.add("b", context("b"))
    assert len(memory) == 2


def test_nothing_outlives_its_time_however_often_it_is_used() -> None:
    clock = Clock()
    memory = recent(seconds=60, clock=clock)
    memory.add("a", context("a"))
    clock.now = 60
    assert memory.find("a")
    clock.now = 60.5
    assert memory.find("a") is None
    assert len(memory) == 0


def test_a_sweep_forgets_what_is_too_old_and_nothing_else() -> None:
    clock = Clock()
    memory = recent(seconds=60, clock=clock)
    memory.add("a", context("a"))
    clock.now = 30
    memory.add("b", context("b"))
    clock.now = 61
    memory.sweep()
    assert len(memory) == 1
    assert memory.find("b")


def test_forgetting_a_response_forgets_everything_that_came_after_it() -> None:
    memory = recent()
    memory.add("a", context("a"))
    memory.add("b", context("a", "b"))
    memory.add("c", context("a", "b", "c"))
    memory.add("b", context("a", "b"), tenant="t")
    memory.forget("b")
    assert [id for id in "abc" if memory.find(id)] == ["a"]
    assert memory.find("b", tenant="t")


def test_what_was_forgotten_does_not_come_back_with_what_was_being_made() -> None:
    memory = recent()
    memory.forget("a")
    memory.add("b", context("a", "b"))
    memory.add("b", context("a", "b"), tenant="t")
    memory.add("c", context("c"))
    assert [id for id in "abc" if memory.find(id)] == ["c"]
    assert memory.find("b", tenant="t")


def test_only_so_many_are_known_to_be_forgotten() -> None:
    memory = recent()
    for number in range(GONE + 1):
        memory.forget(str(number))
    memory.add("0", context("0"))
    memory.add("1", context("1"))
    assert [id for id in "01" if memory.find(id)] == ["0"]


def test_evicting_forgets_one_context_and_none_that_came_after_it() -> None:
    memory = recent()
    memory.add("a", context("a"))
    memory.add("b", context("a", "b"))
    memory.evict("a")
    memory.evict("never there")
    assert [id for id in "ab" if memory.find(id)] == ["b"]
