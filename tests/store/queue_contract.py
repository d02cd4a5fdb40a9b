"""The contract of the queue: each response has one worker, and none is lost."""

import asyncio

from msgspec.structs import replace

from antiphon.protocol.response import Response
from antiphon.store.base import Store, StoredResponse
from tests.store.builders import NOW, ended_response, new_response


def queued_response(id: str, seconds: int = 0) -> Response:
    """Return a response that waits for a worker."""
    return replace(new_response(id, created_at=NOW + seconds), status="queued", background=True)


class QueueContract:
    """Tests of the queue, and of responses whose process is gone."""

    async def test_the_oldest_queued_responses_are_claimed_first(self, store: Store) -> None:
        for id, seconds in (("c", 3), ("a", 1), ("b", 2)):
            await store.begin(queued_response(id, seconds), [], tenant=f"t{id}", request=b"body")
        await store.begin(new_response("running"), [])
        expected = [
            (f"t{id}", StoredResponse(queued_response(id, n), b"body", None, 1, -1, 1))
            for n, id in ((1, "a"), (2, "b"))
        ]
        assert sorted(await store.claim_queued(2), key=str) == expected
        assert [stored.response.id for _, stored in await store.claim_queued(2)] == ["c"]
        assert await store.claim_queued(2) == []

    async def test_of_concurrent_claims_one_gets_a_queued_response(self, store: Store) -> None:
        for n in range(10):
            await store.begin(queued_response(f"r{n}"), [])
        claims = [store.claim_queued(4) for _ in range(5)]
        taken = [stored.response.id for found in await asyncio.gather(*claims) for _, stored in found]
        assert sorted(taken) == [f"r{n}" for n in range(10)]

    async def test_a_queued_response_is_claimed_by_its_id_once(self, store: Store) -> None:
        await store.begin(queued_response("r"), [])
        claims = await asyncio.gather(*(store.claim("r", queued=True) for _ in range(5)))
        assert sorted(claims, key=str) == [1, None, None, None, None]
        assert await store.claim_queued(5) == []
        # It may still be taken over.
        assert await store.claim("r") == 2

    async def test_a_response_is_taken_over_only_at_the_expected_epoch(self, store: Store) -> None:
        await store.begin(queued_response("r"), [])
        assert await store.claim("r", expected=1) is None
        assert await store.claim("r", expected=0) == 1
        assert await store.claim("r", expected=0) is None
        claims = await asyncio.gather(*(store.claim("r", expected=1) for _ in range(5)))
        assert sorted(claims, key=str) == [2, None, None, None, None]

    async def test_a_response_that_was_never_queued_is_not_claimed_from_the_queue(self, store: Store) -> None:
        await store.begin(new_response("r"), [])
        assert await store.claim("r", queued=True) is None
        await store.begin(queued_response("ended"), [])
        await store.end(ended_response(queued_response("ended"), status="cancelled"))
        assert await store.claim("ended", queued=True) is None
        assert await store.claim_queued(5) == []

    async def test_a_response_that_is_given_back_is_claimed_again(self, store: Store) -> None:
        await store.begin(queued_response("r"), [])
        await store.claim_queued(1)
        assert not await store.requeue("r", 7)
        assert not await store.requeue("r", 1, tenant="other")
        assert await store.requeue("r", 1)
        [(_, stored)] = await store.claim_queued(1)
        assert (stored.epoch, stored.attempts) == (2, 2)
        assert not await store.append("r", 1, -1, [b"no"])
        await store.end(ended_response(queued_response("r")))
        assert not await store.requeue("r", 2)

    async def test_responses_that_another_worker_has_are_lost(self, store: Store) -> None:
        for id in ("kept", "taken", "ended", "deleted"):
            await store.begin(queued_response(id), [])
            await store.claim(id, queued=True)
        await store.claim("taken")
        await store.end(ended_response(queued_response("ended")))
        await store.delete("deleted")
        claims = [(id, 1) for id in ("kept", "taken", "ended", "deleted", "unknown")]
        assert sorted(await store.find_lost(claims)) == ["deleted", "ended", "taken", "unknown"]
        assert await store.find_lost([]) == []

    async def test_what_this_process_makes_is_not_abandoned(self, store: Store) -> None:
        await store.begin(new_response("foreground"), [], tenant="t")
        await store.begin(queued_response("queued"), [])
        await store.begin(queued_response("claimed"), [])
        await store.claim("claimed", queued=True)
        assert await store.take_abandoned(["claimed", "foreground"]) == []
        assert [stored.response.id for _, stored in await store.take_abandoned(["foreground"])] == ["claimed"]
        own = await store.take_abandoned([])
        assert sorted(stored.response.id for _, stored in own) == ["claimed", "foreground"]
