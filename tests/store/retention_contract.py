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
