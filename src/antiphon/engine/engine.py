"""From a request to a response: the model is found, the context assembled, the response kept."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from antiphon.adapters.registry import BUILT_IN
from antiphon.agents.turn import Turn
from antiphon.core import context
from antiphon.core.errors import RequestError, StoreError
from antiphon.core.events import Event
from antiphon.core.items import Item, ItemReference
from antiphon.core.manner import PLAIN, Manner
from antiphon.core.request import ENCRYPTED_REASONING, Request
from antiphon.core.response import Response
from antiphon.core.synth import Synth
from antiphon.engine.asked import Asked
from antiphon.engine.attempts import Attempts
from antiphon.engine.background import Background
from antiphon.engine.chain import Chain
from antiphon.engine.checks import check, unanswered, warnings
from antiphon.engine.ids import identified, new_id, padding
from antiphon.engine.keys import Keys
from antiphon.engine.ledger import Ledger
from antiphon.engine.log import Log, patiently
from antiphon.engine.models import Model, Models, Sink
from antiphon.engine.opening import Envelope
from antiphon.engine.recent import Context, Recent
from antiphon.engine.run import Answer, Keeping, Outlet, Run
from antiphon.engine.seal import Seal
from antiphon.store.base import TERMINAL, Claim, ConversationBusy, Cursor, Store, Stored
from antiphon.store.memory import MemoryStore

T = TypeVar("T")


class Caller(Struct, frozen=True):
    """Who asks: whose data it is, and a connection's own memory if there is one."""

    tenant: str = ""
    local: Recent | None = None


ANYONE = Caller()
WHOLE = Cursor(limit=2**31, order="asc")
NEWEST = Cursor(limit=1, order="desc")


