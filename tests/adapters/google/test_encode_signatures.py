"""Gemini's thought signatures: each is sent back on its part."""

import pytest

from antiphon.adapters.google.encode import SKIP_SIGNATURE_CHECK
from antiphon.protocol.response import Response
from tests.adapters.google.builders import FOREIGN_ITEMS, GEMINI_3, GOOGLE, decode_chunks, output_as_input
from tests.adapters.run_adapter import decode_response, encode_request
from tests.adapters.scenes.google import PARIS, ROME, answer, call, thought, whole


def encode_replay(response: Response, *, model: str = GEMINI_3, outputs: bool = True) -> list[dict]:
    """Encode the next request after a response, with an output for every call."""
    back = output_as_input(response)
    for item in output_as_input(response) if outputs else []:
        if item["type"] == "function_call":
            output = {"type": "function_call_output", "call_id": item["call_id"], "output": "21"}
            back.append(output)
    if not outputs:
        back.append({"role": "user", "content": "And?"})
    history = [{"role": "user", "content": "Hello"}, *back]
    return encode_request(GOOGLE, upstream_model=model, input=history).body["contents"]


ROUNDS = {
    "a call": [call("weather", PARIS, "fc-1", "c2ln")],
    "a call without an id": [call("weather", PARIS, None, "c2ln")],
    "a thought and a call": [thought("Hm."), call("weather", PARIS, "fc-1", "c2ln")],
    "parallel calls": [call("weather", PARIS, "fc-1", "c2ln"), call("weather", ROME, "fc-2")],
    "parallel calls without ids": [call("weather", PARIS, None, "c2ln"), call("weather", ROME)],
    "text and a call": [{"text": "Let me look."}, call("weather", PARIS, "fc-1", "c2ln")],
    "a signed text and a call": [
        {"text": "Let me look.", "thoughtSignature": "b25l"},
        call("weather", PARIS, "fc-1", "c2ln"),
    ],
    "an empty signed text and a call": [
        {"text": "Let me look."},
        {"text": "", "thoughtSignature": "b25l"},
        call("weather", PARIS, "fc-1", "c2ln"),
    ],
    "two signed calls": [
        call("weather", PARIS, "fc-1", "c2ln"),
        thought("And."),
        call("weather", ROME, "fc-2", "dHdv"),
    ],
    "a signed thought": [
        thought("Hm.") | {"thoughtSignature": "b25l"},
        thought("So."),
        call("weather", PARIS, "fc-1", "c2ln"),
    ],
}


@pytest.mark.parametrize("name", ROUNDS)
def test_the_models_parts_are_sent_back_unchanged(name: str):
    sent = ROUNDS[name]
    for response in (
        decode_chunks(*(answer(part) for part in sent), answer(finish="STOP")),
        decode_response(encode_request(GOOGLE), whole(answer(*sent, finish="STOP")), stream=False),
    ):
        question, model, results = encode_replay(response)
        assert question == {"role": "user", "parts": [{"text": "Hello"}]}
        assert model == {"role": "model", "parts": sent}
        calls = [part["functionCall"] for part in sent if "functionCall" in part]
        assert results["parts"] == [
            {
                "functionResponse": ({"id": made["id"]} if "id" in made else {})
                | {"name": made["name"], "response": {"output": "21"}}
            }
            for made in calls
        ]


@pytest.mark.parametrize(
    "sent",
    [
        [{"text": "Good "}, {"text": "morning", "thoughtSignature": "c2ln"}],
        [{"text": "Good morning"}, {"text": "", "thoughtSignature": "c2ln"}],
        [{"text": "Good ", "thoughtSignature": "b25l"}, {"text": "morning", "thoughtSignature": "dHdv"}],
        [{"text": "", "thoughtSignature": "c2ln"}],
    ],
)
def test_the_signature_of_a_text_is_sent_back_on_that_part(sent: list[dict]):
    response = decode_chunks(*(answer(part) for part in sent), answer(finish="STOP"))
    assert encode_replay(response, outputs=False)[1] == {"role": "model", "parts": sent}


def test_the_signature_of_a_changed_text_is_sent_as_a_part_of_its_own():
    response = decode_chunks(answer({"text": "Good morning", "thoughtSignature": "c2ln"}, finish="STOP"))
    message, reasoning = output_as_input(response)
    message["content"][0]["text"] = "Hi"
    contents = encode_request(GOOGLE, input=[message, reasoning, {"role": "user", "content": "?"}]).body["contents"]
    assert contents[0]["parts"] == [{"text": "Hi"}, {"text": "", "thoughtSignature": "c2ln"}]


def test_sequential_calls_keep_their_own_signatures():
    first = decode_chunks(answer(call("weather", PARIS, "fc-1", "b25l"), finish="STOP"))
    second = decode_chunks(answer(call("weather", ROME, "fc-2", "dHdv"), finish="STOP"))
    history = [
        {"role": "user", "content": "Hello"},
        *output_as_input(first),
        {"type": "function_call_output", "call_id": "fc-1", "output": '{"degrees": 21}'},
        *output_as_input(second),
        {"type": "function_call_output", "call_id": "fc-2", "output": "[1]"},
    ]
    contents = encode_request(GOOGLE, upstream_model=GEMINI_3, input=history).body["contents"]
    assert contents[1:] == [
        {"role": "model", "parts": [call("weather", PARIS, "fc-1", "b25l")]},
        function_response("fc-1", "weather", {"degrees": 21}),
        {"role": "model", "parts": [call("weather", ROME, "fc-2", "dHdv")]},
        function_response("fc-2", "weather", {"output": "[1]"}),
    ]


def function_response(id: str, name: str, response: dict) -> dict:
    """Return a function response as content."""
    part = {"functionResponse": {"id": id, "name": name, "response": response}}
    return {"role": "user", "parts": [part]}


@pytest.mark.parametrize(
    ("model", "turn", "signed"),
    [
        ("gemini-3.5-flash", "current", True),
        ("gemini-flash-latest", "current", True),
        ("publishers/google/models/gemini-3-pro", "current", True),
        ("gemini-3.5-flash", "earlier", False),
        ("gemini-2.5-flash", "current", False),
        ("gemma-3", "current", False),
    ],
)
def test_the_first_foreign_call_of_a_turn_skips_the_signature_check(model: str, turn: str, signed: bool):
    history = [{"role": "user", "content": "Hello"}, *FOREIGN_ITEMS]
    if turn == "earlier":
        history += [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "So?"}]
    contents = encode_request(GOOGLE, upstream_model=model, input=history).body["contents"]
    assert contents[1]["parts"] == [
        call("weather", {"a": 1}, "toolu_|1", SKIP_SIGNATURE_CHECK if signed else None),
        call("time", {"arguments": "none"}, "toolu_|2"),
    ]
    assert [part["functionResponse"]["name"] for part in contents[2]["parts"]] == ["weather", "time"]
