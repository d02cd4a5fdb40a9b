"""After any sequence of operations, the SQLite store, the PostgreSQL store and the memory store agree."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from antiphon.protocol.errors import RequestError, StoreError
from antiphon.protocol.response import ResponseStatus
from antiphon.store.base import Store, StoredConversation
from antiphon.store.lists import ListFilter, ResponseFilter
from antiphon.store.memory import MemoryStore
from antiphon.store.pagination import Order, PageCursor
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore
from tests.postgres_server import create_database, drop_database
from tests.store.builders import NOW, assistant_message, ended_response, make_events, new_response, user_message

RANDOM = re.compile("[0-9a-f]{48}")
RESPONSES = [f"r{n}" for n in range(6)]
CONVERSATIONS = ["c0", "c1"]
IDS = st.sampled_from(RESPONSES)
CONVERSATION_IDS = st.sampled_from(CONVERSATIONS)
TENANTS = st.sampled_from(["", "", "", "t"])
TIMES = st.integers(NOW, NOW + 3)
STATUSES: st.SearchStrategy[ResponseStatus] = st.sampled_from(["completed", "failed", "incomplete", "cancelled"])
ITEM_IDS = st.sampled_from(["i0", "i1", "i2", "i3", "r0_out", "r1_out"])
INPUTS = st.lists(ITEM_IDS.map(user_message), max_size=3)
ORDERS: st.SearchStrategy[Order] = st.sampled_from(["asc", "desc"])
CURSORS = st.builds(PageCursor, st.integers(1, 4), ORDERS, after=st.none() | ITEM_IDS, before=st.none() | ITEM_IDS)

SEARCHES = st.sampled_from(["HELLO", "hi", "text", "r0"])
FILTERS = st.just(ResponseFilter()) | st.builds(
    ResponseFilter,
    created_after=st.none() | st.just(NOW - 1),
    search=st.none() | SEARCHES,
    status=st.none() | STATUSES,
    previous_response_id=st.none() | IDS,
    conversation=st.none() | CONVERSATION_IDS,
)

Operation = Callable[[Store], Awaitable[object]]


class StoresAgree(RuleBasedStateMachine):
    """The memory store and another one, with the same operations."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = MemoryStore(clock=lambda: NOW)
        self.create_empty()
        self.other = self.runner.run(self.open_other())

    def create_empty(self) -> None:
        """Create the place of the other store."""
        raise NotImplementedError

    async def open_other(self) -> Store:
        """Open the other store at that place."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Close the stores."""
        self.runner.run(self.other.close())
        self.runner.close()

    def run_on_both(self, operation: Operation) -> None:
        """Run an operation on both stores, and compare the results."""

        async def outcome(store: Store) -> object:
            try:
                return await operation(store)
            except (RequestError, StoreError) as error:
                return type(error)

        async def outcomes() -> tuple[object, object]:
            return await outcome(self.memory), await outcome(self.other)

        memory, other = self.runner.run(outcomes())
        # Each store gives its own random id to an item that repeats one.
        assert RANDOM.sub("…", repr(memory)) == RANDOM.sub("…", repr(other))

    @initialize()
    def create_conversation(self) -> None:
        """Create a conversation."""
        talk = StoredConversation(id="c0", created_at=NOW, metadata={})
        self.run_on_both(lambda store: store.save_conversation(talk))

    @rule(
        id=IDS,
        parent=st.none() | IDS,
        input=INPUTS,
        tenant=TENANTS,
        talk=st.none() | CONVERSATION_IDS,
        key=st.none() | st.tuples(st.sampled_from("kl"), st.just("print")),
    )
    def begin(self, id, parent, input, tenant, talk, key) -> None:
        response = new_response(id, parent)
        self.run_on_both(lambda store: store.begin(response, input, tenant=tenant, conversation=talk, key=key))

    @rule(id=IDS, tenant=TENANTS, status=STATUSES, at=st.none() | TIMES)
    def end(self, id, tenant, status, at) -> None:
        async def operation(store: Store) -> object:
            found = await store.find(id, tenant=tenant)
            response = found.response if found else new_response(id)
            final = ended_response(response, assistant_message(f"{id}_out"), status=status, at=at)
            return await store.end(final, tenant=tenant)

        self.run_on_both(operation)

    @rule(id=IDS, tenant=TENANTS)
    def claim(self, id, tenant) -> None:
        self.run_on_both(lambda store: store.claim(id, tenant=tenant))

    @rule(
        id=IDS,
        tenant=TENANTS,
        wrong=st.sampled_from([(0, 0)] * 6 + [(1, 0), (0, 1), (-1, 0), (0, -1)]),
        count=st.integers(0, 4),
        status=st.none() | STATUSES,
        at=TIMES,
    )
    def append(self, id, tenant, wrong, count, status, at) -> None:
        async def operation(store: Store) -> object:
            found = await store.find(id, tenant=tenant)
            epoch, after = (found.epoch, found.last_sequence) if found else (0, -1)
            final = found and status and ended_response(found.response, assistant_message(f"{id}_out"), at=at)
            return await store.append(
                id,
                epoch + wrong[0],
                after + wrong[1],
                make_events(after + 1, count),
                final=final or None,
                tenant=tenant,
            )

        self.run_on_both(operation)

    @rule(id=IDS, tenant=TENANTS)
    def delete(self, id, tenant) -> None:
        self.run_on_both(lambda store: store.delete(id, tenant=tenant))

    @rule(responses=TIMES, logs=TIMES, limit=st.integers(20, 500))
    def sweep(self, responses, logs, limit) -> None:
        async def operation(store: Store) -> object:
            bounds = {"responses_before": responses, "events_before": logs}
            total = 0
            while went := await store.sweep(**bounds, limit=limit):
                total += went
            return total

        self.run_on_both(operation)

    @rule(id=CONVERSATION_IDS, tenant=TENANTS, items=INPUTS)
    def add_items(self, id, tenant, items) -> None:
        self.run_on_both(lambda store: store.add_items(id, items, tenant=tenant))

    @rule(id=CONVERSATION_IDS, tenant=TENANTS, metadata=st.dictionaries(st.sampled_from("ab"), st.text("xy")))
    def save_conversation(self, id, tenant, metadata) -> None:
        talk = StoredConversation(id=id, created_at=NOW, metadata=metadata)
        self.run_on_both(lambda store: store.save_conversation(talk, tenant=tenant))

    @rule(id=CONVERSATION_IDS, item=ITEM_IDS, tenant=TENANTS)
    def delete_item(self, id, item, tenant) -> None:
        self.run_on_both(lambda store: store.delete_item(id, item, tenant=tenant))

    @rule(id=CONVERSATION_IDS, tenant=TENANTS)
    def delete_conversation(self, id, tenant) -> None:
        self.run_on_both(lambda store: store.delete_conversation(id, tenant=tenant))

    @rule()
    def reopen(self) -> None:
        """Reopen the other store."""
        self.runner.run(self.other.close())
        self.other = self.runner.run(self.open_other())

    @rule(
        order=ORDERS,
        limit=st.integers(1, 4),
        after=st.none() | IDS,
        before=st.none() | IDS,
        tenant=TENANTS,
        filter=FILTERS,
    )
    def list_responses(self, order, limit, after, before, tenant, filter) -> None:
        cursor = PageCursor(limit, order, after=after, before=before)
        self.run_on_both(lambda store: store.list_responses(cursor, filter, tenant=tenant))

    @rule(cursor=CURSORS, tenant=TENANTS, search=st.none() | SEARCHES)
    def list_conversations(self, cursor, tenant, search) -> None:
        self.run_on_both(lambda store: store.list_conversations(cursor, ListFilter(search=search), tenant=tenant))

    @rule(tenant=TENANTS, cursor=CURSORS)
    def compare(self, tenant, cursor) -> None:
        """Compare everything that can be read."""
        self.run_on_both(lambda store: store.list_unfinished())
        for id in RESPONSES:
            self.run_on_both(partial(self.read_response, id, tenant))
            self.run_on_both(lambda store, r=id: store.list_input_items(r, cursor, tenant=tenant))
        for talk in CONVERSATIONS:
            self.run_on_both(lambda store, talk=talk: store.find_conversation(talk, tenant=tenant))
            self.run_on_both(lambda store, talk=talk: store.list_items(talk, cursor, tenant=tenant))

    async def read_response(self, id: str, tenant: str, store: Store) -> object:
        """Return everything that can be read of a response."""
        return [
            await store.find(id, tenant=tenant),
            await store.read_history(id, tenant=tenant),
            await store.read(id, -1, tenant=tenant),
            await store.read(id, 1, limit=2, tenant=tenant),
        ]


class SqliteAgrees(StoresAgree):
    """The memory store and the SQLite store."""

    def create_empty(self) -> None:
        self.folder = tempfile.mkdtemp()

    async def open_other(self) -> Store:
        return SqliteStore(self.folder, clock=lambda: NOW)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class PostgresAgrees(StoresAgree):
    """The memory store and the PostgreSQL store."""

    def create_empty(self) -> None:
        self.url = create_database()

    async def open_other(self) -> Store:
        store = PostgresStore(self.url, clock=lambda: NOW)
        await store.open()
        return store

    @rule()
    def reopen(self) -> None:
        """Do nothing: a process that comes back has another id, and must claim a response before it appends."""

    def teardown(self) -> None:
        super().teardown()
        drop_database(self.url)


def choose_settings(examples: int) -> settings:
    """Return the settings of a comparison."""
    checks = [HealthCheck.too_slow]
    return settings(max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=checks)


TestSqliteAgrees, TestPostgresAgrees = SqliteAgrees.TestCase, PostgresAgrees.TestCase
TestSqliteAgrees.settings = choose_settings(25)
TestPostgresAgrees.settings = choose_settings(25)
