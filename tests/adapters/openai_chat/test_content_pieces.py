"""Chat content in pieces: text, reasoning, images and audio."""

from typing import Any

import pytest
from msgspec import UNSET

from antiphon.adapters.base import Provider
from antiphon.server.settings import Settings
from tests.adapters.chat_summary import items_without_ids, whole_answer
from tests.adapters.openai_chat.test_decode import decode_stream, decode_whole
from tests.adapters.scenes.openai import stream, whole
from tests.http_client import post_response, stream_events
from tests.run_server import run_server
from tests.scripted_upstream import scripted_upstream, sse_answer


def test_content_in_pieces_is_read_piece_by_piece():
    pieces: list[Any] = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
        {"type": "thinking", "thinking": "."},
        {"type": "text", "text": "Yes"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "refusal", "refusal": "No"},
    ]
    once = decode_whole(whole({"content": pieces}))
    bit_by_bit = decode_stream(stream(*[{"content": [piece]} for piece in pieces]))
    assert items_without_ids(once) == items_without_ids(bit_by_bit)
    assert [item.type for item in once.output] == ["reasoning", "message"]
    assert [part.type for part in once.output[1].content] == ["output_text", "refusal"]  # type: ignore[union-attr]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
WORDLESS = {
    "an image": PICTURE,
    "a sound": {"type": "input_audio", "input_audio": {"data": "UklGRg=="}},
    "a reference": {"type": "reference", "reference_ids": [1]},
    "a file": {"type": "tool_file", "tool": "image_generation", "file_id": "f"},
    "no type": {"image": "iVBO"},
    "a thought": {"type": "thinking", "thinking": [PICTURE]},
}


@pytest.mark.parametrize("name", WORDLESS)
@pytest.mark.parametrize("between", [None, {"type": "text", "text": "Here: "}])
def test_pieces_without_text_are_dropped_with_one_warning(name: str, between: dict | None):
    piece = WORDLESS[name]
    pieces = [piece, between, piece] if between else [piece]
    message, delta = whole({"content": pieces}), stream(*[{"content": [each]} for each in pieces])
    with scripted_upstream(whole_answer(message), sse_answer(delta)) as local:
        there = Provider(name="local", adapter="openai", base_url=local.url)
        with run_server(Settings(providers=[there])) as address:
            once = post_response(address, model="local/m").json()
            streamed = stream_events(address, model="local/m")[-1]["response"]
    for response in (once, streamed):
        (message,) = [item for item in response["output"] if item["type"] == "message"]
        assert message["content"][0]["text"] == (between["text"] if between else "")
        (warning,) = response["antiphon:warnings"]
        assert warning["code"] == "unsupported_output"


@pytest.mark.parametrize("piece", [{"type": "text"}, {"type": "text", "text": ""}])
@pytest.mark.parametrize("empty", ["text", "thinking", "refusal"])
def test_pieces_that_say_nothing_are_nothing_to_warn_of(piece: dict, empty: str):
    nothing = {"type": empty, empty: None}
    thought = {"type": "thinking", "thinking": [piece]}
    pieces: list[Any] = [nothing, {"type": "text", "text": "Yes"}, piece, thought]
    for response in (decode_whole(whole({"content": pieces})), decode_stream(stream({"content": pieces}))):
        assert (response.output_text, response.warnings) == ("Yes", UNSET)


def test_a_thought_goes_on_after_what_was_left_out_of_it():
    hm, more = ({"type": "thinking", "thinking": text} for text in ("Hm", "."))
    for pieces in ([hm, PICTURE, more], [hm, {"type": "thinking", "thinking": [PICTURE]}, more]):
        response = decode_stream(stream(*[{"content": [each]} for each in pieces]))
        (thought,) = response.output
        assert thought.content[0].text == "Hm."  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "made",
    [
        {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]},
        {"audio": {"id": "audio_1", "data": "UklGRg==", "transcript": "Hi", "expires_at": 1}},
    ],
)
@pytest.mark.parametrize("words", ["", "Here: "])
def test_images_and_audio_are_left_out_with_one_warning(made: dict, words: str):
    said = {"content": words} | made
    whole_answer, in_bits = (decode_whole(whole(said)), decode_stream(stream(said, {"content": None} | made)))
    for response in (whole_answer, in_bits):
        assert (response.status, response.output_text) == ("completed", words)
        assert [warning.code for warning in response.warnings or []] == ["unsupported_output"]
