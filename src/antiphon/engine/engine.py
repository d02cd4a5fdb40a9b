"""From a request to a response: the model is found, the context assembled, the response kept."""

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.agents.agent import Agent
from antiphon.agents.registry import Agents
from antiphon.agents.turn import Turn
from antiphon.core import context
from antiphon.core.errors import RequestError
from antiphon.core.events import Event
from antiphon.core.items import Item, ItemReference
from antiphon.core.output import PREFIX
from antiphon.core.parts import Part
from antiphon.core.request import Request
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.core.value import encode
from antiphon.engine.background import Background
from antiphon.engine.chain import Chain
from antiphon.engine.checks import check, warnings
from antiphon.engine.ids import new_id, padding
from antiphon.engine.keys import Keys
from antiphon.engine.ledger import Ledger
from antiphon.engine.log import Log
from antiphon.engine.recent import Context, Recent
from antiphon.engine.run import Outlet, Run
from antiphon.store.base import TERMINAL, Claim, Cursor, Store, Stored
from antiphon.store.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: whose data it is, and a connection's own memory if there is one."""

    tenant: str = ""
    local: Recent | None = None


ANYONE = Caller()


class KeyTaken(Exception):
    """An idempotency key that came before, and what it led to."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim.response_id)
        self.claim = claim


@dataclass(slots=True)
class Opened:
    """A response that can be made: everything a run needs."""

    agent: Agent
    turn: Turn
    synth: Synth
    ledger: Ledger
    response: Response


class Engine:
    """Everything a response needs to be made: models, memory, a store, ids and a clock."""

    def __init__(
        self,
        agents: Agents,
        *,
        store: Store | None = None,
        recent: Recent | None = None,
        ids: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.time,
        slots: int = 100,
    ) -> None:
        self.agents = agents
        self.store: Store = store or MemoryStore()
        self.chain = Chain(self.store, recent or Recent(64 * 1024 * 1024, 3600))
        self.background = Background(self.store, clock, slots)
        self._keys = Keys()
        self._ids = ids
        self._clock = clock

    async def open(
        self,
        request: Request,
        outlet: Outlet | None = None,
        caller: Caller = ANYONE,
        *,
        key: tuple[str, str] | None = None,
        generate: bool = True,
    ) -> Run:
        """Check a request and begin its response; raises RequestError, StoreError or KeyTaken."""
        opened = await self._prepare(request, caller, generate=generate)
        await self._begin(opened, request, key)

        async def keep(ending: list[Event], response: Response) -> list[Event]:
            self._keys.keep(response)
            return await opened.ledger.end(ending, response)

        model = opened.agent.stream if generate else nothing
        return Run(model, opened.turn, opened.synth, outlet, keep)

    async def submit(
        self, request: Request, caller: Caller = ANYONE, *, key: tuple[str, str] | None = None
    ) -> Response:
        """Begin a response in the background; it is durable when this returns."""
        opened = await self._prepare(request, caller)
        await self._begin(opened, request, key)
        await self.store.append(
            opened.response.id, 0, -1, _encoded(opened.synth.start()), tenant=caller.tenant
        )
        self.background.start(opened.response.id, lambda: self._work(opened, 1))
        return opened.response

    async def _begin(self, opened: Opened, request: Request, key: tuple[str, str] | None) -> None:
        claim = await opened.ledger.begin(opened.response, request, key)
        if key and not request.store:
            claim = self._keys.claim(key, opened.response.id, tenant=opened.ledger.tenant)
        if claim:
            raise KeyTaken(claim)

    async def led_to(self, claim: Claim, tenant: str) -> Response | None:
        """Return the response that an idempotency key led to, if it is still here."""
        stored = await self.find(claim.response_id, tenant)
        return self._keys.find(claim.response_id) if stored is None else stored.response

    async def find(self, id: str, tenant: str = "") -> Stored | None:
        """Return a stored response; one that is being made says so."""
        stored = await self.store.find(id, tenant=tenant)
        if stored and stored.epoch and stored.response.status == "queued":
            begun = replace(stored.response, status="in_progress")
            return replace(stored, response=begun)
        return stored

    async def delete(self, id: str, tenant: str = "") -> bool:
        """Remove a response and everything of it, here and in memory."""
        self.chain.recent.forget(id, tenant=tenant)
        self.background.abandon(id)
        return await self.store.delete(id, tenant=tenant)

    async def cancel(self, id: str, tenant: str = "") -> Response | None:
        """Stop a background response; raises RequestError for any other."""
        stored = await self.find(id, tenant)
        if stored is None:
            return None
        if not stored.response.background:
            raise RequestError(
                "Only background responses can be cancelled. To stop others, close the connection.",
                param="response_id",
                code="not_a_background_response",
            )
        if stored.response.status in TERMINAL:
            return stored.response
        return await self.background.cancel(stored, tenant=tenant)

    async def resubmit(self, request: Request, response: Response, tenant: str) -> None:
        """Take up a response that was queued when the server stopped."""
        opened = await self._prepare(request, Caller(tenant), response=response)
        events = _encoded(opened.synth.start())
        stored = await self.store.find(response.id, tenant=tenant)
        if stored is not None and stored.last < 0:
            await self.store.append(response.id, stored.epoch, -1, events, tenant=tenant)
        self.background.start(response.id, lambda: self._work(opened, len(events) - 1))

    async def _work(self, opened: Opened, last: int) -> None:
        """Make a response in the background."""
        id, tenant = opened.response.id, opened.ledger.tenant
        epoch = await self.store.claim(id, tenant=tenant)
        if epoch is None:
            return
        log = Log(self.store, id, epoch, last, tenant=tenant)

        async def keep(ending: list[Event], response: Response) -> list[Event]:
            await log.end(ending, response)
            opened.ledger.remember(response)
            return []

        run = Run(opened.agent.stream, opened.turn, opened.synth, log, keep)
        run.answering = True
        await log.during(run.drive())

    async def _prepare(
        self,
        request: Request,
        caller: Caller,
        *,
        response: Response | None = None,
        generate: bool = True,
    ) -> Opened:
        check(request)
        agent, entry = self._model(request)
        before = await self._before(request, caller)
        said = [self._identified(item) for item in request.input]
        references = await self._referenced(said, caller.tenant)
        now = int(self._clock())
        response = response or Response.new(request, id=self._ids("resp"), created_at=now)
        items = context.assemble(before.items, said, references.get)
        history = len(before.items)
        fitting = context.fit(items, agent.window, request.truncation)
        if len(fitting) < len(items):
            history = max(0, history - (len(items) - len(fitting)))
        turn = Turn(
            request=request,
            history=fitting[:history],
            input=fitting[history:],
            entry=entry,
            response_id=response.id,
        )
        pad = padding if request.stream_options.include_obfuscation else None
        synth = Synth(response, ids=self._ids, clock=self._clock, pad=pad, silent=not generate)
        for warning in warnings(request):
            synth.feed(warning)
        recent = self.chain.recent if caller.local is None else caller.local
        store = self.store if request.store else None
        ledger = Ledger(store, recent, caller.tenant, before, items[len(before.items) :])
        return Opened(agent, turn, synth, ledger, response)

    def _model(self, request: Request) -> tuple[Agent, str]:
        if found := self.agents.find(request.model or ""):
            return found
        raise RequestError(
            f"The model '{request.model}' does not exist. GET /v1/models lists those that do.",
            type="not_found",
            param="model",
            code="model_not_found",
        )

    async def _before(self, request: Request, caller: Caller) -> Context:
        """Return what was said before this request."""
        if request.previous_response_id:
            return await self.chain.context(
                request.previous_response_id,
                tenant=caller.tenant,
                local=caller.local,
                stored=request.store,
            )
        if request.conversation:
            items = await self.conversation_items(request.conversation.id, caller.tenant)
            return Context().then(items, request.conversation.id)
        return Context()

    async def conversation_items(self, id: str, tenant: str) -> list[Item]:
        """Return all items of a conversation; raises RequestError if there is none."""
        items: list[Item] = []
        after: str | None = None
        while True:
            cursor = Cursor(limit=1000, order="asc", after=after)
            page = await self.store.list_items(id, cursor, tenant=tenant)
            if page is None:
                raise RequestError(
                    f"Conversation '{id}' not found. POST /v1/conversations makes one.",
                    type="not_found",
                    param="conversation",
                    code="conversation_not_found",
                )
            items += page.items
            if not page.has_more:
                return items
            after = str(page.items[-1].id)

    def _identified(self, item: Item) -> Item:
        """Give an item an id if its sender gave it none."""
        return (
            item
            if item.id is not UNSET
            else replace(item, id=self._ids(PREFIX.get(item.type, "item")))
        )

    async def _referenced(self, items: list[Item], tenant: str) -> dict[str, Item]:
        """Look up the items that references name."""
        found: dict[str, Item] = {}
        for item in items:
            if isinstance(item, ItemReference):
                named = await self.store.find_item(item.id, tenant=tenant)
                if named is not None:
                    found[item.id] = named
        return found


async def nothing(turn: Turn) -> AsyncGenerator[Part]:
    """Answer with nothing at all: the model of a turn that only warms up."""
    del turn
    return
    yield


def _encoded(events: list[Event]) -> list[bytes]:
    return [encode(event) for event in events]
