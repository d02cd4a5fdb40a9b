"""The official compliance suite's WebSocket cases, as our own tests at the specification's door.

As in `test_compliance.py` every message is read by the oracle and every turn judged, which is more
than the suite does.
"""

from collections.abc import Iterator

import pytest

from antiphon.core.events import decode_event
from antiphon.core.judge import judge
from tests.asking import client
from tests.spec.oracle import check_compact, check_envelope, check_event, check_response
from tests.talking import Json, Talk, talking

pytestmark = pytest.mark.compliance

KEY = {"Authorization": "Bearer none"}


@pytest.fixture
def talk(server: str) -> Iterator[Talk]:
    """Give a connection as the suite opens it."""
    with talking(server, additional_headers=KEY) as talk:
        yield talk


def completed(talk: Talk, **fields: object) -> Json:
    """Check a whole turn, and return its response."""
    events = talk.turn(**fields)
    for event in events:
        check_event(event)
    assert judge(map(decode_event, events)) == []
    assert events[-1]["type"] == "response.completed"
    check_response(events[-1]["response"])
    assert events[-1]["response"]["status"] == "completed"
    return events[-1]["response"]


def failed(talk: Talk, **fields: object) -> str:
    """Check a turn that is refused, and return the code of its only message."""
    envelope = talk.error(**fields)
    check_envelope(envelope)
    assert 400 <= envelope["status"] < 600
    return envelope["error"]["code"]


def user(text: str) -> Json:
    """Return a user's message."""
    return {"type": "message", "role": "user", "content": text}


def test_websocket_response(talk: Talk) -> None:
    completed(talk, input=[user("Name three rivers.")], store=True)


def test_websocket_sequential_responses(talk: Talk) -> None:
    first = completed(talk, input="Name a river.", store=False)
    second = completed(talk, input="Name a mountain.", store=False)
    assert first["id"] != second["id"]


def test_websocket_continuation(talk: Talk) -> None:
    first = completed(talk, input="The harbour is called Vesterhavn.", store=False)
    completed(talk, input="What is it called?", store=False, previous_response_id=first["id"])


def test_websocket_reconnect_store_false_recovery(server: str, talk: Talk) -> None:
    first = completed(talk, input="The ferry leaves at nine.", store=False)
    talk.socket.close()
    with talking(server, additional_headers=KEY) as again:
        lost = failed(again, input="When?", store=False, previous_response_id=first["id"])
        assert lost == "previous_response_not_found"
        completed(again, input="The ferry leaves at nine. When?", store=False)


def test_websocket_previous_response_not_found(talk: Talk) -> None:
    unknown = f"resp_{'0' * 48}"
    lost = failed(talk, input="Go on.", store=False, previous_response_id=unknown)
    assert lost == "previous_response_not_found"


def test_websocket_failed_continuation_evicts_cache(talk: Talk) -> None:
    first = completed(talk, input="The tide turns at six.", store=False)
    answer = {"type": "function_call_output", "call_id": "call_of_nobody", "output": "?"}
    failed(talk, input=[answer], store=False, previous_response_id=first["id"])
    lost = failed(talk, input="When?", store=False, previous_response_id=first["id"])
    assert lost == "previous_response_not_found"
    completed(talk, input="The tide turns at six. When?", store=False)


def test_websocket_compact_new_chain(server: str, talk: Talk) -> None:
    said = [
        user("The lighthouse has 183 steps."),
        {"type": "message", "role": "assistant", "content": "That is a long way up."},
    ]
    with client(server) as http:
        answer = http.post("/v1/responses/compact", json={"model": "demo", "input": said})
    assert answer.status_code == 200, answer.text
    check_compact(answer.json())
    begun = [*answer.json()["output"], user("How many steps has it?")]
    first = completed(talk, input=begun, store=False, tools=[])
    completed(talk, input="And down again?", store=False, previous_response_id=first["id"])
