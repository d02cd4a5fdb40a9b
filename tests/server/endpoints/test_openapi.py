"""`/openapi.json` and `/docs`: public, self-contained, and the same below a prefix."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from antiphon import Antiphon
from antiphon.server.settings import Settings
from tests.http_client import http_client
from tests.js.browser import run_browser
from tests.run_server import ROOT, run_server

PAGE_PATHS = ["/docs", "/docs/docs.css", "/docs/docs.js"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give Debian's Chromium."""
    with run_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve with a key, which the page does not need."""
    with run_server(Settings(api_key="KEY")) as address:
        yield address


def open_page(browser: Browser, address: str, **options: object) -> tuple[Page, list[str]]:
    """Open the page; return it with everything that it requested or complained about."""
    page = browser.new_page(**options)  # pyright: ignore[reportArgumentType]
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(f"{address}/docs")
    expect(page.locator(".operation").first).to_be_visible()
    return page, heard


def test_the_page_is_small_and_strict(address: str) -> None:
    with http_client(address) as http:
        answers = [http.get(path) for path in PAGE_PATHS]
    for answer in answers:
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert re.search("https?:|//[a-z]", answer.text.replace("// ", "")) is None
    assert sum(len(answer.content) for answer in answers) < 100_000


def test_only_the_description_needs_no_key(address: str) -> None:
    with http_client(address) as http:
        assert http.get("/openapi.json").json()["openapi"] == "3.1.0"
        assert http.get("/v1/responses").status_code == 401
        assert http.get("/docs/other").status_code == 401


@pytest.mark.parametrize("prefix", ["", "/ai"])
def test_the_document_names_the_prefix_of_a_mounted_application(prefix: str) -> None:
    application = Starlette(routes=[Mount(prefix, Antiphon(responses_dir=None))])
    with run_server(application) as address, http_client(address) as http:
        assert http.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": prefix or "/"}]


def test_the_page_shows_every_operation_of_a_door(browser: Browser, address: str) -> None:
    page, heard = open_page(browser, address)
    with http_client(address) as http:
        paths = http.get("/openapi.json").json()["paths"]
    for door in ("/v1", "/openai/v1", "/openai"):
        page.get_by_label("Door").select_option(door)
        shown = set(page.locator(".operation .path").all_inner_texts())
        other_doors = {"/v1", "/openai/v1", "/openai"} - {door}
        expected = {path for path in paths if door_of(path) not in other_doors}
        assert shown == expected
    page.get_by_label("Search").fill("tokens")
    expect(page.locator(".operation")).to_have_count(1)
    assert [url.removeprefix(address) for url in heard] == [*PAGE_PATHS, "/openapi.json"]
    page.close()


def door_of(path: str) -> str:
    """Return the prefix of a path's door, or the empty string."""
    return next((door for door in ("/openai/v1", "/openai", "/v1") if path.startswith(f"{door}/")), "")


def test_every_operation_and_its_schemas_can_be_opened(browser: Browser, address: str) -> None:
    page, heard = open_page(browser, address)
    for details in (".operation", ".schema details"):
        page.evaluate("(name) => document.querySelectorAll(name).forEach((one) => { one.open = true; })", details)
        # What is inside is made when an element is opened.
        expect(page.locator(f"{details}[open]:not(:has(> div))")).to_have_count(0)
    expect(page.locator("#v1_createResponse")).to_contain_text("max_output_tokens")
    expect(page.locator("#v1_createResponse")).to_contain_text("response.output_text.delta")
    assert len(heard) == 4
    page.close()


def test_the_example_for_curl_creates_a_response(browser: Browser, address: str) -> None:
    page, _ = open_page(browser, address)
    page.locator("#v1_createResponse > summary").click()
    command = page.locator("#v1_createResponse pre").inner_text()
    page.close()
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=20)
    assert json.loads(answer.stdout)["status"] == "completed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_both_colour_schemes(browser: Browser, address: str, scheme: str) -> None:
    page, _ = open_page(browser, address, viewport={"width": 360, "height": 700}, color_scheme=scheme)
    page.locator("#v1_listResponses > summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    red = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(red) > 128) == (scheme == "light")
    page.close()


def test_the_command_in_the_documentation_lists_responses() -> None:
    (command,) = re.findall(r"```bash\n(curl .*?)\n```", (ROOT / "docs/http-api.md").read_text())
    with run_server(Settings()) as address, http_client(address) as http:
        body = {"model": "demo", "input": "The weather?", "metadata": {"topic": "travel"}}
        id = http.post("/v1/responses", json=body).json()["id"]
        http.post("/v1/responses", json={"model": "demo", "input": "The weather?"})
        arguments = shlex.split(command.replace("http://localhost:8000", address))
        answer = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=20)
    assert [row["id"] for row in json.loads(answer.stdout)["data"]] == [id]
