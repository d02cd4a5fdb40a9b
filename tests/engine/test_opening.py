"""What only its maker may read: closed on the way out, opened on the way in."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.agents.agent import Agent
from antiphon.agents.turn import Turn
from antiphon.core import parts
from antiphon.core.content import InputText, ReasoningText, SummaryText
from antiphon.core.errors import ErrorPayload, RequestError
from antiphon.core.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    user,
)
from antiphon.core.judge import judge
from antiphon.core.parts import Part
from antiphon.core.response import Response
from antiphon.core.value import encode
from antiphon.engine.engine import Caller, Engine
from antiphon.engine.models import Models
from antiphon.engine.opening import INTRODUCTION, Envelope
from antiphon.engine.seal import Seal, new_key
from antiphon.wire.dialects import read_request
from tests.core.making import jsoned
from tests.engine.telling import Told

pytestmark = pytest.mark.anyio

SEAL = Seal([new_key()])
SIGNED = Reasoning(
    id="rs_1",
    summary=[SummaryText(text="Looked at the map.")],
    content=[ReasoningText(text="North? No:"), ReasoningText(text="south.")],
    encrypted_content="a provider's signature",
)
HIDDEN = replace(SIGNED, content=UNSET)


def envelope(origin: str = "us", **fields: Any) -> Envelope:
    """Return what stands between a model and its clients."""
    return Envelope(SEAL, origin, **fields)


def opened(item: Item, by: Envelope) -> list[Item]:
    """Return an item as a model reads it."""
    return by.open([item], "input[{}].encrypted_content")


# --- thinking ---------------------------------------------------------------------------------

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
def test_sealed_thinking_comes_back_to_its_origin(thought: Reasoning, forgotten: bool) -> None:
    sealed = envelope().close(thought)
    assert isinstance(sealed, Reasoning)
    assert sealed.encrypted_content != thought.encrypted_content
    returned = replace(sealed, content=UNSET) if forgotten else sealed
    assert opened(returned, envelope()) == [thought]


@given(THOUGHTS, st.sampled_from(["origin", "tenant", "key"]))
def test_sealed_thinking_never_reaches_another(thought: Reasoning, other: str) -> None:
    sealed = envelope().close(thought)
    assert isinstance(sealed, Reasoning)
    returned = replace(sealed, content=UNSET)
    reader = {
        "origin": envelope("them"),
        "tenant": envelope(tenant="them"),
        "key": Envelope(Seal.passing(), "us"),
    }[other]
    read = opened(returned, reader)
    assert read == ([replace(returned, encrypted_content=UNSET)] if thought.summary else [])
    told = encode(read).decode()
    assert str(thought.encrypted_content) not in told
    assert not any(part.text in told for part in thought.content or [])  # pyright: ignore


@pytest.mark.parametrize("blob", ["", "gAAAAA", "EqQBCgIYAhIM", "ant1_", "ant1_gAAAAABm"])
def test_what_we_did_not_seal_is_dropped(blob: str) -> None:
    foreign = replace(HIDDEN, encrypted_content=blob)
    assert opened(foreign, envelope()) == [replace(HIDDEN, encrypted_content=UNSET)]
    assert opened(replace(foreign, summary=[]), envelope()) == []


def test_a_compaction_is_not_taken_for_thinking() -> None:
    gist = envelope().compaction("We met.", "cmp_1")
    stolen = replace(HIDDEN, encrypted_content=gist.encrypted_content)
    assert opened(stolen, envelope()) == [replace(HIDDEN, encrypted_content=UNSET)]


def test_thinking_in_the_open_stays_as_it_is() -> None:
    thoughts = [replace(SIGNED, encrypted_content=UNSET), Reasoning(id="rs_2")]
    assert [envelope().close(thought) for thought in thoughts] == thoughts
    assert envelope().open(thoughts, "input") == thoughts


def test_thinking_without_a_seal_of_its_own_is_sealed_when_that_is_asked_for() -> None:
    plain = replace(SIGNED, encrypted_content=UNSET)
    sealed = envelope(always=True).close(plain)
    assert isinstance(sealed, Reasoning)
    assert sealed.encrypted_content is not UNSET
    assert opened(replace(sealed, content=UNSET), envelope()) == [plain]
    assert envelope(always=True).close(Reasoning(id="rs_2")) == Reasoning(id="rs_2")


# --- compactions ------------------------------------------------------------------------------


def test_a_summary_is_read_as_a_message() -> None:
    sealed = envelope("them").compaction("We met.", "cmp_1")
    text = f"{INTRODUCTION}\n\nWe met."
    assert opened(sealed, envelope()) == [
        Message(id="cmp_1", role="developer", content=[InputText(text=text)])
    ]


def test_items_are_read_as_they_were() -> None:
    items: list[Item] = [
        user("Hi"),
        FunctionCall(call_id="c1", name="f", arguments="{}"),
        FunctionCallOutput(call_id="c1", output="1", extra={"odd": 1}),
    ]
    sealed = envelope().compaction(items, "cmp_1")
    assert opened(sealed, envelope()) == items


def test_a_models_own_compaction_comes_back_to_its_origin() -> None:
    own = Compaction(id="cmp_1", encrypted_content="theirs")
    sealed = envelope().close(own)
    assert "theirs" not in str(sealed)
    assert opened(sealed, envelope()) == [own]
    with pytest.raises(RequestError, match="can only be read by the model that made it"):
        opened(sealed, envelope("them"))


OURS = envelope().compaction("We met.", "cmp_1").encrypted_content


@pytest.mark.parametrize(
    "blob",
    [
        "",
        "gAAAAA",
        OURS[:-4],
        OURS.replace("ant1_g", "ant1_h"),
        envelope(tenant="them").compaction("We met.", "cmp_1").encrypted_content,
        Envelope(Seal.passing(), "us").compaction("We met.", "cmp_1").encrypted_content,
        SEAL.close({"type": "gist"}),
        SEAL.close(["We met."]),
    ],
)
def test_a_compaction_that_is_not_ours_is_refused(blob: str) -> None:
    items: Sequence[Item] = [user("Hi"), Compaction(encrypted_content=blob)]
    with pytest.raises(RequestError) as caught:
        envelope().open(items, "input[{}].encrypted_content")
    assert caught.value.payload == ErrorPayload(
        type="invalid_request",
        code="invalid_encrypted_content",
        param="input[1].encrypted_content",
        message="This compaction was not made here, or was changed on its way. Send it back as it "
        "came, or send the items that it stands for.",
    )


# --- in the engine ----------------------------------------------------------------------------

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


class House:
    """An engine with two thinkers."""

    def __init__(self, seal: Seal | None = None) -> None:
        self.one, self.other = Thinker("one"), Thinker("other")
        self.engine = Engine(Models([self.one, self.other]), seal=seal)

    async def ask(self, model: str, input: object, **fields: object) -> Response:
        """Ask a model, and judge its stream."""
        told = Told()
        request = read_request({"model": model, "input": input, **fields})
        response = await (await self.engine.open(request, told)).drive()
        assert judge(told.events) == []
        return response


async def test_thinking_is_sealed_before_anybody_sees_it() -> None:
    house = House(SEAL)
    response = await house.ask("one", "Hi", store=False)
    thought = response.output[0]
    assert isinstance(thought, Reasoning)
    assert opened(thought, Envelope(SEAL, "one")) == [
        replace(thought, encrypted_content="signed by one")
    ]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_chain_gives_a_model_its_own_thinking_and_no_other(stored: bool) -> None:
    house = House()
    first = await house.ask("one", "Hi", store=stored)
    chained = {"previous_response_id": first.id, "store": stored}
    await house.ask("one", "And?", **chained)
    await house.ask("other", "And?", **chained)
    own, foreign = house.one.turns[-1].history[1], house.other.turns[-1].history[1]
    assert isinstance(own, Reasoning)
    assert own.encrypted_content == "signed by one"
    assert isinstance(foreign, Reasoning)
    assert foreign.encrypted_content is UNSET
    assert foreign.summary == own.summary


async def test_a_stateless_client_carries_thinking_that_it_cannot_read() -> None:
    house = House()
    first = await house.ask("one", "Hi", store=False)
    thought, message = (jsoned(item) for item in first.output)
    assert isinstance(thought, dict)
    del thought["content"]
    said = [{"role": "user", "content": "Hi"}, thought, message, {"role": "user", "content": "?"}]
    await house.ask("one", said, store=False)
    await house.ask("other", said, store=False)
    read = house.one.turns[-1].input[1]
    assert isinstance(read, Reasoning)
    assert read.encrypted_content == "signed by one"
    assert SECRET in "".join(part.text for part in read.content or [])  # pyright: ignore
    told = encode(house.other.turns[-1].items).decode()
    assert "signed by one" not in told
    assert "raw thinking" not in told


async def test_what_is_stored_stays_sealed() -> None:
    house = House(SEAL)
    sealed = Envelope(SEAL, "").compaction("We met.", "cmp_1")
    response = await house.ask("one", [jsoned(sealed), {"role": "user", "content": "Hi"}])
    context = await house.engine.chain.context(response.id, tenant="", local=None, stored=True)
    assert context.items[0] == sealed
    assert "We met." in encode(house.one.turns[-1].input[0]).decode()
    await house.ask("other", "And?", previous_response_id=response.id)
    assert "We met." in encode(house.other.turns[-1].history[0]).decode()


async def test_a_chain_whose_key_is_lost_says_what_to_blame() -> None:
    house = House(Seal.passing())
    sealed = Envelope(house.engine.seal, "").compaction("We met.", "cmp_1")
    response = await house.ask("one", [jsoned(sealed)])
    house.engine.seal = Seal.passing()
    with pytest.raises(RequestError) as caught:
        await house.ask("one", "And?", previous_response_id=response.id)
    assert caught.value.payload.param == "previous_response_id"


async def test_one_tenant_cannot_open_what_another_carries() -> None:
    house = House()
    sealed = Envelope(house.engine.seal, "", "them").compaction("We met.", "cmp_1")
    request = read_request({"model": "one", "input": [jsoned(sealed)]})
    await house.engine.open(request, caller=Caller("them"))
    with pytest.raises(RequestError) as caught:
        await house.engine.open(request, caller=Caller("us"))
    assert caught.value.payload.param == "input[0].encrypted_content"


async def test_a_sealed_conversation_counts_as_what_it_holds() -> None:
    house = House()
    house.one.window = 60
    sealed = Envelope(house.engine.seal, "").compaction("We met. " * 20, "cmp_1")
    body = {"model": "one", "input": [jsoned(sealed), {"role": "user", "content": "Hi"}]}
    with pytest.raises(RequestError, match="reads at most 60"):
        await house.engine.open(read_request(body))
    house.one.window = 100
    await house.engine.open(read_request(body))
