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
from antiphon.engine.background import Background
from antiphon.engine.encryption import KeyRing
from antiphon.engine.event_log import EventLog, retry_store
from antiphon.engine.fallback import Candidate, Fallback
from antiphon.engine.history import Context, ContextCache, HistoryLoader
from antiphon.engine.ids import ensure_id, new_id, random_padding
from antiphon.engine.models import Model, Models, PartSink
from antiphon.engine.persistence import IdempotencyKeys, ResponsePersistence
from antiphon.engine.run import (
    AnswerFunction,
    EventSink,
    PendingCommit,
    Run,
)
from antiphon.engine.sealing import ItemSealer
from antiphon.engine.validation import (
    check_request,
    unanswered_call_warnings,
    unused_field_warnings,
)
from antiphon.protocol import context, token_estimate
from antiphon.protocol.errors import RequestError, StoreError
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item, ItemReference
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING, Request
from antiphon.protocol.response import InputTokens, Response, ResponseWarning
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import DEFAULT_OPTIONS, SynthOptions
from antiphon.store.base import (
    TERMINAL_STATUSES,
    ConversationBusyError,
    IdempotencyRecord,
    PageCursor,
    Store,
    StoredResponse,
)
from antiphon.store.memory import MemoryStore

T = TypeVar("T")


class Caller(Struct, frozen=True):
    """Who asks: whose data it is, and a connection's own memory if there is one."""

    tenant: str = ""
    connection_cache: ContextCache | None = None


ANONYMOUS = Caller()
ALL_ITEMS = PageCursor(limit=2**31, order="asc")
NEWEST_ITEM = PageCursor(limit=1, order="desc")


class IdempotencyKeyTaken(Exception):
    """An idempotency key that came before, and what it led to."""

    def __init__(self, claim: IdempotencyRecord) -> None:
        super().__init__(claim.response_id)
        self.claim = claim


class PreparedResponse(Struct):
    """A response that can be made: everything a run needs."""

    answer: AnswerFunction
    turn: Turn
    synth: Synth
    persistence: ResponsePersistence
    response: Response


