"""Sealed reasoning and compactions."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.agents.agent import Agent, Turn
from antiphon.engine.engine import Caller, Engine
from antiphon.engine.models import Models
from antiphon.engine.sealing import SUMMARY_INTRODUCTION, ItemSealer, KeyRing, new_key
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    Reasoning,
    ReasoningText,
    SummaryText,
    user_message,
)
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.protocol.struct import encode
from antiphon.wire.openresponses import decode_request
from tests.engine.recording_sink import RecordingSink
from tests.protocol.builders import to_json

pytestmark = pytest.mark.anyio

SEAL = KeyRing([new_key()])
SIGNED = Reasoning(
    id="rs_1",
    summary=[SummaryText(text="Looked at the map.")],
    content=[ReasoningText(text="North? No:"), ReasoningText(text="south.")],
    encrypted_content="a provider's signature",
)
HIDDEN = replace(SIGNED, content=UNSET)


def make_sealer(origin: str = "us", **fields: Any) -> ItemSealer:
    """Return what stands between a model and its clients."""
    return ItemSealer(SEAL, origin, **fields)


def unseal(item: Item, by: ItemSealer) -> list[Item]:
    """Return an item as a model reads it."""
    return by.unseal_items([item], "input[{}].encrypted_content")


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SECRETS = st.text("abcdefgh", min_size=24, max_size=32)
THOUGHTS = st.builds(
    Reasoning,
    id=st.just("rs_1"),
    summary=st.lists(st.builds(SummaryText, text=WORDS), max_size=2),
    content=st.just(UNSET) | st.lists(st.builds(ReasoningText, text=SECRETS), min_size=1),
    encrypted_content=SECRETS,
)


@given(THOUGHTS, st.booleans())
def test_sealed_reasoning_comes_back_to_its_origin(thought: Reasoning, forgotten: bool) -> None:
    sealed = make_sealer().seal_item(thought)
    assert isinstance(sealed, Reasoning)
    assert sealed.encrypted_content != thought.encrypted_content
    returned = replace(sealed, content=UNSET) if forgotten else sealed
    assert unseal(returned, make_sealer()) == [thought]


@given(THOUGHTS, st.sampled_from(["origin", "tenant", "key"]))
def test_sealed_reasoning_never_reaches_another_origin(thought: Reasoning, other: str) -> None:
    sealed = make_sealer().seal_item(thought)
    assert isinstance(sealed, Reasoning)
    returned = replace(sealed, content=UNSET)
    reader = {
        "origin": make_sealer("them"),
        "tenant": make_sealer(tenant="them"),
        "key": ItemSealer(KeyRing.ephemeral(), "us"),
    }[other]
    read = unseal(returned, reader)
    assert read == ([replace(returned, encrypted_content=UNSET)] if thought.summary else [])
    events = encode(read).decode()
    assert str(thought.encrypted_content) not in events
    assert not any(part.text in events for part in thought.content or [])  # pyright: ignore


@pytest.mark.parametrize("blob", ["", "gAAAAA", "EqQBCgIYAhIM", "ant1_", "ant1_gAAAAABm"])
def test_foreign_encrypted_content_is_dropped(blob: str) -> None:
    foreign = replace(HIDDEN, encrypted_content=blob)
    assert unseal(foreign, make_sealer()) == [replace(HIDDEN, encrypted_content=UNSET)]
    assert unseal(replace(foreign, summary=[]), make_sealer()) == []


def test_the_seal_of_a_compaction_is_not_accepted_for_reasoning() -> None:
    compaction = make_sealer().seal_compaction("We met.", "cmp_1")
    stolen = replace(HIDDEN, encrypted_content=compaction.encrypted_content)
    assert unseal(stolen, make_sealer()) == [replace(HIDDEN, encrypted_content=UNSET)]


def test_reasoning_without_encrypted_content_is_not_changed() -> None:
    thoughts = [replace(SIGNED, encrypted_content=UNSET), Reasoning(id="rs_2")]
    assert [make_sealer().seal_item(thought) for thought in thoughts] == thoughts
    assert make_sealer().unseal_items(thoughts, "input") == thoughts


def test_raw_reasoning_is_sealed_on_request() -> None:
    plain = replace(SIGNED, encrypted_content=UNSET)
    sealed = make_sealer(seal_all_reasoning=True).seal_item(plain)
    assert isinstance(sealed, Reasoning)
    assert sealed.encrypted_content is not UNSET
    assert unseal(replace(sealed, content=UNSET), make_sealer()) == [plain]
    assert make_sealer(seal_all_reasoning=True).seal_item(Reasoning(id="rs_2")) == Reasoning(id="rs_2")


def test_a_summary_is_read_as_a_message() -> None:
    sealed = make_sealer("them").seal_compaction("We met.", "cmp_1")
    text = f"{SUMMARY_INTRODUCTION}\n\nWe met."
    assert unseal(sealed, make_sealer()) == [Message(id="cmp_1", role="developer", content=[InputText(text=text)])]


def test_compacted_items_are_read_unchanged() -> None:
    items: list[Item] = [
        user_message("Hi"),
        FunctionCall(call_id="c1", name="f", arguments="{}"),
        FunctionCallOutput(call_id="c1", output="1", extra={"odd": 1}),
    ]
    sealed = make_sealer().seal_compaction(items, "cmp_1")
    assert unseal(sealed, make_sealer()) == items


def test_the_compaction_of_a_provider_comes_back_to_its_origin() -> None:
    own = Compaction(id="cmp_1", encrypted_content="theirs")
    sealed = make_sealer().seal_item(own)
    assert "theirs" not in str(sealed)
    assert unseal(sealed, make_sealer()) == [own]
    with pytest.raises(RequestError, match="can only be read by the model that made it"):
        unseal(sealed, make_sealer("them"))


OURS = make_sealer().seal_compaction("We met.", "cmp_1").encrypted_content


@pytest.mark.parametrize(
    "blob",
    [
        "",
        "gAAAAA",
        OURS[:-4],
        OURS.replace("ant1_g", "ant1_h"),
        make_sealer(tenant="them").seal_compaction("We met.", "cmp_1").encrypted_content,
        ItemSealer(KeyRing.ephemeral(), "us").seal_compaction("We met.", "cmp_1").encrypted_content,
        SEAL.encrypt({"type": "gist"}),
        SEAL.encrypt(["We met."]),
    ],
)
def test_a_foreign_compaction_is_rejected(blob: str) -> None:
    items: Sequence[Item] = [user_message("Hi"), Compaction(encrypted_content=blob)]
    with pytest.raises(RequestError) as caught:
        make_sealer().unseal_items(items, "input[{}].encrypted_content")
    assert caught.value.payload == ErrorPayload(
        type="invalid_request",
        code="invalid_encrypted_content",
        param="input[1].encrypted_content",
        message="This compaction was not made here, or was changed on its way. Send it back as it "
        "came, or send the items that it stands for.",
    )


SECRET = "the raw thinking of a model"


class Thinker(Agent):
    """A model that thinks, and remembers what it was given to read."""

    def __init__(self, name: str) -> None:
        super().__init__(name, self.think)
        self.turns: list[Turn] = []

    async def think(self, turn: Turn) -> AsyncIterator[Part]:
        self.turns.append(turn)
        yield parts.Reasoning("the raw thinking ", summary="Thought.")
        yield parts.Reasoning("of a model")
        yield parts.Reasoning(encrypted_content=f"signed by {self.name}")
        yield parts.Text("Done.")


class SealingEngine:
    """An engine with two thinkers."""

    def __init__(self, seal: KeyRing | None = None) -> None:
        self.one, self.other = Thinker("one"), Thinker("other")
        self.engine = Engine(Models([self.one, self.other]), key_ring=seal)

    async def ask(self, model: str, input: object, **fields: object) -> Response:
        """Ask a model, and judge its stream."""
        events = RecordingSink()
        request = decode_request({"model": model, "input": input, **fields})
        response = await (await self.engine.create_run(request, events)).execute()
        assert find_violations(events.events) == []
        return response


async def test_reasoning_is_sealed_before_it_is_sent() -> None:
    sealing = SealingEngine(SEAL)
    response = await sealing.ask("one", "Hi", store=False)
    thought = response.output[0]
    assert isinstance(thought, Reasoning)
    assert unseal(thought, ItemSealer(SEAL, "one")) == [replace(thought, encrypted_content="signed by one")]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_model_reads_its_own_reasoning_only(stored: bool) -> None:
    sealing = SealingEngine()
    first = await sealing.ask("one", "Hi", store=stored)
    chained = {"previous_response_id": first.id, "store": stored}
    await sealing.ask("one", "And?", **chained)
    await sealing.ask("other", "And?", **chained)
    own, foreign = sealing.one.turns[-1].history[1], sealing.other.turns[-1].history[1]
    assert isinstance(own, Reasoning)
    assert own.encrypted_content == "signed by one"
    assert isinstance(foreign, Reasoning)
    assert foreign.encrypted_content is UNSET
    assert foreign.summary == own.summary


async def test_a_stateless_client_sends_back_reasoning_that_it_cannot_read() -> None:
    sealing = SealingEngine()
    first = await sealing.ask("one", "Hi", store=False)
    thought, message = (to_json(item) for item in first.output)
    assert isinstance(thought, dict)
    del thought["content"]
    items = [{"role": "user", "content": "Hi"}, thought, message, {"role": "user", "content": "?"}]
    await sealing.ask("one", items, store=False)
    await sealing.ask("other", items, store=False)
    read = sealing.one.turns[-1].input[1]
    assert isinstance(read, Reasoning)
    assert read.encrypted_content == "signed by one"
    assert SECRET in "".join(part.text for part in read.content or [])  # pyright: ignore
    events = encode(sealing.other.turns[-1].items).decode()
    assert "signed by one" not in events
    assert "raw thinking" not in events


async def test_stored_items_stay_sealed() -> None:
    sealing = SealingEngine(SEAL)
    sealed = ItemSealer(SEAL, "").seal_compaction("We met.", "cmp_1")
    response = await sealing.ask("one", [to_json(sealed), {"role": "user", "content": "Hi"}])
    context = await sealing.engine.history.load(response.id, tenant="", connection_cache=None, will_store=True)
    assert context.items[0] == sealed
    assert "We met." in encode(sealing.one.turns[-1].input[0]).decode()
    await sealing.ask("other", "And?", previous_response_id=response.id)
    assert "We met." in encode(sealing.other.turns[-1].history[0]).decode()


async def test_a_conversation_whose_key_is_lost_names_the_param() -> None:
    sealing = SealingEngine(KeyRing.ephemeral())
    sealed = ItemSealer(sealing.engine.key_ring, "").seal_compaction("We met.", "cmp_1")
    response = await sealing.ask("one", [to_json(sealed)])
    sealing.engine.key_ring = KeyRing.ephemeral()
    with pytest.raises(RequestError) as caught:
        await sealing.ask("one", "And?", previous_response_id=response.id)
    assert caught.value.payload.param == "previous_response_id"


async def test_a_tenant_cannot_open_the_seal_of_another() -> None:
    sealing = SealingEngine()
    sealed = ItemSealer(sealing.engine.key_ring, "", "them").seal_compaction("We met.", "cmp_1")
    request = decode_request({"model": "one", "input": [to_json(sealed)]})
    await sealing.engine.create_run(request, caller=Caller("them"))
    with pytest.raises(RequestError) as caught:
        await sealing.engine.create_run(request, caller=Caller("us"))
    assert caught.value.payload.param == "input[0].encrypted_content"


async def test_a_sealed_conversation_is_counted_unsealed() -> None:
    sealing = SealingEngine()
    sealing.one.window = 60
    sealed = ItemSealer(sealing.engine.key_ring, "").seal_compaction("We met. " * 20, "cmp_1")
    body = {"model": "one", "input": [to_json(sealed), {"role": "user", "content": "Hi"}]}
    with pytest.raises(RequestError, match="reads at most 60"):
        await sealing.engine.create_run(decode_request(body))
    sealing.one.window = 100
    await sealing.engine.create_run(decode_request(body))
