"""Contexts in memory, bounded by bytes and age."""

from antiphon.core.items import user_message
from antiphon.core.value import encode
from antiphon.engine.recent import MAX_DELETED, ITEM_OVERHEAD_BYTES, Context, ContextCache

HELLO = user_message("hello")
SIZE = len(encode(HELLO)) + ITEM_OVERHEAD_BYTES


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_context(*ids: str) -> Context:
    """Make the context of a chain in which everyone said hello."""
    made = Context()
    for id in ids:
        made = made.extend([HELLO], id)
    return made


def make_cache_of(room: int = 100, seconds: float = 60, clock: Clock | None = None) -> ContextCache:
    """Make a memory with room for some greetings."""
    return ContextCache(room * SIZE, seconds, clock or Clock())


def test_a_context_grows_by_what_was_said_and_knows_its_size() -> None:
    first = Context().extend([HELLO], "a")
    assert first == Context((HELLO,), ("a",), SIZE)
    assert first.extend([HELLO, HELLO], "b", "c") == Context(
        (HELLO, HELLO, HELLO), ("a", "b", "c"), 3 * SIZE
    )
    assert first == Context((HELLO,), ("a",), SIZE)


def test_what_was_added_is_found_by_its_tenant_only() -> None:
    memory = make_cache_of()
    memory.add("a", make_context("a"), tenant="t")
    assert memory.find("a", tenant="t") == make_context("a")
    assert memory.find("a") is None
    assert memory.find("b", tenant="t") is None


def test_the_least_used_goes_first_when_there_is_no_more_room() -> None:
    memory = make_cache_of(room=3)
    for id in "abc":
        memory.add(id, make_context(id))
    memory.find("a")
    memory.add("d", make_context("d"))
    assert [id for id in "abcd" if memory.find(id)] == ["a", "c", "d"]


def test_what_contexts_share_counts_in_each_of_them() -> None:
    memory = make_cache_of(room=5)
    memory.add("a", make_context("a"))
    memory.add("b", make_context("a", "b"))
    memory.add("c", make_context("a", "b", "c"))
    assert [id for id in "abc" if memory.find(id)] == ["b", "c"]


def test_a_context_larger_than_the_room_is_not_kept() -> None:
    memory = make_cache_of(room=1)
    memory.add("b", make_context("a", "b"))
    assert len(memory) == 0
    memory.add("a", make_context("a"))
    assert memory.find("a")


def test_a_context_larger_than_the_room_leaves_the_others_where_they_are() -> None:
    memory = make_cache_of(room=2)
    memory.add("a", make_context("a"))
    memory.add("d", make_context("b", "c", "d"))
    assert [id for id in "abcd" if memory.find(id)] == ["a"]


def test_adding_again_replaces_and_frees_the_room() -> None:
    memory = make_cache_of(room=2)
    for _ in range(10):
        memory.add("a", make_context("a"))
    memory.add("b", make_context("b"))
    assert len(memory) == 2


def test_nothing_outlives_its_time_however_often_it_is_used() -> None:
    clock = Clock()
    memory = make_cache_of(seconds=60, clock=clock)
    memory.add("a", make_context("a"))
    clock.now = 60
    assert memory.find("a")
    clock.now = 60.5
    assert memory.find("a") is None
    assert len(memory) == 0


def test_a_sweep_forgets_what_is_too_old_and_nothing_else() -> None:
    clock = Clock()
    memory = make_cache_of(seconds=60, clock=clock)
    memory.add("a", make_context("a"))
    clock.now = 30
    memory.add("b", make_context("b"))
    clock.now = 61
    memory.remove_expired()
    assert len(memory) == 1
    assert memory.find("b")


def test_forgetting_a_response_forgets_everything_that_came_after_it() -> None:
    memory = make_cache_of()
    memory.add("a", make_context("a"))
    memory.add("b", make_context("a", "b"))
    memory.add("c", make_context("a", "b", "c"))
    memory.add("b", make_context("a", "b"), tenant="t")
    memory.invalidate("b")
    assert [id for id in "abc" if memory.find(id)] == ["a"]
    assert memory.find("b", tenant="t")


def test_what_was_forgotten_does_not_come_back_with_what_was_being_made() -> None:
    memory = make_cache_of()
    memory.invalidate("a")
    memory.add("b", make_context("a", "b"))
    memory.add("b", make_context("a", "b"), tenant="t")
    memory.add("c", make_context("c"))
    assert [id for id in "abc" if memory.find(id)] == ["c"]
    assert memory.find("b", tenant="t")


def test_only_so_many_are_known_to_be_forgotten() -> None:
    memory = make_cache_of()
    for number in range(MAX_DELETED + 1):
        memory.invalidate(str(number))
    memory.add("0", make_context("0"))
    memory.add("1", make_context("1"))
    assert [id for id in "01" if memory.find(id)] == ["0"]


def test_evicting_forgets_one_context_and_none_that_came_after_it() -> None:
    memory = make_cache_of()
    memory.add("a", make_context("a"))
    memory.add("b", make_context("a", "b"))
    memory.evict("a")
    memory.evict("never there")
    assert [id for id in "ab" if memory.find(id)] == ["b"]
