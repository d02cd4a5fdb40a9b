"""The example app `examples/hashbrown-react` in Chromium, built and served as `make example` does."""

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.js.browser import run_browser
from tests.js_build import BUILD, run_node
from tests.run_server import ROOT, run_command

APP = "examples/hashbrown-react"
OSLO = "What should I see in Oslo?"
INTRO = "Oslo: here is what I would not miss."


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert (BUILD / ".example").exists(), f"{BUILD} is not complete: run scripts/setup-js"
    # Elsewhere, because the threads of whoever has tried the example are stored beside it.
    folder = tmp_path_factory.mktemp("example")
    shutil.copy(BUILD / APP / "server.py", folder)
    shutil.copytree(BUILD / APP / "dist", folder / "dist")
    with run_command("--app", "server:app", cwd=folder) as (address, _):
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    yield page
    context.close()
    assert problems == []


def say(page: Page, text: str) -> None:
    """Send a message."""
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def wait_for_answer(page: Page) -> None:
    """Wait until nothing is in progress."""
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator(".busy")).to_have_count(0)


def test_an_answer_is_made_of_components_and_its_thread_is_renamed_and_deleted(page: Page) -> None:
    page.get_by_role("button", name=OSLO).click()
    expect(page.locator(".place h2")).to_have_text(["Opera House", "Vigeland Park", "Munch Museum"])
    expect(page.locator(".message.assistant")).to_contain_text(INTRO)
    wait_for_answer(page)
    expect(page.locator(".thread .title")).to_have_text([OSLO])
    page.reload()
    expect(page.locator(".place h2")).to_have_text(["Opera House", "Vigeland Park", "Munch Museum"])
    page.once("dialog", lambda dialog: dialog.accept("The north"))
    page.get_by_label("Rename").click()
    expect(page.locator(".thread .title")).to_have_text(["The north"])
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".welcome")).to_be_visible()
    page.get_by_role("button", name="The north", exact=True).click()
    expect(page.locator(".message.user")).to_have_text([OSLO])
    page.get_by_label("Delete").click()
    expect(page.locator(".hint")).to_be_visible()
    expect(page.locator(".welcome")).to_be_visible()


def test_a_tool_paints_the_page(page: Page) -> None:
    say(page, "Paint the page green")
    expect(page.locator(".call")).to_have_text(["✓ paintPage"])
    expect(page.locator(".message.assistant").last).to_have_text("Done. Do you like it?")
    wait_for_answer(page)
    expect(page.locator(".new")).to_have_css("background-color", "rgb(0, 128, 0)")
    page.get_by_label("Delete").click()


def test_a_stopped_answer_keeps_its_beginning_and_the_chat_continues(page: Page) -> None:
    say(page, OSLO)
    expect(page.locator(".message.assistant")).to_contain_text("Oslo")
    page.get_by_role("button", name="Stop").click()
    wait_for_answer(page)
    expect(page.locator(".place")).not_to_have_count(3)
    expect(page.locator(".message.error")).to_have_count(0)
    say(page, "Hello")
    expect(page.locator(".message.assistant").last).to_have_text(re.compile("^I know Lisbon and Oslo"))
    wait_for_answer(page)
    page.get_by_label("Delete").click()


def test_leaving_a_chat_stops_its_answer(page: Page) -> None:
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/hashbrown/chat")):
        say(page, OSLO)
        expect(page.locator(".message.assistant")).to_contain_text("Oslo")
        page.get_by_role("button", name="New chat").click()
    expect(page.locator(".welcome")).to_be_visible()
    expect(page.locator(".hint")).to_be_visible()
    assert page.evaluate("location.hash") == ""


def test_a_narrow_page_opens_its_sidebar_and_needs_no_scrolling_to_the_side(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    expect(page.get_by_role("button", name="New chat")).to_be_hidden()
    page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("button", name="New chat")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_its_types_are_right() -> None:
    run_node("node_modules/typescript/bin/tsc", "--noEmit", folder=APP)


def test_the_build_is_that_of_these_sources() -> None:
    for path in [*(ROOT / APP / "src").iterdir(), ROOT / APP / "server.py"]:
        assert (BUILD / path.relative_to(ROOT)).read_bytes() == path.read_bytes(), "run scripts/setup-js"
