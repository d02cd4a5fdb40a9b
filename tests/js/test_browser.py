"""Hashbrown's stock React and Angular clients in Chromium, over our npm package, against the real server."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, expect

from antiphon.hashbrown.threads import ThreadError
from antiphon.server.settings import Settings
from tests.adapters.provider_servers import configure_provider
from tests.adapters.scenes import openai
from tests.http_client import wait_until
from tests.js.browser import CHAT, CLIENTS, ChatPage, run_browser, serve_pages
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, json_answer, scripted_upstream, sse_answer

HELLO = "Hello from Antiphon's demo model. You said: Hi!"
SAVED = ["thread-save-start", "thread-save-success"]


class FullStorage:
    """A storage of threads that has no space."""

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[dict[str, object]]:
        raise ThreadError(f"There is no thread {thread_id!r}.")

    async def save(self, messages: Sequence[dict[str, object]], thread_id: str | None, *, tenant: str) -> str:
        raise ThreadError("The disk is full.")


@dataclass(frozen=True)
class Home:
    """A browser, the server of the pages, and the provider behind it."""

    browser: Browser
    address: str
    upstream: ScriptedUpstream
    other_address: str
    """Another server, which saves no threads and allows the pages of the first one."""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with ExitStack() as stack:
        upstream = stack.enter_context(scripted_upstream())
        provider = configure_provider("openai", upstream.url)
        settings = Settings(providers=[provider], keys={"openai": "secret"}, retries=0)
        address = stack.enter_context(serve_pages(settings))
        other = Settings(threads=FullStorage(), allowed_origins=[address])
        other_address = stack.enter_context(serve_pages(other))
        yield Home(stack.enter_context(run_browser()), address, upstream, other_address)


@pytest.fixture(params=CLIENTS)
def chat(home: Home, request: pytest.FixtureRequest) -> Iterator[ChatPage]:
    context = home.browser.new_context()
    yield ChatPage(context.new_page(), home.address, request.param)
    context.close()


def test_a_page_shows_text_and_continues_its_thread_after_a_reload(chat: ChatPage) -> None:
    chat.open()
    chat.say("Hi!", "Hi!", HELLO)
    assert chat.frames[-3:] == ["response.completed", *SAVED]
    thread = chat.thread
    assert thread
    second = "Hello from Antiphon's demo model. You said: Again! This conversation has 3 messages."
    chat.say("Again!", "Hi!", HELLO, "Again!", second)
    assert chat.thread == thread
    chat.page.reload()
    chat.expect_messages("Hi!", HELLO, "Again!", second)
    assert chat.frames == ["thread-load-start", "thread-load-success"]
    third = "Hello from Antiphon's demo model. You said: Once more. This conversation has 5 messages."
    chat.say("Once more.", "Hi!", HELLO, "Again!", second, "Once more.", third)
    chat.expect_errors()


def test_a_tool_changes_the_page_and_the_answer_continues(chat: ChatPage) -> None:
    chat.open(tools=True)
    asked, called = "Please paint it in Blue", "[paint: done]"
    chat.say(asked, asked, called, 'paint says: {"status":"fulfilled","value":"painted Blue"}')
    expect(chat.page.locator("body")).to_have_attribute("data-color", "Blue")
    chat.expect_errors()


def test_two_tools_run_in_parallel(chat: ChatPage) -> None:
    chat.open(tools=True)
    asked = "USE_TOOLS in Oslo"
    said = ['paint says: {"status":"fulfilled","value":"painted Oslo"}', 'locate says: {"status":"fulfilled",']
    chat.send(asked)
    expect(chat.page.locator("li")).to_have_count(3)
    expect(chat.page.locator("li").nth(2)).to_contain_text(said[1])
    expect(chat.page.locator("#busy")).to_have_text("idle")
    assert chat.page.locator("li").nth(1).inner_text() == "[paint: done] [locate: done]"
    assert chat.page.locator("li").nth(2).inner_text().startswith(said[0])
    assert chat.page.evaluate("({...document.body.dataset})") == {"color": "Oslo", "city": "Oslo"}
    chat.expect_errors()


@pytest.mark.parametrize("emulated", [False, True])
def test_a_page_shows_structured_output(chat: ChatPage, emulated: bool) -> None:
    chat.open(structured=True, emulated=emulated)
    chat.say("A city in Norway", "A city in Norway", '{"city":"Norway"}')
    called = "response.function_call_arguments.done" in chat.frames
    assert called == emulated
    chat.expect_errors()


def test_a_page_shows_a_refusal(chat: ChatPage) -> None:
    chat.open()
    chat.say("REFUSE", "REFUSE", "I was asked to refuse, and so I do.")
    chat.expect_errors()


CUT_CALL = openai.stream(
    {"content": "Let me"},
    openai.calls(openai.call_start(0, "call_1", "paint"), openai.call_arguments(0, '{"col')),
    finish="length",
)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        pytest.param(openai.stream({"content": "Let me"}, finish="length"), "Let me", id="text"),
        pytest.param(CUT_CALL, "Let me", id="text and a call"),
    ],
)
def test_a_page_knows_that_an_answer_is_incomplete(home: Home, chat: ChatPage, body: bytes, shown: str) -> None:
    home.upstream.play(sse_answer(body))
    chat.open(model="openai/m", tools=True)
    chat.say("Hi!", "Hi!", shown)
    assert chat.page.evaluate("window.notes") == ["incomplete: max_output_tokens"]
    assert "color" not in chat.page.evaluate("({...document.body.dataset})")
    chat.expect_errors()


BEGUN = openai.frame(openai.chunk({"content": "Hello"}))
SLOW_DOWN = json_answer({"error": {"message": "Slow down.", "type": "tokens"}}, 429)
BAD = sse_answer(BEGUN + openai.frame({"error": {"message": "Bad.", "type": "oops"}}))
FILTERED = sse_answer(openai.stream({"content": "Hello"}, finish="content_filter"))


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        pytest.param(SLOW_DOWN, "openai: Slow down.", "sendingError", id="before"),
        pytest.param(BAD, "openai: Bad.", "generatingError", id="within"),
        pytest.param(FILTERED, "A content filter stopped the answer.", "generatingError", id="failed"),
    ],
)
def test_a_page_shows_an_error_and_continues(
    home: Home, chat: ChatPage, answer: ScriptedAnswer, error: str, kind: str
) -> None:
    home.upstream.play(answer, sse_answer(openai.stream({"content": "Now."})))
    # The Angular client keeps the text until the next message.
    kept = ["Hello"] if (chat.client, kind) == ("angular", "generatingError") else []
    chat.open(model="openai/m")
    chat.say("Hi!", "Hi!", error, *kept)
    chat.expect_errors(f"{kind}: {error}")
    chat.say("Well?", "Hi!", error, "Well?", "Now.")
    chat.expect_errors()


def test_a_page_shows_an_http_error(chat: ChatPage) -> None:
    chat.open(url="/fail")
    error = "Internal Server Error (500): The proxy is on fire."
    chat.say("Hi!", "Hi!", error)
    chat.expect_errors(f"sendingError: {error}")


def test_a_page_does_not_wait_for_a_stream_that_ended_early(chat: ChatPage) -> None:
    chat.open(url="/end-early")
    error = "The answer broke off."
    chat.say("Hi!", "Hi!", error, *(["Hel"] if chat.client == "angular" else []))
    chat.expect_errors(f"generatingError: {error}")


def test_a_page_shows_that_the_providers_connection_broke_off(home: Home, chat: ChatPage) -> None:
    home.upstream.play(sse_answer(BEGUN, cut=True))
    chat.open(model="openai/m")
    chat.send("Hi!")
    expect(chat.page.locator("li.error")).to_have_text(re.compile("^openai: "))
    expect(chat.page.locator("#busy")).to_have_text("idle")


def test_stopping_an_answer_cancels_the_request_to_the_provider(home: Home, chat: ChatPage) -> None:
    words = openai.stream({"content": "Well"}, *[{"content": " well"}] * 2000)
    home.upstream.play(sse_answer(words, chunk_size=1000, pause=0.05))
    before = home.upstream.disconnects
    chat.open(model="openai/m")
    chat.send("Hi!")
    expect(chat.page.locator("li.assistant")).to_contain_text("Well well well")
    chat.page.click("#stop")
    expect(chat.page.locator("#busy")).to_have_text("idle")
    wait_until(lambda: home.upstream.disconnects == before + 1)
    expect(chat.page.locator("li.error")).to_have_count(0)
    chat.expect_errors()
    home.upstream.play(sse_answer(openai.stream({"content": "Now."})))
    chat.send("Again!")
    expect(chat.page.locator("li").last).to_have_text("Now.")
    expect(chat.page.locator("#busy")).to_have_text("idle")


def test_a_page_shows_that_its_thread_is_missing(chat: ChatPage) -> None:
    chat.open(thread="thread_none")
    error = "Thread 'thread_none' not found."
    chat.expect_messages(error)
    expect(chat.page.locator("#errors")).to_contain_text(f"threadLoadError: {error}")


def test_a_page_keeps_an_answer_that_could_not_be_saved(home: Home, chat: ChatPage) -> None:
    chat.address = home.other_address
    chat.open()
    chat.say("Hi!", "Hi!", HELLO)
    chat.expect_errors("threadSaveError: The disk is full.")


def test_a_page_of_an_allowed_origin_is_answered(home: Home, chat: ChatPage) -> None:
    chat.open(url=home.other_address + CHAT)
    chat.say("Hi!", "Hi!", HELLO)


def test_a_page_of_another_origin_shows_an_error(home: Home, chat: ChatPage) -> None:
    chat.address = home.other_address
    chat.open(url=home.address + CHAT)
    chat.say("Hi!", "Hi!", "Failed to fetch")
    chat.expect_errors("sendingError: Failed to fetch")
