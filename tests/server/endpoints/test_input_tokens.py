"""`POST /responses/input_tokens` at every door."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from antiphon.agents.agent import Turn, agent
from antiphon.server.settings import Settings
from tests.http_client import DOORS, http_client, post_response
from tests.run_server import run_server


@agent("uncounted")
async def uncounted(turn: Turn) -> AsyncIterator[str]:
    """Counts nothing."""
    yield turn.text


def count(address: str, door: str = "/v1", **body: object) -> httpx.Response:
    """Request a count, by default for `demo`."""
    with http_client(address) as http:
        return http.post(f"{door}/responses/input_tokens", json={"model": "demo", **body})


TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
BODIES: dict[str, dict[str, Any]] = {
    "text": {"input": "one two three"},
    "instructions": {"input": "one", "instructions": "Be very kind."},
    "tools": {"input": "one", "tools": [TOOL, {"type": "web_search"}]},
    "options": {"input": "one", "reasoning": None, "text": {"verbosity": "low"}, "stream": True},
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_count_equals_the_input_tokens_of_a_response(server: str, door: str, body: dict[str, Any]) -> None:
    read = post_response(server, door, **(body | {"stream": False})).json()["usage"]["input_tokens"]
    answer = count(server, door, **body)
    assert answer.status_code == 200
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": read}


def test_earlier_turns_are_counted(server: str) -> None:
    first = post_response(server, model="echo", input="one two three").json()
    answer = count(server, input="four", previous_response_id=first["id"])
    assert answer.json()["input_tokens"] == 7


def test_an_estimate_is_marked_as_one() -> None:
    with run_server(Settings(agents=[uncounted])) as address:
        assert count(address, model="uncounted", input="Hello!").json() == {
            "object": "response.input_tokens",
            "input_tokens": 6,
            "antiphon:warnings": [
                {
                    "code": "usage_estimated",
                    "message": "This model does not count tokens; this is an estimate.",
                    "param": "input_tokens",
                }
            ],
        }


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": "Hi", "model": None}, 400, "model"),
        ({"input": "Hi", "model": "nobody"}, 404, "model"),
        ({}, 400, "input"),
        ({"input": [{"type": "nonsense"}]}, 400, "input[0].type"),
        ({"previous_response_id": "resp_" + "0" * 48}, 400, "previous_response_id"),
    ],
)
def test_invalid_requests_are_rejected_like_a_responses(
    server: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = count(server, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_counting_stores_nothing(server: str) -> None:
    assert count(server, input="FAIL").status_code == 200
