"""Headless Chromium, the pages of both Hashbrown clients, and what their user sees.

The server of the API also serves the pages. What a page reads from its address is in `tests/node/scenario.ts`.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, expect, sync_playwright
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from antiphon.wire.hashbrown.frames import encode_frame
from tests.js_build import BUILD
from tests.run_server import run_server, without_store

CLIENTS = ("react", "angular")
CHAT = "/hashbrown/chat"
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()
PATIENCE_MS = 20_000
"""How long an answer may take on a busy machine before its spinner counts as stuck."""


@contextmanager
def run_browser() -> Iterator[Browser]:
    """Run Debian's Chromium."""
    chromium = shutil.which("chromium")
    assert chromium, "Chromium is missing: run scripts/setup-chromium"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=OPTIONS, env={"HOME": folder, "XDG_CONFIG_HOME": folder}
        )
        try:
            yield browser
        finally:
            browser.close()


async def fail(_request: Request) -> PlainTextResponse:
    """Answer as a broken proxy does."""
    return PlainTextResponse("The proxy is on fire.", 500)


async def end_early(_request: Request) -> Response:
    """Answer with frames, but without the last one."""
    created = {"type": "response.created", "response": {}}
    delta = {"type": "response.output_text.delta", "outputIndex": 0, "delta": "Hel"}
    return Response(encode_frame(created) + encode_frame(delta))


@contextmanager
def serve_pages(settings: Settings) -> Iterator[str]:
    """Serve the pages of both clients, and Antiphon in the same application."""
    assert (BUILD / ".tests").exists(), f"{BUILD} is not complete: run scripts/setup-js"
    pages = [Mount(f"/{name}", StaticFiles(directory=BUILD / f"tests/node/{name}/dist", html=True)) for name in CLIENTS]
    app = create_app(without_store(settings))
    broken = [Route(path, answer, methods=["POST"]) for path, answer in (("/fail", fail), ("/end-early", end_early))]
    app.router.routes[:0] = [*pages, *broken]
    with run_server(app) as address:
        yield address


@dataclass
class ChatPage:
    """A page with a chat, as its user sees it."""

    page: Page
    address: str
    client: str

    def open(self, thread: str = "", **scenario: Any) -> None:
        """Open the page."""
        chosen = {"url": CHAT, "model": "demo"} | scenario
        query = {"scenario": json.dumps(chosen)} | ({"thread": thread} if thread else {})
        self.page.goto(f"{self.address}/{self.client}/?{urlencode(query)}")
        expect(self.page.locator("#busy")).to_be_attached()

    def send(self, text: str) -> None:
        """Send a message."""
        self.page.fill("input", text)
        self.page.click("#send")

    def say(self, text: str, *expected: str) -> None:
        """Send a message; wait until exactly these messages are shown, and nothing is in progress."""
        self.send(text)
        self.expect_messages(*expected)

    def expect_messages(self, *expected: str) -> None:
        """Wait until exactly these messages are shown, and nothing is in progress."""
        expect(self.page.locator("li")).to_have_text(list(expected))
        expect(self.page.locator("#busy")).to_have_text("idle")

    def expect_errors(self, *expected: str) -> None:
        """Check which errors are shown."""
        expect(self.page.locator("#errors")).to_have_text("\n".join(expected))

    @property
    def frames(self) -> list[str]:
        """The types of the frames that the page received, those of each request after the other."""
        return self.page.evaluate("window.frames")

    @property
    def thread(self) -> str | None:
        """The thread in the page's address."""
        return self.page.evaluate("new URL(location.href).searchParams.get('thread')")