class Engine:
    """Everything a response needs to be made: models, memory, a store, a seal, ids and a clock."""

    def __init__(  # noqa: PLR0913 - everything meets here
        self,
        models: Models,
        *,
        store: Store | None = None,
        cache: ContextCache | None = None,
        key_ring: KeyRing | None = None,
        ids: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.time,
        background_slots: int = 100,
    ) -> None:
        self.models = models
        self.store: Store = MemoryStore() if store is None else store
        cache = (
            ContextCache(64 * 1024 * 1024, 3600) if cache is None else cache
        )  # an empty one counts
        self.history = HistoryLoader(self.store, cache)
        self.background = Background(self.store, clock, background_slots)
        self.key_ring = key_ring or KeyRing.ephemeral()
        self.connection_caches: WeakSet[ContextCache] = WeakSet()
        """The memories of open connections."""
        self.orphans: deque[tuple[str, str]] = deque(maxlen=10_000)
        """Responses, by tenant and id, whose end the store would not take; see `upkeep.py`."""
        self._idempotency_keys = IdempotencyKeys()
        self.ids = ids
        self.clock = clock

    async def create_run(
        self,
        request: Request,
        sink: EventSink | None = None,
        caller: Caller = ANONYMOUS,
        *,
        key: tuple[str, str] | None = None,
        generate: bool = True,
        synth_options: SynthOptions = DEFAULT_OPTIONS,
    ) -> Run:
        """Check a request and begin its response; raises RequestError, StoreError or KeyTaken."""
        opened = await self._prepare(
            request, caller, generate=generate, synth_options=synth_options
        )
        await self._persist_beginning(opened, request, key)

        id, tenant = opened.response.id, caller.tenant

        def keep(ending: list[Event], response: Response) -> PendingCommit | None:
            self._idempotency_keys.record_response(response)
            keeping = opened.persistence.end(ending, response)
            return self._await_store(keeping, id, tenant) if keeping else None

        async def discard() -> None:
            self._idempotency_keys.release(id)
            if request.store:
                await self._await_store(self.store.delete(id, tenant=tenant), id, tenant)

        answer = opened.answer if generate else answer_nothing
        return Run(answer, opened.turn, opened.synth, sink, keep, discard)

    async def _await_store(self, change: Awaitable[T], id: str, tenant: str) -> T:
        """Wait for the store; a response whose change it would not take is abandoned."""
        try:
            return await change
        except StoreError:
            self.add_orphan(id, tenant)
            raise

    def add_orphan(self, id: str, tenant: str = "") -> None:
        """Have a response ended later that was begun and that nobody makes."""
        self.orphans.append((tenant, id))

    async def submit(
        self, request: Request, caller: Caller = ANONYMOUS, *, key: tuple[str, str] | None = None
    ) -> Response:
        """Begin a response in the background; it is durable when this returns."""
        if self.background.full:
            raise RequestError(
                "Too many background responses wait already. Try again when some have ended.",
                type="too_many_requests",
                code="rate_limit_exceeded",
            ).with_retry_after(1)
        opened = await self._prepare(request, caller)
        await self._persist_beginning(opened, request, key)
        self._start_background(opened, announced=False)
        return opened.response

    async def resubmit(self, request: Request, stored: StoredResponse, tenant: str) -> None:
        """Take up a response that was queued when the server stopped."""
        opened = await self._prepare(request, Caller(tenant), response=stored.response)
        self._start_background(opened, announced=stored.last_sequence >= 0)

    def _start_background(self, prepared: PreparedResponse, *, announced: bool) -> None:
        """Announce a response in its log, and make it in the background when it is its turn."""
        id, tenant = prepared.response.id, prepared.persistence.tenant
        start = prepared.synth.start()

        async def announce() -> None:
            if not announced:
                await EventLog(self.store, id, 0, -1, tenant=tenant).append(start)

        self.background.start(
            id, announce, lambda: self._run_background(prepared, len(start) - 1), tenant=tenant
        )

    async def _persist_beginning(
        self, prepared: PreparedResponse, request: Request, key: tuple[str, str] | None
    ) -> None:
        try:
            claim = await prepared.persistence.begin(prepared.response, request, key)
        except ConversationBusyError as busy:
            raise conversation_busy_error() from busy
        except asyncio.CancelledError:
            self.add_orphan(
                prepared.response.id, prepared.persistence.tenant
            )  # it may yet be committed
            raise
        if key and not request.store:
            claim = self._idempotency_keys.claim(
                key, prepared.response.id, tenant=prepared.persistence.tenant
            )
        if claim:
            raise IdempotencyKeyTaken(claim)
        if request.conversation and await self._conversation_changed(
            prepared.persistence, request.conversation.id
        ):
            await self.store.delete(prepared.response.id, tenant=prepared.persistence.tenant)
            raise conversation_busy_error()

    async def _conversation_changed(
        self, persistence: ResponsePersistence, conversation: str
    ) -> bool:
        """Tell whether another response ended in a conversation after its items were read."""
        page = await self.store.list_items(conversation, NEWEST_ITEM, tenant=persistence.tenant)
        return page is None or page.items != list(persistence.history.items[-1:])

    async def find_claimed(self, claim: IdempotencyRecord, tenant: str) -> Response | None:
        """Return the response that an idempotency key led to, if it is still here."""
        stored = await self.find(claim.response_id, tenant)
        return (
            self._idempotency_keys.find_response(claim.response_id)
            if stored is None
            else stored.response
        )

    async def find(self, id: str, tenant: str = "") -> StoredResponse | None:
        """Return a stored response; one that is being made says so."""
        stored = await self.store.find(id, tenant=tenant)
        if stored and stored.epoch and stored.response.status == "queued":
            begun = replace(stored.response, status="in_progress")
            return replace(stored, response=begun)
        return stored

    async def delete(self, id: str, tenant: str = "") -> bool:
        """Remove a response and everything of it, here and in memory."""
        found = await self.store.delete(id, tenant=tenant)
        for memory in (self.history.cache, *self.connection_caches):
            memory.invalidate(id, tenant=tenant)
        if found:
            self.background.stop(id)
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
        if stored.response.status in TERMINAL_STATUSES:
            return stored.response
        return await self.background.cancel(stored, tenant=tenant)

    async def _run_background(self, prepared: PreparedResponse, last: int) -> None:
        """Make a response in the background."""
        id, tenant = prepared.response.id, prepared.persistence.tenant
        epoch = await retry_store(id, lambda: self.store.claim(id, tenant=tenant))
        if epoch is None:
            return
        log = EventLog(self.store, id, epoch, last, tenant=tenant)

        async def keep(ending: list[Event], response: Response) -> list[Event]:
            await log.append(ending, response)
            prepared.persistence.cache_context(response)
            return []

        run = Run(prepared.answer, prepared.turn, prepared.synth, log, keep)
        run.answering = True
        await log.append_during(run.execute())

    async def _prepare(
        self,
        request: Request,
        caller: Caller,
        *,
        response: Response | None = None,
        generate: bool = True,
        synth_options: SynthOptions = DEFAULT_OPTIONS,
    ) -> PreparedResponse:
        asked, *others = await self.prepare_candidates(request, caller)
        now = int(self.clock())
        response = response or Response.new(request, id=self.ids("resp"), created_at=now)
        attempts = Fallback([asked, *others])
        turn = attempts.build_turn(response.id)
        pad = random_padding if request.stream_options.include_obfuscation else None
        synth_options = replace(synth_options, obfuscate=pad, seal=attempts.seal_item)
        synth = Synth(
            response,
            ids=self.ids,
            clock=self.clock,
            options=synth_options,
            allow_no_output=not generate,
        )
        unread = [] if generate else unused_field_warnings(request)  # or else who answers tells
        for warning in unread + unanswered_call_warnings(asked.unpaired_call_ids):
            synth.feed(warning)
        recent = self.history.cache if caller.connection_cache is None else caller.connection_cache
        store = self.store if request.store else None
        ledger = ResponsePersistence(store, recent, caller.tenant, asked.history, asked.new_items)
        return PreparedResponse(attempts.answer, turn, synth, ledger, response)

    async def prepare_candidate(self, request: Request, caller: Caller = ANONYMOUS) -> Candidate:
        """Check a request and assemble what its model reads; raises RequestError or StoreError."""
        return (await self.prepare_candidates(request, caller))[0]

    async def prepare_candidates(self, request: Request, caller: Caller) -> list[Candidate]:
        """Do so for every model that may answer, the first one first."""
        check_request(request)
        models = self._find_models(request)
        before = await self._load_history(request, caller)
        said = [ensure_id(item, self.ids) for item in request.input]
        references = await self._find_referenced_items(said, caller.tenant)
        items = context.assemble(before.items, said, references.get)
        request = replace(request, input=said)  # whose ids tell where an item came from
        always = INCLUDE_ENCRYPTED_REASONING in request.include
        new, unpaired = items[len(before.items) :], context.find_unpaired_call_ids(items)
        asked: list[Candidate] = []
        for model in models:
            envelope = ItemSealer(self.key_ring, model.origin, caller.tenant, always)
            asked.append(Candidate(request, model, envelope, before, new, unpaired))
        return asked

    def _find_models(self, request: Request) -> list[Model]:
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

    async def _load_history(self, request: Request, caller: Caller) -> Context:
        """Return what was said before this request."""
        if request.previous_response_id:
            return await self.history.load(
                request.previous_response_id,
                tenant=caller.tenant,
                connection_cache=caller.connection_cache,
                will_store=request.store,
            )
        if request.conversation:
            items = await self.conversation_items(request.conversation.id, caller.tenant)
            return Context(tuple(items), (request.conversation.id,))
        return Context()

    async def conversation_items(self, id: str, tenant: str) -> list[Item]:
        """Return all items of a conversation; raises RequestError if there is none."""
        page = await self.store.list_items(id, ALL_ITEMS, tenant=tenant)
        if page is None:
            raise RequestError(
                f"Conversation '{id[:80]}' not found. POST /v1/conversations makes one.",
                type="not_found",
                param="conversation",
                code="conversation_not_found",
            )
        return page.items

    async def _find_referenced_items(self, items: list[Item], tenant: str) -> dict[str, Item]:
        """Look up the items that references name."""
        found: dict[str, Item] = {}
        for item in items:
            if isinstance(item, ItemReference):
                named = await self.store.find_item(item.id, tenant=tenant)
                if named is not None:
                    found[item.id] = named
        return found


def conversation_busy_error() -> RequestError:
    """Say that a conversation takes one response at a time."""
    return RequestError(
        "Another response is being made in this conversation. Try again when it has ended.",
        param="conversation",
        code="conversation_busy",
        status=409,
    ).with_retry_after(1)


async def answer_nothing(turn: Turn, sink: PartSink) -> None:
    """Answer with nothing at all, as in a turn that only warms up."""
    del turn, sink


ESTIMATED_WARNING = ResponseWarning(
    code="usage_estimated",
    message="This model does not count tokens; this is an estimate.",
    param="input_tokens",
)


async def count_input_tokens(
    engine: Engine, request: Request, caller: Caller = ANONYMOUS
) -> InputTokens:
    """Count what a request's model would read; raises RequestError or StoreError.

    What is too long is counted all the same, unless the request says that it is to be cut.
    """
    asked = await engine.prepare_candidate(request, caller)
    turn = asked.build_turn(truncate=request.truncation == "auto")
    counted = await asked.model.count(turn)
    if counted is not None:
        return InputTokens(input_tokens=counted)
    estimate = token_estimate.estimate_prompt(turn.instructions, turn.tools, turn.items)
    return InputTokens(input_tokens=estimate, warnings=[ESTIMATED_WARNING])
