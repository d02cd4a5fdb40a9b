"""The WebSocket cases of the official compliance suite, run against `/v1`.

Every message passes the schema checks and every turn the rules, which the suite does not do.
"""

from collections.abc import Iterator

import pytest

from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import decode_event
from tests.http_client import http_client
from tests.spec.schema_checks import check_compact_resource, check_error_body, check_event, check_response
from tests.ws_client import Json, WsClient, ws_client

pytestmark = pytest.mark.compliance

KEY = {"Authorization": "Bearer none"}


@pytest.fixture
def talk(server: str) -> Iterator[WsClient]:
    """Give a connection as the suite opens it."""
    with ws_client(server, additional_headers=KEY) as talk:
        yield talk


def read_until_completed(talk: WsClient, **fields: object) -> Json:
    """Check a whole turn, and return its response."""
    events = talk.turn(**fields)
    for event in events:
        check_event(event)
    assert find_violations(map(decode_event, events)) == []
    assert events[-1]["type"] == "response.completed"
    check_response(events[-1]["response"])
    assert events[-1]["response"]["status"] == "completed"
    return events[-1]["response"]


def read_error_code(talk: WsClient, **fields: object) -> str:
    """Check a turn that is refused, and return the code of its only message."""
    envelope = talk.error_message(**fields)
    check_error_body(envelope)
    assert 400 <= envelope["status"] < 600
    return envelope["error"]["code"]


def user_message(text: str) -> Json:
    """Return a user's message."""
    return {"type": "message", "role": "user", "content": text}


def test_websocket_response(talk: WsClient) -> None:
    read_until_completed(talk, input=[user_message("Name three rivers.")], store=True)


def test_websocket_sequential_responses(talk: WsClient) -> None:
    first = read_until_completed(talk, input="Name a river.", store=False)
    second = read_until_completed(talk, input="Name a mountain.", store=False)
    assert first["id"] != second["id"]


def test_websocket_continuation(talk: WsClient) -> None:
    first = read_until_completed(talk, input="The harbour is called Vesterhavn.", store=False)
    read_until_completed(talk, input="What is it called?", store=False, previous_response_id=first["id"])


def test_websocket_reconnect_store_false_recovery(server: str, talk: WsClient) -> None:
    first = read_until_completed(talk, input="The ferry leaves at nine.", store=False)
    talk.socket.close()
    with ws_client(server, additional_headers=KEY) as again:
        lost = read_error_code(again, input="When?", store=False, previous_response_id=first["id"])
        assert lost == "previous_response_not_found"
        read_until_completed(again, input="The ferry leaves at nine. When?", store=False)


def test_websocket_previous_response_not_found(talk: WsClient) -> None:
    unknown = f"resp_{'0' * 48}"
    lost = read_error_code(talk, input="Go on.", store=False, previous_response_id=unknown)
    assert lost == "previous_response_not_found"


def test_websocket_failed_continuation_evicts_cache(talk: WsClient) -> None:
    first = read_until_completed(talk, input="The tide turns at six.", store=False)
    answer = {"type": "function_call_output", "call_id": "call_of_nobody", "output": "?"}
    read_error_code(talk, input=[answer], store=False, previous_response_id=first["id"])
    lost = read_error_code(talk, input="When?", store=False, previous_response_id=first["id"])
    assert lost == "previous_response_not_found"
    read_until_completed(talk, input="The tide turns at six. When?", store=False)


def test_websocket_compact_new_chain(server: str, talk: WsClient) -> None:
    history = [
        user_message("The lighthouse has 183 steps."),
        {"type": "message", "role": "assistant", "content": "That is a long way up."},
    ]
    with http_client(server) as http:
        answer = http.post("/v1/responses/compact", json={"model": "demo", "input": history})
    assert answer.status_code == 200, answer.text
    check_compact_resource(answer.json())
    compacted = [*answer.json()["output"], user_message("How many steps has it?")]
    first = read_until_completed(talk, input=compacted, store=False, tools=[])
    read_until_completed(talk, input="And down again?", store=False, previous_response_id=first["id"])
