"""What a client and the log learn of an agent that fails."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon import RequestError
from antiphon.agents.agent import agent
from antiphon.agents.turn import Turn
from antiphon.server.settings import Settings
from tests.http_client import http_client, post_response, stream_events, wait_until
from tests.run_server import run_command, run_server

FAILED = "The model 'faulty' failed while answering."


@agent("faulty")
async def faulty(turn: Turn) -> AsyncIterator[str]:
    """Fails, or rejects a request, before or after some output."""
    if "after" in turn.text:
        yield "So far"
    if "reject" in turn.text:
        raise RequestError("Say it in Latin.", param="input", code="not_latin")
    raise ValueError("no\nmoon")


def failure(address: str, text: str) -> dict[str, object]:
    """Return the error of a streamed response."""
    last = stream_events(address, model="faulty", input=text)[-1]
    assert last["type"] == "response.failed"
    return last["response"]["error"]


@pytest.mark.parametrize("text", ["now", "after"])
def test_an_exception_is_server_error_without_details(text: str) -> None:
    with run_server(Settings(agents=[faulty])) as address:
        error = failure(address, text)
        whole = post_response(address, model="faulty", input=text)
    assert error == {"code": "server_error", "message": FAILED, "type": "server_error"}
    assert whole.status_code == 500
    assert whole.json()["error"]["message"].startswith(FAILED)
    assert "moon" not in whole.text


@pytest.mark.parametrize("text", ["now", "after"])
def test_a_server_that_shows_exceptions_names_type_and_message(text: str) -> None:
    with run_server(Settings(agents=[faulty], show_exceptions=True)) as address:
        error = failure(address, text)
        whole = post_response(address, model="faulty", input=text)
    assert error == {"code": "server_error", "message": f"{FAILED} ValueError: no moon", "type": "server_error"}
    assert "ValueError: no moon" in whole.json()["error"]["message"]
    assert "Traceback" not in whole.text


@pytest.mark.parametrize(("options", "shown"), [((), True), (("--api-key", "k"), False)])
def test_the_command_shows_exceptions_if_only_this_machine_can_reach_it(
    tmp_path: Path, options: tuple[str, ...], shown: bool
) -> None:
    (tmp_path / "faulty.py").write_text(
        "from antiphon import agent\n@agent('faulty')\ndef faulty(turn):\n    raise ValueError('no moon')\n"
    )
    with run_command("--app", "faulty", *options, cwd=tmp_path) as (address, _), http_client(address) as http:
        headers = {"authorization": "Bearer k"} if options else {}
        answer = http.post("/v1/responses", json={"model": "faulty", "input": "Hi!"}, headers=headers)
    assert answer.status_code == 500
    assert ("ValueError: no moon" in answer.text) is shown


def test_the_log_names_the_request_and_the_response(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "antiphon"), run_server(Settings(agents=[faulty])) as address:
        with http_client(address) as http:
            for id, option in (("a1", "stream"), ("b2", "background")):
                body = {"model": "faulty", "input": "now", option: True}
                http.post("/v1/responses", json=body, headers={"x-request-id": id})
        wait_until(lambda: len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2)
    first, second = (record for record in caplog.records if record.levelno == logging.ERROR)
    for record, id in ((first, "a1"), (second, "b2")):
        assert record.getMessage().startswith(f"{id}: model faulty failed in resp_")
        assert record.exc_info
        assert record.exc_info[0] is ValueError


def test_a_rejected_request_is_its_4xx_and_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "antiphon"), run_server(Settings(agents=[faulty])) as address:
        rejected = post_response(address, model="faulty", input="reject")
        streamed = post_response(address, model="faulty", input="reject", stream=True)
        late = failure(address, "reject after")
    expected = {"type": "invalid_request", "code": "not_latin", "param": "input", "message": "Say it in Latin."}
    assert [(one.status_code, one.json()["error"]) for one in (rejected, streamed)] == [(400, expected)] * 2
    assert late == {"type": "invalid_request", "code": "not_latin", "message": "Say it in Latin."}
    assert {record.levelno for record in caplog.records} == {logging.INFO}
