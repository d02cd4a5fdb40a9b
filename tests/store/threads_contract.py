"""The contract of ThreadStore."""

import pytest

from antiphon.protocol.errors import RequestError
from antiphon.store.base import Store, ThreadSummary
from tests.store.builders import NOW
from tests.store.retention_contract import sweep_all


async def list_ids(store: Store, limit: int = 100, after: str | None = None, *, tenant: str = "") -> list[str]:
    """Return the ids of a list of threads."""
    return [thread.id for thread in await store.list_threads(limit, after, tenant=tenant)]


class ThreadsContract:
    """Tests of threads."""

    async def test_a_thread_is_found_as_it_was_saved(self, store: Store) -> None:
        messages = '[{"role":"user","content":"it\'s \\u0000 🎵"}]'.encode()
        await store.create_thread("thread_1", messages, "it's")
        assert await store.find_thread("thread_1") == messages
        assert await store.find_thread("thread_2") is None

    async def test_a_thread_is_replaced_only_if_it_is_as_it_was_read(self, store: Store) -> None:
        await store.create_thread("thread_1", b"[1]", "")
        assert await store.replace_thread("thread_1", b"[1]", b"[1,2]")
        assert not await store.replace_thread("thread_1", b"[1]", b"[1,3]")
        assert await store.find_thread("thread_1") == b"[1,2]"
        assert not await store.replace_thread("thread_2", b"[1]", b"[]")
        assert await store.find_thread("thread_2") is None

    async def test_two_tenants_can_use_the_same_thread_id(self, store: Store) -> None:
        await store.create_thread("thread_1", b"[1]", "A", tenant="a")
        assert await store.find_thread("thread_1", tenant="b") is None
        assert await store.find_thread("thread_1") is None
        await store.create_thread("thread_1", b"[2]", "B", tenant="b")
        assert not await store.replace_thread("thread_1", b"[1]", b"[3]", tenant="b")
        assert not await store.delete_thread("thread_1")
        assert not await store.rename_thread("thread_1", "C")
        assert await store.find_thread("thread_1", tenant="a") == b"[1]"
        assert [thread.title for thread in await store.list_threads(9, tenant="b")] == ["B"]

    async def test_threads_are_listed_from_the_last_that_was_saved(self, store: Store) -> None:
        assert await list_ids(store) == []
        for name in ("a", "b", "c", "d"):
            await store.create_thread(name, b"[]", name.upper())
        await store.create_thread("other", b"[]", "", tenant="other")
        (newest,) = await store.list_threads(1)
        assert newest == ThreadSummary("d", "D", newest.updated_at)
        assert newest.updated_at >= NOW
        await store.replace_thread("b", b"[]", b"[1]")
        await store.replace_thread("a", b"[]", b"[1]")
        assert await list_ids(store) == ["a", "b", "d", "c"]

    async def test_pages_of_threads_tile_the_list(self, store: Store) -> None:
        for number in range(7):
            await store.create_thread(str(number), b"[]", "")
        found: list[str] = []
        while page := await list_ids(store, 3, found[-1] if found else None):
            found += page
        assert found == list("6543210")

    async def test_a_page_after_an_unknown_thread_is_an_error(self, store: Store) -> None:
        await store.create_thread("a", b"[]", "", tenant="other")
        with pytest.raises(RequestError, match="There is no item 'a' in this list"):
            await store.list_threads(3, "a")

    async def test_a_title_that_was_set_is_shown_until_it_is_removed(self, store: Store) -> None:
        await store.create_thread("a", b"[]", "Made")
        await store.create_thread("b", b"[]", "")
        assert await store.rename_thread("a", "Mine")
        await store.replace_thread("a", b"[]", b"[1]")
        assert [thread.title for thread in await store.list_threads(9)] == ["Mine", ""]
        assert await store.rename_thread("a", None)
        assert [thread.title for thread in await store.list_threads(9)] == ["Made", ""]
        assert not await store.rename_thread("c", "Mine")

    async def test_a_deleted_thread_is_gone(self, store: Store) -> None:
        await store.create_thread("a", b"[]", "")
        assert await store.delete_thread("a")
        assert await store.find_thread("a") is None
        assert await list_ids(store) == []
        assert not await store.delete_thread("a")

    async def test_a_thread_expires_after_its_last_save(self, store: Store) -> None:
        for n in range(5):
            await store.create_thread(f"thread_{n}", b"[]", "")
        assert await sweep_all(store, responses_before=NOW, events_before=2**40, limit=2) == 0
        assert await sweep_all(store, responses_before=2**40, events_before=0, limit=2) == 5
        assert await store.find_thread("thread_0") is None
