"""`POST /responses/compact` at every door, and the server's encryption keys."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.engine.sealing import new_key
from antiphon.protocol.items import Message
from antiphon.server.app import create_app
from antiphon.server.settings import Settings
from tests.http_client import DOORS, WAIT, http_client, post_response
from tests.run_server import run_server
from tests.spec.schema_checks import check_compact_resource, check_response

SAID: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "Our ship is called the Aurora."},
    {"type": "message", "role": "assistant", "content": "A fine name for a ship."},
]
KEY = new_key()
STARTED, STOPPED = threading.Event(), threading.Event()


@agent("patient")
async def patient(turn: Turn) -> AsyncIterator[str]:
    """Takes its time."""
    del turn
    STARTED.set()
    try:
        yield "Well"
        await asyncio.sleep(60)
    finally:
        STOPPED.set()


@agent("reader")
async def reader(turn: Turn) -> AsyncIterator[str]:
    """Says everything that it was given to read."""
    yield " | ".join(item.text for item in turn.items if isinstance(item, Message))


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """Return the address of a server with the agents of this module."""
    with run_server(Settings(agents=[patient, reader])) as address:
        yield address


def compact(address: str, door: str = "/v1", **body: object) -> httpx.Response:
    """Ask for a compaction."""
    with http_client(address) as http:
        return http.post(f"{door}/responses/compact", json=body)


def compacted(address: str, door: str = "/v1", **body: object) -> dict[str, Any]:
    """Return a compaction that was made."""
    answer = compact(address, door, **body)
    assert answer.status_code == 200, answer.text
    check_compact_resource(answer.json())
    return answer.json()


@pytest.mark.compliance
def test_compact_response(server: str) -> None:
    made = compacted(server, model="demo", input=SAID, prompt_cache_key="case")
    assert made["object"] == "response.compaction"
    assert [item["type"] for item in made["output"]] == ["message", "compaction"]
    assert "Aurora" not in made["output"][1]["encrypted_content"]


@pytest.mark.compliance
def test_compact_missing_model(server: str) -> None:
    answer = compact(server, input=SAID)
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "message": "A request needs 'model' and 'input'. GET /v1/models lists the models.",
        "type": "invalid_request",
        "param": "model",
        "code": "missing_required_parameter",
    }


@pytest.mark.parametrize("door", DOORS)
def test_every_door_uses_its_dialect(server: str, door: str) -> None:
    output = [*SAID, {"type": "web_search_call", "id": "ws_1", "status": "completed"}]
    made = compacted(server, door, model="demo", input=output)
    details = made["usage"]["input_tokens_details"]
    assert details == ({"cached_tokens": 0} if door == "/v1" else {"cached_tokens": 0, "cache_write_tokens": 0})


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("store", [True, False])
def test_the_output_is_accepted_verbatim(server_url: str, door: str, store: bool) -> None:
    made = compacted(server_url, door, model="demo", input=SAID)
    output = [*made["output"], {"role": "user", "content": "What is it called?"}]
    first = post_response(server_url, door, model="reader", input=output, store=store)
    assert first.status_code == 200, first.text
    check_response(first.json())
    text = first.json()["output"][0]["content"][0]["text"]
    assert "- assistant: A fine name for a ship." in text
    follow = {"previous_response_id": first.json()["id"], "input": "And?", "store": store}
    second = post_response(server_url, door, model="reader", **follow)
    assert "- assistant: A fine name for a ship." in second.text


def test_listed_items_stay_encrypted(server_url: str) -> None:
    made = compacted(server_url, model="demo", input=SAID)
    response = post_response(server_url, model="reader", input=made["output"]).json()
    with http_client(server_url) as http:
        page = http.get(f"/v1/responses/{response['id']}/input_items?order=asc").json()
    assert page["data"] == made["output"]


def test_a_stored_chain_can_be_compacted_and_compacted_again(server_url: str) -> None:
    first = post_response(server_url, model="echo", input="Our ship is called the Aurora.").json()
    once = compacted(server_url, model="demo", previous_response_id=first["id"])
    twice = compacted(server_url, model="demo", input=[*once["output"], *SAID])
    assert [item["type"] for item in twice["output"]] == ["message", "message", "compaction"]
    assert twice["output"][0] == once["output"][0]


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({"input": 5}, 400, "input", "invalid_value"),
        ({"input": "Hi", "model": "nobody"}, 404, "model", "model_not_found"),
        ({"previous_response_id": "resp_" + "0" * 48}, 400, "previous_response_id", "previous_response_not_found"),
        (
            {"input": [*SAID, {"type": "compaction", "encrypted_content": "gAAAAA"}]},
            400,
            "input[2].encrypted_content",
            "invalid_encrypted_content",
        ),
        ({"input": "Hi", "prompt_cache_key": "k" * 65}, 400, "prompt_cache_key", "invalid_value"),
    ],
)
def test_invalid_compactions_are_rejected(
    server: str, body: dict[str, Any], status: int, param: str, code: str
) -> None:
    answer = compact(server, **{"model": "demo", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


def test_a_compaction_of_someone_else_cannot_be_continued(server: str) -> None:
    foreign = {"type": "compaction", "encrypted_content": "gAAAAA"}
    for door in DOORS:
        answer = post_response(server, door, input=[foreign, {"role": "user", "content": "Hi"}])
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "input[0].encrypted_content"


def test_get_is_not_possible(server: str) -> None:
    with http_client(server) as http:
        assert http.get("/v1/responses/compact").status_code == 404


def test_a_disconnect_stops_the_model(server_url: str) -> None:
    STARTED.clear()
    STOPPED.clear()
    body = {"model": "patient", "input": "Hi"}
    soon = httpx.Timeout(WAIT, read=0.3)
    with http_client(server_url) as http, pytest.raises(httpx.ReadTimeout):
        http.post("/v1/responses/compact", json=body, timeout=soon)
    assert STARTED.is_set()
    assert STOPPED.wait(WAIT)


def test_a_restarted_server_decrypts_its_own_content(tmp_path: Path) -> None:
    settings = Settings(agents=[reader], responses_dir=tmp_path)
    with run_server(settings) as address:
        made = compacted(address, model="demo", input=SAID)
        response = post_response(address, model="reader", input=made["output"]).json()
    with run_server(settings) as address:
        again = post_response(address, model="reader", input=made["output"])
        chained = post_response(address, model="reader", input="?", previous_response_id=response["id"])
    assert "A fine name" in again.text
    assert "A fine name" in chained.text


def test_servers_with_the_same_keys_open_each_others_seals() -> None:
    with run_server(Settings(seal_keys=[KEY])) as address:
        made = compacted(address, model="demo", input=SAID)
    with run_server(Settings(agents=[reader], seal_keys=[new_key(), KEY])) as address:
        assert "A fine name" in post_response(address, model="reader", input=made["output"]).text
    with run_server(Settings(agents=[reader])) as address:
        assert post_response(address, model="reader", input=made["output"]).status_code == 400


def test_configured_encryption_keys_are_not_written_to_a_file(tmp_path: Path) -> None:
    with run_server(Settings(seal_keys=[KEY], responses_dir=tmp_path)) as address:
        compacted(address, model="demo", input=SAID)
    assert not (tmp_path / "seal.keys").exists()


def test_invalid_encryption_keys_are_rejected_at_once() -> None:
    with pytest.raises(ValueError, match=r"Key 2 is not 32 bytes in base64\."):
        create_app(Settings(seal_keys=[KEY, "hunter2"]))
    assert KEY not in repr(Settings(seal_keys=[KEY]))


@pytest.mark.anyio
async def test_a_spoilt_key_file_stops_the_server(tmp_path: Path) -> None:
    (tmp_path / "seal.keys").write_text(KEY[:9])
    transport = httpx.ASGITransport(create_app(Settings(responses_dir=tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.post("/v1/responses", json={"model": "demo", "input": "Hi"})
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "store_unavailable"
    assert KEY[:9] not in answer.text
