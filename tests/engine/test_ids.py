"""Ids that cannot be guessed."""

import re

import pytest

from antiphon.agents.demo import demo
from antiphon.engine.engine import Engine
from antiphon.engine.ids import new_id, random_padding
from antiphon.engine.models import Models
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.struct import encode
from antiphon.wire.openresponses import decode_request

TOOL = {"type": "function", "name": "ping"}


def test_a_thousand_ids_have_160_random_bits_or_more_and_are_all_different() -> None:
    ids = [new_id("resp") for _ in range(1000)]
    assert all(re.fullmatch(r"resp_[0-9a-f]{40,}", id) for id in ids)
    assert len(set(ids)) == 1000
    tails = [int(id.removeprefix("resp_"), 16) for id in ids]
    bits = len(ids[0].removeprefix("resp_")) * 4
    for bit in range(bits):
        ones = sum(tail >> bit & 1 for tail in tails)
        assert 350 < ones < 650, f"bit {bit} is not random"


@pytest.mark.anyio
async def test_every_id_of_a_response_says_what_it_is_the_id_of() -> None:
    engine = Engine(Models([demo]))
    reasoning = {"model": "demo", "input": "Hi!", "reasoning": {"effort": "low"}}
    calling = {"model": "demo", "input": "ping", "tools": [TOOL]}
    ids: list[object] = []
    for body in [reasoning, calling] * 50:
        run = await engine.create_run(decode_request(body))
        response = await run.execute()
        ids += [response.id, *(item.id for item in response.output)]
        ids += [item.call_id for item in response.output if isinstance(item, FunctionCall)]
    assert len(set(ids)) == len(ids) == 50 * (3 + 3)
    assert all(re.fullmatch(r"(resp|msg|rs|fc|call)_[0-9a-f]{40,}", str(id)) for id in ids)
    assert {str(id).partition("_")[0] for id in ids} == {"resp", "msg", "rs", "fc", "call"}


@pytest.mark.parametrize(
    "text", ["", "a", "fifteen letters", "sixteen letters!", "日本語", "\n", "x" * 100]
)
def test_padding_fills_a_text_as_it_is_sent_up_to_a_multiple_of_sixteen_bytes(text: str) -> None:
    pad = random_padding(text)
    assert len(encode(text) + pad.encode()) % 16 == 0
    assert 1 <= len(pad) <= 16
    assert re.fullmatch(r"[A-Za-z0-9_-]+", pad)


def test_padding_is_noise() -> None:
    assert len({random_padding("") for _ in range(100)}) == 100
