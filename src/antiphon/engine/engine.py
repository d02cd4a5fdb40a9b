"""From a request to a response: check, find the models, assemble the context, store, run.

Foreground responses are `create_run`, background responses are `submit`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar
from weakref import WeakSet, WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.turn import Turn
from antiphon.engine.ask import open_asker
from antiphon.engine.background import Background, EventLog, decode_stored_request, follow_events, retry_store
from antiphon.engine.fallback import Candidate, Fallback
from antiphon.engine.models import EventSink, Model, Models, PartSink
from antiphon.engine.persistence import (
    Context,
    ContextCache,
    HistoryLoader,
    IdempotencyKeys,
    ResponsePersistence,
    ensure_id,
    random_padding,
)
from antiphon.engine.run import MAX_OUTPUT_BYTES, NOT_STORED_ERROR, SERVER_STOPPED_ERROR, PendingCommit, Run
from antiphon.engine.sealing import ItemSealer, KeyRing
from antiphon.engine.validation import check_request, warn_of_unpaired_calls, warn_of_unused_fields
from antiphon.protocol import context
from antiphon.protocol.errors import RequestError, StoreError
from antiphon.protocol.events import Event
from antiphon.protocol.items import ItemReference
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
from antiphon.store.ids import new_id
from antiphon.store.memory import MemoryStore

logger = logging.getLogger("antiphon.engine")

T = TypeVar("T")

MAX_ATTEMPTS = 3
"""How often a background response may be taken from the queue: a model may be what ended the process."""


class Caller(Struct, frozen=True):
    """Who sends a request: the tenant, the context cache of a WebSocket connection, if any, and the request's id."""

    tenant: str = ""
    connection_cache: ContextCache | None = None
    request_id: str = ""


ANONYMOUS = Caller()
ALL_ITEMS = PageCursor(limit=2**31, order="asc")
NEWEST_ITEM = PageCursor(limit=1, order="desc")

ESTIMATED_WARNING = ResponseWarning(
    code="usage_estimated", message="This model does not count tokens; this is an estimate.", param="input_tokens"
)


class IdempotencyKeyTaken(Exception):
    """Raised for an idempotency key that was used before; `claim` names its response."""

    def __init__(self, claim: IdempotencyRecord) -> None:
        super().__init__(claim.response_id)
        self.claim = claim


