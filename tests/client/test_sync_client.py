"""The synchronous client, with and without a running event loop."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from antiphon.client.sync_client import Client
from antiphon.protocol.checker import find_violations
from antiphon.protocol.errors import AntiphonError, RemoteProtocolError, RequestError, UpstreamError
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.fold import fold
from antiphon.protocol.items import Message, user_message
from tests.client.client_factory import encode_sse
from tests.client.test_async_client import HELLO, NUMBERS
from tests.client.test_http_stream import ENDLESS_STREAM
from tests.http_client import WAIT, wait_until
from tests.protocol.broken_streams import RULE_BREAKS
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer


@pytest.fixture(params=["/v1", "/openai/v1"])
def client(request: pytest.FixtureRequest, server: str) -> Iterator[Client]:
    """A strict client, at each door."""
    with Client(server + request.param, strict=True, retries=0) as client:
        yield client


def test_a_response_is_created_retrieved_and_deleted(client: Client):
    made = client.create(model="demo", input="Hi!")
    assert (made.status, made.output_text) == ("completed", HELLO)
    assert client.retrieve(made.id) == made
    client.delete(made.id)
    with pytest.raises(UpstreamError) as caught:
        client.retrieve(made.id)
    assert (caught.value.status, caught.value.payload.code) == (404, "response_not_found")


def test_a_stream_can_be_read_as_events_text_batches_or_a_response(client: Client):
    with client.stream(model="demo", input="Hi!") as stream:
        events = list(stream)
        assert find_violations(events) == []
        assert stream.response == fold(events) == stream.final()
    assert "".join(client.stream(model="demo", input="Hi!").text) == HELLO
    assert client.stream(model="demo", input="Hi!").final().output_text == HELLO
    batches = list(client.stream(model="demo", input="Hi!").batches())
    assert sum(map(len, batches)) == len(events)
    with client.stream(model="demo", input="Hi!") as stream:
        assert sum(map(len, stream.batches())) == len(events)


def test_inside_with_a_loop_can_be_left_and_continued(client: Client):
    with client.stream(model="demo", input="Hi!") as stream:
        first = []
        for event in stream:
            first.append(event)
            if isinstance(event, OutputTextDelta):
                break
        rest = list(stream)
    assert [event.sequence_number for event in first + rest] == list(range(len(first + rest)))


def test_a_background_response_is_resumed_and_cancelled(client: Client):
    created = client.create(model="demo", input="SLOW", background=True)
    assert client.cancel(created.id).status == "cancelled"
    events = list(client.resume(created.id))
    assert fold(events).status == "cancelled"
    assert list(client.resume(created.id, starting_after=0)) == events[1:]


def test_conversations_and_input_items_read_all_pages(client: Client):
    made = client.create(model="demo", input=NUMBERS)
    items = list(client.input_items(made.id))
    assert [item.text for item in items if isinstance(item, Message)] == [f"Number {n}." for n in range(7)]
    conversations = client.conversations
    talk = conversations.create(items=[user_message("one")])
    (added,) = conversations.add(talk.id, "two")
    assert len(list(conversations.items(talk.id))) == 2
    assert conversations.delete_item(talk.id, str(added.id)) == conversations.retrieve(talk.id)
    assert conversations.update(talk.id, metadata={"a": "b"}).metadata == {"a": "b"}
    conversations.delete(talk.id)
    with pytest.raises(UpstreamError):
        conversations.retrieve(talk.id)


def test_the_remaining_methods_work(client: Client):
    assert client.models() == ["demo", "echo"]
    assert client.input_tokens(model="demo", input="one two").input_tokens == 2
    assert client.compact(model="demo", input=NUMBERS).output[-1].type == "compaction"
    with client.connect() as session:
        assert not session.closed
        final = session.stream(model="demo", input="Hi!", store=False).final()
        texts = session.stream(model="echo", input="one two", store=False, lane="a").text
        assert (final.output_text, "".join(texts)) == (HELLO, "one two")
        lane = session.lane("b")
        assert lane.stream(model="echo", input="three", store=False).final().output_text == "three"
    assert session.closed


def test_it_works_inside_a_running_event_loop(server: str):
    async def notebook() -> str:
        with Client(f"{server}/v1") as client:
            return "".join(client.stream(model="demo", input="Hi!").text)

    assert asyncio.run(notebook()) == HELLO


def test_threads_can_share_a_client(server: str):
    with Client(f"{server}/v1") as client, ThreadPoolExecutor(8) as threads:

        def ask(number: int) -> str:
            return "".join(client.stream(model="echo", input=f"say {number}").text)

        assert list(threads.map(ask, range(40))) == [f"say {n}" for n in range(40)]


def test_a_call_in_the_clients_own_thread_raises(server: str):
    with Client(f"{server}/v1") as client:

        async def inside() -> list[str]:
            return client.models()

        with pytest.raises(AntiphonError, match="Use AsyncClient here"):
            client.loop_thread.run(inside())


def test_its_thread_ends_when_it_is_closed_or_collected(server: str):
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    with Client(f"{server}/v1") as client:
        assert "antiphon-client" not in names()
        client.models()
        assert "antiphon-client" in names()
    assert "antiphon-client" not in names()
    forgotten = Client(f"{server}/v1")
    with pytest.raises(RequestError):
        forgotten.retrieve("")
    del forgotten
    gc.collect()
    assert "antiphon-client" not in names()


def test_a_closed_client_can_be_used_again(server: str):
    client = Client(f"{server}/v1")
    for _ in range(2):
        assert client.models() == ["demo", "echo"]
        client.close()


def test_a_client_collected_in_its_own_thread_ends_that_thread(server: str):
    held = [Client(f"{server}/v1")]
    loop = held[0].loop_thread._ensure_started()
    (thread,) = (t for t in threading.enumerate() if t.name == "antiphon-client")
    loop.call_soon_threadsafe(held.clear)
    thread.join(WAIT)
    assert not thread.is_alive()


FORKED = """
client.models()
child = os.fork()
if not child:
    assert client.models() == ["demo", "echo"]
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert client.models() == ["demo", "echo"]
client.close()
"""

AT_EXIT = """
atexit.register(lambda: print(client.models()))
atexit.register(client.close)
client.models()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("program", [FORKED, AT_EXIT], ids=["forked", "at exit"])
def test_it_works_after_a_fork_and_in_atexit_functions(server: str, program: str):
    begin = f"import atexit, os, sys; from antiphon import Client; client = Client('{server}/v1')"
    run = [sys.executable, "-c", begin + program]
    done = subprocess.run(run, capture_output=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_exceptions_are_raised_in_the_callers_thread():
    with (
        scripted_upstream(sse_answer(encode_sse(RULE_BREAKS["id-stable"]))) as server,
        Client(server.url, strict=True) as client,
    ):
        with pytest.raises(RemoteProtocolError, match=r"\[id-stable\]$"):
            client.stream(model="m").final()
        with pytest.raises(RequestError):
            client.create(stream=True)  # type: ignore[call-arg]
        server.play(json_answer({"error": {"message": "No."}}, 400))
        with pytest.raises(UpstreamError, match=r"No\."):
            list(client.stream(model="m"))


def leave_with(client: Client) -> None:
    with client.stream(model="m") as stream:
        for _ in stream:
            break


def leave_without(client: Client) -> None:
    for _ in client.stream(model="m"):
        break


def leave_the_text(client: Client) -> None:
    for _ in client.stream(model="m").text:
        break


@pytest.mark.parametrize("leave", [leave_with, leave_without, leave_the_text])
def test_leaving_early_closes_the_connection_at_once(leave: Callable[[Client], None]):
    with scripted_upstream(ENDLESS_STREAM) as server, Client(server.url) as client:
        leave(client)
        wait_until(lambda: server.disconnects > 0)


INTERRUPTED = """
import os, signal, threading
from antiphon import Client

# A runner in the background ignores SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

client = Client({url!r})
threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
print(client.create(model="m").id)
"""


@pytest.mark.parametrize(
    ("answer", "call"),
    [(ScriptedAnswer(delay=WAIT), 'client.create(model="m")'), (ENDLESS_STREAM, 'list(client.stream(model="m"))')],
    ids=["create", "stream"],
)
def test_ctrl_c_stops_the_request_and_the_client_stays_usable(answer: ScriptedAnswer, call: str):
    # In a process of its own: a SIGINT would also interrupt the test runner's main thread.
    with scripted_upstream(answer) as server:
        program = INTERRUPTED.format(url=server.url, call=call)
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "interrupted\n"
            wait_until(lambda: server.disconnects > 0)
            server.play(json_answer({"id": "resp_0", "output": []}))
            assert child.communicate("\n", timeout=WAIT) == ("resp_0\n", None)
