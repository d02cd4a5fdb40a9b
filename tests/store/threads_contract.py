"""The contract of ThreadStore."""

from antiphon.store.base import Store
from tests.store.builders import NOW
from tests.store.retention_contract import sweep_all


class ThreadsContract:
    """Tests of threads."""

    async def test_a_thread_is_found_as_it_was_saved(self, store: Store) -> None:
        messages = '[{"role":"user","content":"it\'s \\u0000 🎵"}]'.encode()
        await store.save_thread("thread_1", messages)
        assert await store.find_thread("thread_1") == messages
        assert await store.find_thread("thread_2") is None

    async def test_saving_a_thread_replaces_it(self, store: Store) -> None:
        for messages in (b"[1]", b"[1,2]", b"[]"):
            await store.save_thread("thread_1", messages)
            assert await store.find_thread("thread_1") == messages

    async def test_two_tenants_can_use_the_same_thread_id(self, store: Store) -> None:
        await store.save_thread("thread_1", b"[1]", tenant="a")
        assert await store.find_thread("thread_1", tenant="b") is None
        assert await store.find_thread("thread_1") is None
        await store.save_thread("thread_1", b"[2]", tenant="b")
        assert await store.find_thread("thread_1", tenant="a") == b"[1]"

    async def test_a_thread_expires_after_its_last_save(self, store: Store) -> None:
        for n in range(5):
            await store.save_thread(f"thread_{n}", b"[]")
        assert await sweep_all(store, responses_before=NOW, events_before=2**40, limit=2) == 0
        assert await sweep_all(store, responses_before=2**40, events_before=0, limit=2) == 5
        assert await store.find_thread("thread_0") is None
