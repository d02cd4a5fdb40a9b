"""The contract of `sweep`: expired rows are deleted in batches, and no others."""

from antiphon.store.base import LoggedEvents, Store
from tests.store.builders import NOW, ended_response, make_events, new_response, user_message

COUNT = 4


async def fill(store: Store, *ends: int) -> None:
    """Store a response with some events for each end time, and one in progress."""
    for n, at in enumerate(ends):
        response = new_response(f"r{n}")
        await store.begin(response, [user_message(f"m{n}")], tenant="t")
        await store.append(f"r{n}", 0, -1, make_events(0, COUNT), final=ended_response(response, at=at), tenant="t")
    await store.begin(new_response("running"), [], tenant="t")
    await store.append("running", 0, -1, make_events(0, COUNT), tenant="t")


async def sweep_all(store: Store, *, responses_before: int, events_before: int, limit: int) -> int:
    """Sweep until nothing has expired; return the number of deleted rows."""
    total = 0
    bounds = {"responses_before": responses_before, "events_before": events_before}
    while deleted := await store.sweep(**bounds, limit=limit):
        assert deleted <= limit
        total += deleted
    return total


class RetentionContract:
    """Tests of retention."""

    async def test_what_has_not_expired_is_kept(self, store: Store) -> None:
        await fill(store, NOW, NOW + 1, NOW + 2)
        assert await store.sweep(responses_before=NOW, events_before=NOW) == 0
        for n in range(3):
            log = await store.read(f"r{n}", -1, tenant="t")
            assert log == LoggedEvents(make_events(0, COUNT), ended=True)

    async def test_events_are_deleted_before_their_responses(self, store: Store) -> None:
        await fill(store, NOW, NOW + 1, NOW + 2)
        deleted = await sweep_all(store, responses_before=0, events_before=NOW + 2, limit=3)
        assert deleted == 2 * COUNT
        logs = [await store.read(f"r{n}", -1, tenant="t") for n in range(3)]
        assert logs == [None, None, LoggedEvents(make_events(0, COUNT), ended=True)]
        for n in range(3):
            found = await store.find(f"r{n}", tenant="t")
            assert found is not None
            assert found.last_sequence == COUNT - 1

    async def test_a_partly_deleted_log_cannot_be_read(self, store: Store) -> None:
        await fill(store, NOW)
        assert await store.sweep(responses_before=0, events_before=NOW + 1, limit=1) == 1
        assert await store.read("r0", -1, tenant="t") is None
        assert await store.read("r0", 2, tenant="t") is None

    async def test_expired_responses_are_deleted_with_their_items(self, store: Store) -> None:
        await fill(store, NOW, NOW + 1, NOW + 2)
        deleted = await sweep_all(store, responses_before=NOW + 2, events_before=0, limit=3)
        assert deleted == 2 * (COUNT + 1)
        found = [await store.find(f"r{n}", tenant="t") is not None for n in range(3)]
        assert found == [False, False, True]
        items = [await store.find_item(f"m{n}", tenant="t") for n in range(3)]
        assert items == [None, None, user_message("m2")]

    async def test_a_response_in_progress_is_never_deleted(self, store: Store) -> None:
        await fill(store)
        assert await store.sweep(responses_before=2**40, events_before=2**40) == 0
        log = await store.read("running", -1, tenant="t")
        assert log == LoggedEvents(make_events(0, COUNT), ended=False)

    async def test_a_response_without_completed_at_expires_by_the_time_it_was_stored(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await store.end(ended_response(new_response("r"), status="cancelled", at=None))
        assert await store.sweep(responses_before=NOW, events_before=NOW) == 0
        assert await store.sweep(responses_before=2**40, events_before=0) == 1

    async def test_a_chain_is_kept_until_its_newest_response_expires(self, store: Store) -> None:
        await add_chain(store, ("a", None, 1), ("b", "a", 2), ("c", "b", 9))
        await add_chain(store, ("fork", "a", 3), ("tip", "fork", 4))
        assert await sweep_all(store, responses_before=NOW + 3, events_before=0, limit=2) == 0
        # The fork is not continued any more; what it shares with the other branch is.
        assert await sweep_all(store, responses_before=NOW + 9, events_before=0, limit=1) == 2
        assert await find_all(store, "abc") == list("abc")
        assert await store.read_history("c") is not None
        assert await sweep_all(store, responses_before=NOW + 10, events_before=0, limit=2) == 3

    async def test_a_chain_whose_newest_response_is_in_progress_is_kept(self, store: Store) -> None:
        await add_chain(store, ("a", None, 1), ("b", "a", 2))
        await store.begin(new_response("c", "b"), [])
        for _ in range(2):
            assert await sweep_all(store, responses_before=NOW + 99, events_before=0, limit=500) == 0
        await store.end(ended_response(new_response("c", "b"), at=NOW + 50))
        assert await sweep_all(store, responses_before=NOW + 50, events_before=0, limit=500) == 0
        assert await sweep_all(store, responses_before=NOW + 200, events_before=0, limit=500) == 3

    async def test_a_response_whose_continuation_was_deleted_expires(self, store: Store) -> None:
        await add_chain(store, ("a", None, 1), ("b", "a", 5), ("c", "b", 6))
        await store.delete("b")
        assert await sweep_all(store, responses_before=NOW + 2, events_before=0, limit=500) == 1
        assert await find_all(store, "abc") == ["c"]

    async def test_a_chain_with_ends_out_of_order_expires_as_a_whole(self, store: Store) -> None:
        await add_chain(store, ("a", None, 9), ("b", "a", 2), ("c", "b", 5), ("d", "c", 5))
        assert await sweep_all(store, responses_before=NOW + 5, events_before=0, limit=1) == 0
        assert await sweep_all(store, responses_before=NOW + 10, events_before=0, limit=3) == 4


async def add_chain(store: Store, *responses: tuple[str, str | None, int]) -> None:
    """Store responses that ended some seconds after NOW."""
    for id, parent, seconds in responses:
        await store.begin(new_response(id, parent), [])
        await store.end(ended_response(new_response(id, parent), at=NOW + seconds))


async def find_all(store: Store, ids: str) -> list[str]:
    """Return the ids that are still stored."""
    return [id for id in ids if await store.find(id)]