class Engine:
    """Creates, finds, cancels and deletes responses."""

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
        answer_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        self.answer_bytes = answer_bytes
        self.models = models
        self.store: Store = MemoryStore() if store is None else store
        # `is None`, because an empty cache is false.
        cache = ContextCache(64 * 1024 * 1024, 3600) if cache is None else cache
        self.history = HistoryLoader(self.store, cache)
        self.background = Background(self.store, clock, background_slots)
        self.key_ring = key_ring or KeyRing.ephemeral()
        self.connection_caches: WeakSet[ContextCache] = WeakSet()
        """The caches of open WebSocket connections: a deleted response must leave them too."""
        self.orphans: deque[tuple[str, str]] = deque(maxlen=10_000)
        """Unfinished responses that nobody runs, by tenant and id; see `maintenance.py`."""
        self.foreground: WeakValueDictionary[tuple[str, str], Run] = WeakValueDictionary()
        """The runs of stored foreground responses, by tenant and id, until nobody needs them any more."""
        self._ending: set[str] = set()
        """The foreground responses whose end is being stored."""
        self._queue_lock = asyncio.Lock()
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
        """Check a request, store its response and return the run that produces it.

        Raises RequestError, StoreError or IdempotencyKeyTaken. Without `generate` no model is
        called: the response only loads its context, for those that follow on the connection.
        """
        fallback, synth, persistence = await self._prepare(
            request, caller, generate=generate, synth_options=synth_options
        )
        id, tenant = persistence.response.id, caller.tenant

        def persist_end(events: list[Event], response: Response) -> PendingCommit | None:
            self._idempotency_keys.record_response(response)
            commit = persistence.end(events, response)
            return self._await_store(commit, id, tenant) if commit else None

        async def discard() -> None:
            self._idempotency_keys.release(id)
            if request.store:
                await self._await_store(self.store.delete(id, tenant=tenant), id, tenant)

        answer = fallback.answer if generate else answer_nothing
        run = Run(answer, fallback.turn, synth, sink, persist_end, discard, self.answer_bytes)
        if request.store:
            self.foreground[tenant, id] = run
        # Stored before the model is called: a request whose key is taken must cost no tokens.
        await self._persist_beginning(persistence, request, key)
        return run

    async def _await_store(self, change: Awaitable[T], id: str, tenant: str) -> T:
        """Await a change of the store; if it fails, the response becomes an orphan."""
        self._ending.add(id)
        try:
            return await change
        except StoreError:
            self.add_orphan(id, tenant)
            raise
        finally:
            self._ending.discard(id)

    def is_running(self, id: str, tenant: str = "") -> bool:
        """Tell whether this process makes a stored response."""
        return (tenant, id) in self.foreground or id in self.background or id in self._ending

    async def list_abandoned(self) -> list[tuple[str, StoredResponse]]:
        """Return the unfinished responses that neither this process makes nor another one, with their tenants."""
        async with self._queue_lock:
            foreground, orphans = (id for _, id in self.foreground), (id for _, id in self.orphans)
            return await self.store.take_abandoned([*self.background, *foreground, *self._ending, *orphans])

    def add_orphan(self, id: str, tenant: str = "") -> None:
        """Have maintenance end a stored response that nobody runs."""
        self.orphans.append((tenant, id))

    async def submit(
        self, request: Request, caller: Caller = ANONYMOUS, *, key: tuple[str, str] | None = None
    ) -> Response:
        """Start a background response. It is durable when this returns."""
        if self.background.full:
            message = "Too many background responses wait already. Try again when some have ended."
            error = RequestError(message, type="too_many_requests", code="rate_limit_exceeded")
            raise error.with_retry_after(1)
        fallback, synth, persistence = await self._prepare(request, caller)
        await self._persist_beginning(persistence, request, key)
        self._start_background(fallback, synth, persistence)
        return persistence.response

    async def poll_queue(self) -> None:
        """Stop what this process has lost, and run what waits in the store's queue, as far as there is room."""
        await self.background.stop_lost()
        if room := self.background.room:
            # What is claimed and not yet running must not look abandoned.
            async with self._queue_lock:
                for tenant, stored in await self.store.claim_queued(room):
                    work = partial(self._run_claimed, stored, tenant)
                    self.background.start(stored.response.id, do_nothing, work, tenant=tenant, epoch=stored.epoch)

    def can_repeat(self, stored: StoredResponse) -> bool:
        """Tell whether a response that was begun may be made again: by providers, and agents that allow it."""
        if not stored.request or stored.attempts >= MAX_ATTEMPTS:
            return False
        try:
            models = self.models.find(decode_stored_request(stored).model or "")
        except ValueError:
            return False
        return bool(models) and all(model.idempotent for model in models)

    def _start_background(self, fallback: Fallback, synth: Synth, persistence: ResponsePersistence) -> None:
        """Log the first events at once; run when a slot is free, unless another process has taken it."""
        id, tenant = persistence.response.id, persistence.tenant
        start = synth.start()

        async def announce() -> None:
            await EventLog(self.store, id, 0, -1, tenant=tenant).append(start)

        async def work() -> None:
            epoch = await retry_store(id, lambda: self.store.claim(id, tenant=tenant, queued=True))
            if epoch == 1:
                await self._run_background(fallback, synth, persistence, epoch, len(start) - 1)
            elif epoch and (stored := await retry_store(id, lambda: self.store.find(id, tenant=tenant))):
                await self._run_claimed(stored, tenant)  # another process had it meanwhile

        self.background.start(id, announce, work, tenant=tenant)

    async def _run_claimed(self, stored: StoredResponse, tenant: str) -> None:
        """Run a response of the store's queue, perhaps after a process that was interrupted before its output."""
        id = stored.response.id
        self.background.claims[id] = stored.epoch
        try:
            request = decode_stored_request(stored)
            prepared = await retry_store(id, lambda: self._prepare(request, Caller(tenant), response=stored.response))
        except (RequestError, ValueError) as error:
            logger.warning("%s cannot be run any more: %s", id, error)
            await retry_store(
                id,
                lambda: self.background.end_orphan(stored, SERVER_STOPPED_ERROR, tenant=tenant, expected=stored.epoch),
            )
            return
        _, synth, _ = prepared
        logged = await retry_store(id, lambda: self._read_log(id, tenant))
        if logged:
            synth.resume(logged)
        else:
            logged = synth.start()
            await EventLog(self.store, id, stored.epoch, -1, tenant=tenant).append(logged)
        await self._run_background(*prepared, stored.epoch, logged[-1].sequence_number)

    async def _read_log(self, id: str, tenant: str) -> list[Event]:
        """Return the events that are logged so far."""
        return [event async for batch in follow_events(self.store, id, tenant=tenant, wait=False) for event in batch]

    async def _run_background(
        self, fallback: Fallback, synth: Synth, persistence: ResponsePersistence, epoch: int, last: int
    ) -> None:
        """Run a response that this process has claimed, after the last number in its log."""
        id, tenant = persistence.response.id, persistence.tenant
        self.background.claims[id] = epoch
        log = EventLog(self.store, id, epoch, last, tenant=tenant)

        async def persist_end(events: list[Event], response: Response) -> list[Event]:
            await log.append(events, response)
            persistence.cache_context(response)
            return []  # they are in the log already

        run = Run(fallback.answer, fallback.turn, synth, log, persist_end, max_output=self.answer_bytes)
        run.answering = True  # a background response never becomes an HTTP error
        await log.append_during(run.execute())

    async def _persist_beginning(
        self, persistence: ResponsePersistence, request: Request, key: tuple[str, str] | None
    ) -> None:
        id, tenant = persistence.response.id, persistence.tenant
        try:
            claim = await persistence.begin(request, key)
            if claim and await self._was_interrupted(claim, tenant):
                await self.store.release_key(claim.response_id, tenant=tenant)
                claim = await persistence.begin(request, key)
        except ConversationBusyError as busy:
            raise conversation_busy_error() from busy
        except asyncio.CancelledError:
            self.add_orphan(id, tenant)  # the writer thread may still commit it
            raise
        if key and not request.store:
            claim = self._idempotency_keys.claim(key, id, tenant=tenant)
        if claim:
            raise IdempotencyKeyTaken(claim)
        # The conversation was read before the store locked it for this response.
        if request.conversation:
            page = await self.store.list_items(request.conversation.id, NEWEST_ITEM, tenant=tenant)
            if page is None or page.items != list(persistence.history.items[-1:]):
                await self.store.delete(id, tenant=tenant)
                raise conversation_busy_error()

    async def _was_interrupted(self, claim: IdempotencyRecord, tenant: str) -> bool:
        """Tell whether the server, and not the model, has failed the response of a key: then a retry must run."""
        stored = await self.store.find(claim.response_id, tenant=tenant)
        error = stored and stored.response.error
        return error is not None and error.message in (SERVER_STOPPED_ERROR.message, NOT_STORED_ERROR.message)

    async def find_claimed(self, claim: IdempotencyRecord, tenant: str) -> Response | None:
        """Return the response of an idempotency key, if it still exists."""
        if stored := await self.find(claim.response_id, tenant):
            return stored.response
        return self._idempotency_keys.find_response(claim.response_id)

    async def find(self, id: str, tenant: str = "") -> StoredResponse | None:
        """Return a stored response."""
        stored = await self.store.find(id, tenant=tenant)
        # The row says "queued" until the end; a worker's claim shows that it is in progress.
        if stored and stored.epoch and stored.response.status == "queued":
            return replace(stored, response=replace(stored.response, status="in_progress"))
        return stored

    async def delete(self, id: str, tenant: str = "") -> bool:
        """Delete a stored response from the store and every cache; stop it if it is running."""
        # A response with `store: false` is not found: it cannot be read either, and is forgotten soon.
        if not await self.store.delete(id, tenant=tenant):
            return False
        for cache in (self.history.cache, *self.connection_caches):
            cache.invalidate(id, tenant=tenant)
        self.background.stop(id)
        return True

    async def cancel(self, id: str, tenant: str = "") -> Response | None:
        """Cancel a background response; raises RequestError for any other."""
        stored = await self.find(id, tenant)
        if stored is None:
            return None
        if not stored.response.background:
            message = "Only background responses can be cancelled. To stop others, close the connection."
            raise RequestError(message, param="response_id", code="not_a_background_response")
        if stored.response.status in TERMINAL_STATUSES:
            return stored.response
        return await self.background.cancel(stored, tenant=tenant)

    async def _prepare(
        self,
        request: Request,
        caller: Caller,
        *,
        response: Response | None = None,
        generate: bool = True,
        synth_options: SynthOptions = DEFAULT_OPTIONS,
    ) -> tuple[Fallback, Synth, ResponsePersistence]:
        candidates = await self.prepare_candidates(request, caller)
        first = candidates[0]
        response = response or Response.new(request, id=self.ids("resp"), created_at=int(self.clock()))
        fallback = Fallback(candidates, response.id, partial(open_asker, self, caller, ()))
        pad = random_padding if request.stream_options.include_obfuscation else None
        synth = Synth(
            response,
            ids=self.ids,
            clock=self.clock,
            options=replace(synth_options, obfuscate=pad, seal=fallback.seal_item),
            allow_no_output=not generate,
        )
        # With a model, the fallback warns of unused fields: the adapter knows which are used.
        warnings = [] if generate else warn_of_unused_fields(request)
        if warnings := warnings + warn_of_unpaired_calls(first.unpaired_call_ids):
            synth.feed_all(warnings)
        persistence = ResponsePersistence(
            response=response,
            store=self.store if request.store else None,
            cache=self.history.cache if caller.connection_cache is None else caller.connection_cache,
            tenant=caller.tenant,
            history=first.history,
            new_items=first.new_items,
        )
        return fallback, synth, persistence

    async def prepare_candidates(self, request: Request, caller: Caller) -> list[Candidate]:
        """Check a request; return its models in order, with their context. Raises RequestError or StoreError."""
        # The cheap checks come first: an invalid request never touches the store.
        check_request(request)
        models = self._find_models(request)
        history = await self._load_history(request, caller)
        input = [ensure_id(item, self.ids) for item in request.input]
        references = [item.id for item in input if isinstance(item, ItemReference)]
        referenced = {id: await self.store.find_item(id, tenant=caller.tenant) for id in references}
        items = context.assemble(history.items, input, referenced.get)
        # With the ids, an adapter can name the index of an item that it cannot encode.
        request = replace(request, input=input)
        new_items, unpaired = items[len(history.items) :], context.find_unpaired_call_ids(items)
        seal_all = INCLUDE_ENCRYPTED_REASONING in request.include
        ring, tenant = self.key_ring, caller.tenant
        return [
            Candidate(
                request,
                model,
                ItemSealer(ring, model.origin, tenant, seal_all),
                history,
                new_items,
                unpaired,
                caller.request_id,
            )
            for model in models
        ]

    async def count_input_tokens(self, request: Request, caller: Caller = ANONYMOUS) -> InputTokens:
        """Count the tokens that a request's model would read; raises RequestError or StoreError.

        Input that exceeds the window is counted as a whole, unless `truncation` is "auto".
        """
        candidate = (await self.prepare_candidates(request, caller))[0]
        turn = candidate.build_turn(truncate=request.truncation == "auto")
        count = await candidate.model.count(turn)
        if count is not None:
            return InputTokens(input_tokens=count)
        estimate = context.estimate_prompt(turn.instructions, turn.tools, turn.items)
        return InputTokens(input_tokens=estimate, warnings=[ESTIMATED_WARNING])

    def _find_models(self, request: Request) -> list[Model]:
        if found := self.models.find(request.model or ""):
            return found
        raise self.models.unknown_model_error(request.model or "")

    async def _load_history(self, request: Request, caller: Caller) -> Context:
        if request.previous_response_id:
            return await self.history.load(
                request.previous_response_id,
                tenant=caller.tenant,
                connection_cache=caller.connection_cache,
                will_store=request.store,
            )
        if request.conversation:
            id = request.conversation.id
            page = await self.store.list_items(id, ALL_ITEMS, tenant=caller.tenant)
            if page is None:
                message = f"Conversation '{id[:80]}' not found. POST /v1/conversations makes one."
                raise RequestError(message, type="not_found", param="conversation", code="conversation_not_found")
            return Context(tuple(page.items), (id,))
        return Context()


def conversation_busy_error() -> RequestError:
    """Return the error for a second response at once in a conversation."""
    message = "Another response is being made in this conversation. Try again when it has ended."
    return RequestError(message, param="conversation", code="conversation_busy", status=409).with_retry_after(1)


async def do_nothing() -> None:
    """Do nothing: a response of the queue was announced before."""


async def answer_nothing(turn: Turn, sink: PartSink) -> None:
    """Answer without any output, as `generate: false` asks."""
    del turn, sink
