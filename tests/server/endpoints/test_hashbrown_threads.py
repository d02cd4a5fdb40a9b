"""Hashbrown's threads: loaded, continued and saved by `/hashbrown/chat`, listed by `/hashbrown/threads`."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.hashbrown.threads import ThreadError, ThreadSummary, make_title
from antiphon.server.settings import Settings
from tests.adapters.frame_checks import PATH, Json, generation_frames, post_frames, read, types, user_message
from tests.http_client import http_client, wait_until
from tests.run_server import run_server
from tests.server.gated_model import GatedModel

LIST = "/hashbrown/threads"


@pytest.fixture(scope="module")
def gate() -> GatedModel:
    """Give a model that tests hold in their hand."""
    return GatedModel()


@pytest.fixture(scope="module", params=["memory", "folder"])
def listed(request: pytest.FixtureRequest, gate: GatedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve with a list of threads, in memory or in a folder."""
    folder: Path | None = None if request.param == "memory" else tmp_path_factory.mktemp("threads")
    with run_server(Settings(agents=(gate.agent,), responses_dir=folder, list_threads=True)) as address:
        yield address


def call(address: str, method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request."""
    with http_client(address) as http:
        return http.request(method, path, **options)


def start_thread(address: str, text: str) -> str:
    """Make a thread, and return its id."""
    return post_frames(address, model="echo", messages=[user_message(text)])[-1]["threadId"]


def titles(address: str) -> list[str]:
    """Return the titles of all threads."""
    return [thread["title"] for thread in call(address, "GET", LIST).json()["data"]]


# --- two answers at once ---------------------------------------------------------------------


def test_two_answers_at_once_in_a_thread_are_a_conflict(listed: str, gate: GatedModel) -> None:
    thread = start_thread(listed, "Hi")
    body = {"model": "gate", "messages": [user_message("first")], "tools": [], "threadId": thread}
    with http_client(listed) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        head = next(pieces)
        wait_until(lambda: gate.running == 1)
        other = post_frames(listed, model="echo", threadId=thread, messages=[user_message("second")])
        gate.release.set()
        frames = read(head + b"".join(pieces))
    gate.release.clear()
    assert other[-1] == {"type": "thread-save-success", "threadId": thread}
    assert types(generation_frames(frames))[-1] == "response.completed"
    assert frames[-1]["type"] == "thread-save-failure"
    assert "another answer was saved" in frames[-1]["error"]
    shown = post_frames(listed, operation="load-thread", threadId=thread, messages=[])[-1]["thread"]
    assert [message["content"] for message in shown] == ["Hi", "Hi", "second", "second"]


def test_an_answer_does_not_bring_back_a_deleted_thread(listed: str, gate: GatedModel) -> None:
    thread = start_thread(listed, "Hi")
    body = {"model": "gate", "messages": [user_message("first")], "tools": [], "threadId": thread}
    with http_client(listed) as http, http.stream("POST", PATH, json=body) as answer:
        pieces = answer.iter_raw()
        head = next(pieces)
        wait_until(lambda: gate.running == 1)
        assert call(listed, "DELETE", f"{LIST}/{thread}").status_code == 200
        gate.release.set()
        frames = read(head + b"".join(pieces))
    gate.release.clear()
    assert frames[-1] == {"type": "thread-save-failure", "error": f"Thread '{thread}' not found."}
    assert thread not in call(listed, "GET", LIST).text


# --- the list --------------------------------------------------------------------------------


def test_threads_are_listed_with_the_users_first_words_as_titles(listed: str) -> None:
    old, new = start_thread(listed, "The old one"), start_thread(listed, "The new\n one")
    data = call(listed, "GET", LIST).json()["data"]
    assert [(thread["id"], thread["title"]) for thread in data[:2]] == [(new, "The new one"), (old, "The old one")]
    assert data[0].keys() == {"id", "title", "updated_at"}
    assert data[0]["updated_at"] >= data[1]["updated_at"] > 1_700_000_000
    post_frames(listed, model="echo", threadId=old, messages=[user_message("More")])
    assert titles(listed)[:2] == ["The old one", "The new one"]


def test_pages_of_threads_tile_the_list(listed: str) -> None:
    for number in range(5):
        start_thread(listed, f"Number {number}")
    whole = call(listed, "GET", f"{LIST}?limit=100").json()
    assert not whole["has_more"]
    assert (whole["first_id"], whole["last_id"]) == (whole["data"][0]["id"], whole["data"][-1]["id"])
    found: list[Json] = []
    query, has_more = "", True
    while has_more:
        page = call(listed, "GET", f"{LIST}?limit=2{query}").json()
        found += page["data"]
        query, has_more = f"&after={page['last_id']}", page["has_more"]
    assert found == whole["data"]


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("limit=101", "limit"), ("after=thread_x", "after")]
)
def test_a_bad_page_is_an_error_that_names_the_parameter(listed: str, query: str, param: str) -> None:
    answer = call(listed, "GET", f"{LIST}?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_title_is_set_and_removed(listed: str) -> None:
    thread = start_thread(listed, "Hi")
    answer = call(listed, "POST", f"{LIST}/{thread}", json={"title": "Mine"})
    assert (answer.status_code, answer.json()) == (200, {"id": thread, "title": "Mine"})
    assert titles(listed)[0] == "Mine"
    post_frames(listed, model="echo", threadId=thread, messages=[user_message("More")])
    assert titles(listed)[0] == "Mine"
    call(listed, "POST", f"{LIST}/{thread}", json={"title": None})
    assert titles(listed)[0] == "Hi"


@pytest.mark.parametrize("body", [{}, {"title": ""}, {"title": "x" * 201}, {"title": 1}])
def test_a_bad_title_is_rejected(listed: str, body: Json) -> None:
    answer = call(listed, "POST", f"{LIST}/{start_thread(listed, 'Hi')}", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "title")


def test_a_thread_is_deleted(listed: str) -> None:
    thread = start_thread(listed, "Hi")
    answer = call(listed, "DELETE", f"{LIST}/{thread}")
    assert answer.json() == {"id": thread, "object": "thread.deleted", "deleted": True}
    frames = post_frames(listed, operation="load-thread", threadId=thread, messages=[])
    assert frames[-1]["type"] == "thread-load-failure"
    for again in (call(listed, "DELETE", f"{LIST}/{thread}"), call(listed, "POST", f"{LIST}/x", json={"title": "a"})):
        assert (again.status_code, again.json()["error"]["code"]) == (404, "thread_not_found")


def test_threads_are_listed_only_if_the_settings_say_so(server: str) -> None:
    thread = start_thread(server, "Secret")
    answer = call(server, "GET", LIST)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "list_not_allowed")
    assert "list_threads" in answer.json()["error"]["message"]
    assert call(server, "POST", f"{LIST}/{thread}", json={"title": "Mine"}).status_code == 200
    assert call(server, "DELETE", f"{LIST}/{thread}").status_code == 200


def test_a_key_is_required_for_the_list_too() -> None:
    with run_server(Settings(api_key="sk-secret", list_threads=True, responses_dir=None)) as address:
        answers = [call(address, method, f"{LIST}{path}") for method, path in (("GET", ""), ("DELETE", "/x"))]
    assert [answer.status_code for answer in answers] == [401, 401]


class PlainThreads:
    """A storage that only loads and saves."""

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        """Return no messages."""
        return []

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        """Keep nothing."""
        return thread_id or "a"


class ListedThreads(PlainThreads):
    """A storage with a list, too."""

    def __init__(self) -> None:
        self.titles: dict[str, str] = {"a/1": "A", "b": "B", "c": "C"}

    async def list(self, limit: int, after: str | None, *, tenant: str) -> Sequence[ThreadSummary]:
        """Return a page."""
        ids = list(self.titles)
        start = ids.index(after) + 1 if after else 0
        return [ThreadSummary(id, self.titles[id], 7) for id in ids[start : start + limit]]

    async def rename(self, thread_id: str, title: str | None, *, tenant: str) -> None:
        """Set a title."""
        if thread_id not in self.titles:
            raise ThreadError("No such drawer.")
        self.titles[thread_id] = title or ""

    async def delete(self, thread_id: str, *, tenant: str) -> None:
        """Delete a title."""
        del self.titles[thread_id]


def test_a_storage_of_the_users_own_may_list_its_threads() -> None:
    with run_server(Settings(threads=ListedThreads(), list_threads=True)) as address:
        page = call(address, "GET", f"{LIST}?limit=2").json()
        assert page["data"] == [
            {"id": "a/1", "title": "A", "updated_at": 7},
            {"id": "b", "title": "B", "updated_at": 7},
        ]
        assert page["has_more"]
        assert call(address, "POST", f"{LIST}/a%2F1", json={"title": "One"}).json()["id"] == "a/1"
        missing = call(address, "POST", f"{LIST}/x", json={"title": "One"})
        assert (missing.status_code, missing.json()["error"]["message"]) == (404, "No such drawer.")
        assert call(address, "DELETE", f"{LIST}/b").status_code == 200
        assert titles(address) == ["One", "C"]


@pytest.mark.parametrize("threads", [PlainThreads(), False])
def test_a_server_without_a_list_of_threads_says_so(threads: PlainThreads | bool) -> None:
    with run_server(Settings(threads=threads, list_threads=True, responses_dir=None)) as address:
        for answer in (call(address, "GET", LIST), call(address, "DELETE", f"{LIST}/x")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
            assert "thread" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([], ""),
        ([{"role": "user", "content": {"a": 1}}, {"role": "user", "content": "Hi"}], "Hi"),
        ([{"role": "assistant", "content": "No"}, {"role": "user", "content": " \n "}, {"role": "user"}], ""),
        ([{"role": "user", "content": "word " * 30}], "word " * 15 + "word…"),
    ],
)
def test_a_title_is_the_start_of_the_users_first_words(messages: list[Json], title: str) -> None:
    assert make_title(json.loads(json.dumps(messages))) == title
