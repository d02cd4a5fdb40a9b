"""The contract of Feed: one writer, no gaps, no duplicates, nothing after the end."""

import asyncio

from antiphon.store.base import LoggedEvents, Store, StoredResponse
from tests.store.builders import assistant_message, ended_response, make_events, new_response


async def read_to_end(store: Store, id: str, after: int = -1) -> list[bytes]:
    """Read a log to its end, waiting for new events."""
    seen: list[bytes] = []
    while True:
        log = await store.read(id, after + len(seen), limit=7)
        assert log is not None
        seen += log.events
        if log.ended:
            return seen
        if not log.events:
            await store.wait(id, after + len(seen))


class FeedContract:
    """Tests of event logs."""

    async def test_events_are_read_as_appended(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        assert await store.append("r", 0, -1, make_events(0, 3))
        assert await store.append("r", 0, 2, make_events(3, 2))
        assert await store.read("r", -1) == LoggedEvents(make_events(0, 5), ended=False)
        assert await store.read("r", 2) == LoggedEvents(make_events(3, 2), ended=False)
        assert await store.read("r", 4) == LoggedEvents([], ended=False)
        assert await store.find("r") == StoredResponse(new_response("r"), last_sequence=4)

    async def test_a_read_stops_at_its_limit(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await store.append("r", 0, -1, make_events(0, 600), final=ended_response(new_response("r")))
        assert await store.read("r", -1) == LoggedEvents(make_events(0, 512), ended=False)
        assert await store.read("r", 511) == LoggedEvents(make_events(512, 88), ended=True)
        assert await store.read("r", 9, limit=2) == LoggedEvents(make_events(10, 2), ended=False)
        assert await store.read("r", 597, limit=2) == LoggedEvents(make_events(598, 2), ended=True)
        assert await store.read("r", 599) == LoggedEvents([], ended=True)
        assert await store.read("r", 10_000) == LoggedEvents([], ended=True)

    async def test_a_missing_response_has_no_log(self, store: Store) -> None:
        assert await store.read("r", -1) is None
        assert not await store.append("r", 0, -1, make_events(0, 1))
        assert await store.claim("r") is None
        await asyncio.wait_for(store.wait("r", -1), 5)

    async def test_a_log_may_stay_empty(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        assert await store.read("r", -1) == LoggedEvents([], ended=False)
        await store.end(ended_response(new_response("r")))
        assert await store.read("r", -1) == LoggedEvents([], ended=True)

    async def test_a_response_can_end_with_its_last_events(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await store.append("r", 0, -1, make_events(0, 2))
        final = ended_response(new_response("r"), assistant_message("out"))
        assert await store.append("r", 0, 1, make_events(2, 1), final=final)
        assert await store.read("r", -1) == LoggedEvents(make_events(0, 3), ended=True)
        assert await store.find("r") == StoredResponse(final, last_sequence=2)
        assert await store.find_item("out") == assistant_message("out")

    # --- the fence ---------------------------------------------------------------------------

    async def test_every_claim_is_a_new_epoch(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        assert [await store.claim("r") for _ in range(3)] == [1, 2, 3]
        assert await store.find("r") == StoredResponse(new_response("r"), epoch=3)
        await store.end(ended_response(new_response("r")))
        assert await store.claim("r") is None

    async def test_concurrent_claims_get_different_epochs(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        claims = await asyncio.gather(*(store.claim("r") for _ in range(20)))
        assert sorted(claim or 0 for claim in claims) == [*range(1, 21)]

    async def test_only_the_newest_epoch_appends(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await store.claim("r")
        await store.append("r", 1, -1, make_events(0, 2))
        await store.claim("r")
        for epoch in (0, 1, 3):
            assert not await store.append("r", epoch, 1, [b"no"], final=ended_response(new_response("r")))
        assert await store.append("r", 2, 1, make_events(2, 1))
        assert await store.read("r", -1) == LoggedEvents(make_events(0, 3), ended=False)
        assert await store.find("r") == StoredResponse(new_response("r"), epoch=2, last_sequence=2)

    async def test_events_are_appended_only_after_the_last_one(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await store.append("r", 0, -1, make_events(0, 3))
        for after in (-2, -1, 0, 1, 3, 100):
            assert not await store.append("r", 0, after, [b"no", b"no"])
        assert await store.read("r", -1) == LoggedEvents(make_events(0, 3), ended=False)

    async def test_nothing_is_appended_after_the_end(self, store: Store) -> None:
        for id in "ab":
            await store.begin(new_response(id), [])
            await store.append(id, 0, -1, make_events(0, 1))
        final = ended_response(new_response("a"), status="cancelled")
        await store.append("a", 0, 0, make_events(1, 1), final=final)
        await store.end(ended_response(new_response("b"), status="failed"))
        assert not await store.append("a", 0, 1, [b"no"], final=ended_response(new_response("a")))
        assert not await store.append("b", 0, 0, [b"no"], final=ended_response(new_response("b")))
        assert await store.read("a", -1) == LoggedEvents(make_events(0, 2), ended=True)
        assert await store.read("b", -1) == LoggedEvents(make_events(0, 1), ended=True)
        assert await store.find("a") == StoredResponse(final, last_sequence=1)

    async def test_a_response_can_end_without_events(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        assert await store.append("r", 0, -1, [])
        assert not await store.append("r", 0, 0, [])
        assert await store.append("r", 0, -1, [], final=ended_response(new_response("r")))
        assert await store.find("r") == StoredResponse(ended_response(new_response("r")))

    async def test_of_concurrent_appends_one_succeeds(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        for place in range(5):
            tries = [store.append("r", 0, place - 1, [b"%d by %d" % (place, n)]) for n in range(20)]
            assert sorted(await asyncio.gather(*tries)) == [False] * 19 + [True]
        log = await store.read("r", -1)
        assert log is not None
        assert [event.split()[0] for event in log.events] == [b"0", b"1", b"2", b"3", b"4"]

    async def test_of_cancellation_and_completion_one_succeeds(self, store: Store) -> None:
        for n in range(20):
            response = new_response(f"r{n}")
            await store.begin(response, [])
            completed, cancelled = (ended_response(response), ended_response(response, status="cancelled"))
            race = [
                store.append(response.id, 0, -1, [b"completed"], final=completed),
                store.append(response.id, 0, -1, [b"cancelled"], final=cancelled),
            ]
            won = await asyncio.gather(*(race if n % 2 else race[::-1]))
            assert sorted(won) == [False, True]
            found, log = await store.find(response.id), await store.read(response.id, -1)
            assert found is not None
            assert log == LoggedEvents([found.response.status.encode()], ended=True)

    # --- readers -----------------------------------------------------------------------------

    async def test_readers_see_every_event_once_whenever_they_start(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        everything = make_events(0, 200)
        readers: list[asyncio.Task[list[bytes]]] = []
        for number in range(0, 200, 5):
            readers.append(asyncio.create_task(read_to_end(store, "r", number - 1)))
            final = ended_response(new_response("r")) if number == 195 else None
            batch = everything[number : number + 5]
            assert await store.append("r", 0, number - 1, batch, final=final)
        readers.append(asyncio.create_task(read_to_end(store, "r")))
        seen = await asyncio.wait_for(asyncio.gather(*readers), 20)
        assert seen == [everything[number:] for number in range(0, 200, 5)] + [everything]

    async def test_a_waiting_reader_is_notified(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        for wake in (
            lambda: store.append("r", 0, -1, make_events(0, 1)),
            lambda: store.end(ended_response(new_response("r"))),
        ):
            last = (await store.find("r") or StoredResponse(new_response("r"))).last_sequence
            waiting = asyncio.create_task(store.wait("r", last))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await wake()
            await asyncio.wait_for(waiting, 0.5)

    async def test_a_reader_that_is_behind_does_not_wait(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await store.append("r", 0, -1, make_events(0, 2))
        await asyncio.wait_for(store.wait("r", 0), 0.5)
        await store.end(ended_response(new_response("r")))
        await asyncio.wait_for(store.wait("r", 1), 0.5)

    async def test_a_waiting_reader_is_notified_of_a_deletion(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        waiting = asyncio.create_task(store.wait("r", -1))
        await asyncio.sleep(0.05)
        await store.delete("r")
        await asyncio.wait_for(waiting, 0.5)

    async def test_a_wait_ends_without_a_notification(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        await asyncio.wait_for(store.wait("r", -1), 5)
