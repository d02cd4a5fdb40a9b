"""Providers that are asked: what is sent, how often, and what is said when they cannot be."""

import pytest

from tests.adapters.everywhere import SCRIPTS, house, in_one_piece, streamed
from tests.asking import ask, events_of
from tests.upstream import Answer

TEXT = SCRIPTS["openai"].SCENES["text"]
SAID = TEXT.seen.text
BEST = {"best": ["anthropic/a", "openai/b"]}
PAIR = ["anthropic", "openai"]


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_that_does_not_begin_in_time_is_not_asked_again(stream: bool) -> None:
    with house(["openai"], retry_seconds=0.01, first_byte_seconds=0.2) as served:
        served.upstreams["openai"].play(Answer(late=5.0))
        answer = ask(served.address, model="openai/m", stream=stream)
        asked = len(served.upstreams["openai"].requests)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    assert asked == 1


@pytest.mark.parametrize("stream", [False, True])
def test_another_is_asked_instead_of_one_that_does_not_begin_in_time(stream: bool) -> None:
    with house(PAIR, aliases=BEST, retry_seconds=0.01, first_byte_seconds=0.2) as served:
        served.upstreams["anthropic"].play(Answer(late=5.0))
        served.upstreams["openai"].play(streamed(TEXT) if stream else in_one_piece(TEXT))
        answer = ask(served.address, model="best", stream=stream)
        asked = len(served.upstreams["anthropic"].requests)
    response = events_of(answer.text)[-1]["response"] if stream else answer.json()
    assert response["output"][0]["content"][0]["text"] == SAID
    assert asked == 1