class KeyTaken(Exception):
    """An idempotency key that came before, and what it led to."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim.response_id)
        self.claim = claim


class Opened(Struct):
    """A response that can be made: everything a run needs."""

    answer: Answer
    turn: Turn
    synth: Synth
    ledger: Ledger
    response: Response


class Engine:
    """Everything a response needs to be made: models, memory, a store, a seal, ids and a clock."""

    def __init__(  # noqa: PLR0913 - everything meets here
        self,
        models: Models,
        *,
        store: Store | None = None,
        recent: Recent | None = None,
        seal: Seal | None = None,
        ids: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.time,
        slots: int = 100,
    ) -> None:
        self.models = models
        self.store: Store = MemoryStore() if store is None else store
        recent = Recent(64 * 1024 * 1024, 3600) if recent is None else recent  # an empty one counts
        self.chain = Chain(self.store, recent)
        self.background = Background(self.store, clock, slots)
        self.seal = seal or Seal.passing()
        self.locals: WeakSet[Recent] = WeakSet()
        """The memories of open connections."""
        self.unkept: deque[tuple[str, str]] = deque(maxlen=10_000)
        """Responses, by tenant and id, whose end the store would not take; see `upkeep.py`."""
        self._keys = Keys()
        self.ids = ids
        self.clock = clock

    async def open(
        self,
        request: Request,
        outlet: Outlet | None = None,
        caller: Caller = ANYONE,
        *,
        key: tuple[str, str] | None = None,
        generate: bool = True,
        manner: Manner = PLAIN,
    ) -> Run:
        """Check a request and begin its response; raises RequestError, StoreError or KeyTaken."""
        opened = await self._prepare(request, caller, generate=generate, manner=manner)
        await self._begin(opened, request, key)

        id, tenant = opened.response.id, caller.tenant

        def keep(ending: list[Event], response: Response) -> Keeping | None:
            self._keys.keep(response)
            keeping = opened.ledger.end(ending, response)
            return self._or_abandon(keeping, id, tenant) if keeping else None

        async def discard() -> None:
            self._keys.release(id)
            if request.store:
                await self._or_abandon(self.store.delete(id, tenant=tenant), id, tenant)

        answer = opened.answer if generate else nothing
        return Run(answer, opened.turn, opened.synth, outlet, keep, discard)

    async def _or_abandon(self, change: Awaitable[T], id: str, tenant: str) -> T:
        """Wait for the store; a response whose change it would not take is abandoned."""
        try:
            return await change
        except StoreError:
            self.abandon(id, tenant)
            raise

    def abandon(self, id: str, tenant: str = "") -> None:
        """Have a response ended later that was begun and that nobody makes."""
        self.unkept.append((tenant, id))

    async def submit(
        self, request: Request, caller: Caller = ANYONE, *, key: tuple[str, str] | None = None
    ) -> Response:
        """Begin a response in the background; it is durable when this returns."""
        if self.background.full:
            raise RequestError(
                "Too many background responses wait already. Try again when some have ended.",
                type="too_many_requests",
                code="rate_limit_exceeded",
            ).retry_after(1)
        opened = await self._prepare(request, caller)
        await self._begin(opened, request, key)
        self._start(opened, announced=False)
        return opened.response

    async def resubmit(self, request: Request, stored: Stored, tenant: str) -> None:
        """Take up a response that was queued when the server stopped."""
        opened = await self._prepare(request, Caller(tenant), response=stored.response)
        self._start(opened, announced=stored.last >= 0)

    def _start(self, opened: Opened, *, announced: bool) -> None:
        """Announce a response in its log, and make it in the background when it is its turn."""
        id, tenant = opened.response.id, opened.ledger.tenant
        start = opened.synth.start()

        async def announce() -> None:
            if not announced:
                await Log(self.store, id, 0, -1, tenant=tenant).append(start)

        self.background.start(
            id, announce, lambda: self._work(opened, len(start) - 1), tenant=tenant
        )

    async def _begin(self, opened: Opened, request: Request, key: tuple[str, str] | None) -> None:
        try:
            claim = await opened.ledger.begin(opened.response, request, key)
        except ConversationBusy as busy:
            raise conversation_busy() from busy
        except asyncio.CancelledError:
            self.abandon(opened.response.id, opened.ledger.tenant)  # it may yet be committed
            raise
        if key and not request.store:
            claim = self._keys.claim(key, opened.response.id, tenant=opened.ledger.tenant)
        if claim:
            raise KeyTaken(claim)
        if request.conversation and await self._overtaken(opened.ledger, request.conversation.id):
            await self.store.delete(opened.response.id, tenant=opened.ledger.tenant)
            raise conversation_busy()

    async def _overtaken(self, ledger: Ledger, conversation: str) -> bool:
        """Tell whether another response ended in a conversation after its items were read."""
        page = await self.store.list_items(conversation, NEWEST, tenant=ledger.tenant)
        return page is None or page.items != list(ledger.before.items[-1:])

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
        found = await self.store.delete(id, tenant=tenant)
        for memory in (self.chain.recent, *self.locals):
            memory.forget(id, tenant=tenant)
        if found:
            self.background.abandon(id)
        return found

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

    async def _work(self, opened: Opened, last: int) -> None:
        """Make a response in the background."""
        id, tenant = opened.response.id, opened.ledger.tenant
        epoch = await patiently(id, lambda: self.store.claim(id, tenant=tenant))
        if epoch is None:
            return
        log = Log(self.store, id, epoch, last, tenant=tenant)

        async def keep(ending: list[Event], response: Response) -> list[Event]:
            await log.append(ending, response)
            opened.ledger.remember(response)
            return []

        run = Run(opened.answer, opened.turn, opened.synth, log, keep)
        run.answering = True
        await log.during(run.drive())

    async def _prepare(
        self,
        request: Request,
        caller: Caller,
        *,
        response: Response | None = None,
        generate: bool = True,
        manner: Manner = PLAIN,
    ) -> Opened:
        asked, *others = await self.ask_all(request, caller)
        now = int(self.clock())
        response = response or Response.new(request, id=self.ids("resp"), created_at=now)
        attempts = Attempts([asked, *others])
        turn = attempts.turn(response.id)
        pad = padding if request.stream_options.include_obfuscation else None
        manner = replace(manner, pad=pad, seal=attempts.seal)
        synth = Synth(response, ids=self.ids, clock=self.clock, manner=manner, silent=not generate)
        unread = [] if generate else warnings(request)  # or else who answers tells
        for warning in unread + unanswered(asked.unpaired):
            synth.feed(warning)
        recent = self.chain.recent if caller.local is None else caller.local
        store = self.store if request.store else None
        ledger = Ledger(store, recent, caller.tenant, asked.before, asked.said)
        return Opened(attempts.answer, turn, synth, ledger, response)

    async def ask(self, request: Request, caller: Caller = ANYONE) -> Asked:
        """Check a request and assemble what its model reads; raises RequestError or StoreError."""
        return (await self.ask_all(request, caller))[0]

    async def ask_all(self, request: Request, caller: Caller) -> list[Asked]:
        """Do so for every model that may answer, the first one first."""
        check(request)
        models = self._models(request)
        before = await self._before(request, caller)
        said = [identified(item, self.ids) for item in request.input]
        references = await self._referenced(said, caller.tenant)
        items = context.assemble(before.items, said, references.get)
        request = replace(request, input=said)  # whose ids tell where an item came from
        always = ENCRYPTED_REASONING in request.include
        new, unpaired = items[len(before.items) :], context.unpaired(items)
        asked: list[Asked] = []
        for model in models:
            envelope = Envelope(self.seal, model.origin, caller.tenant, always)
            asked.append(Asked(request, model, envelope, before, new, unpaired))
        return asked

    def _models(self, request: Request) -> list[Model]:
        if found := self.models.find(request.model or ""):
            return found
        name = (request.model or "")[:80]
        provider, _, model = name.partition("/")
        advice = "GET /v1/models lists those that do."
        if model and provider in BUILT_IN:
            advice = f"{provider} is not configured: 'antiphon models' says what it needs."
        raise RequestError(
            f"The model '{name}' does not exist. {advice}",
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
            return Context(tuple(items), (request.conversation.id,))
        return Context()

    async def conversation_items(self, id: str, tenant: str) -> list[Item]:
        """Return all items of a conversation; raises RequestError if there is none."""
        page = await self.store.list_items(id, WHOLE, tenant=tenant)
        if page is None:
            raise RequestError(
                f"Conversation '{id[:80]}' not found. POST /v1/conversations makes one.",
                type="not_found",
                param="conversation",
                code="conversation_not_found",
            )
        return page.items

    async def _referenced(self, items: list[Item], tenant: str) -> dict[str, Item]:
        """Look up the items that references name."""
        found: dict[str, Item] = {}
        for item in items:
            if isinstance(item, ItemReference):
                named = await self.store.find_item(item.id, tenant=tenant)
                if named is not None:
                    found[item.id] = named
        return found


def conversation_busy() -> RequestError:
    """Say that a conversation takes one response at a time."""
    return RequestError(
        "Another response is being made in this conversation. Try again when it has ended.",
        param="conversation",
        code="conversation_busy",
        status=409,
    ).retry_after(1)


async def nothing(turn: Turn, sink: Sink) -> None:
    """Answer with nothing at all, as in a turn that only warms up."""
    del turn, sink
