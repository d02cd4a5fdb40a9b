"""The hardened HTTP protocol in a real server, against misbehaving clients."""

import asyncio
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from websockets.sync.client import connect as connect_websocket

from antiphon.server.uvicorn.connection import ConnectionLimits
from antiphon.server.uvicorn.direct_write import HeaderBuffer
from antiphon.server.uvicorn.http_protocol import http_protocol
from tests.server.raw_client import (
    LONGER,
    SHORT,
    WAIT,
    RawServer,
    eventually,
    parse_answers,
    receive_all,
    run_server,
    send_all,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
SOON = b"GET /soon HTTP/1.1\r\nHost: a\r\n\r\n"
ENDLESS = b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def post(length: int, body: bytes = b"", path: bytes = b"/", extra: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n" % (path, length, extra)
    return head + body


def chunked(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body


@pytest.fixture(params=["asyncio", "uvloop"], scope="module")
def loop(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def patient(loop: str) -> Iterator[RawServer]:
    """A server with small sizes but ample time."""
    with run_server(ConnectionLimits(header_bytes=8192, header_count=20, pipelined=4), loop) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def hasty() -> Iterator[RawServer]:
    """A server with hardly any time for a head, and ample time for all else."""
    with run_server(ConnectionLimits(header_seconds=SHORT)) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def stern() -> Iterator[RawServer]:
    """A server with hardly any patience for a pause in a body."""
    with run_server(ConnectionLimits(body_stall_seconds=SHORT)) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def brisk(loop: str) -> Iterator[RawServer]:
    """A server that soon gives up on readers who do not read and on idle connections."""
    with run_server(ConnectionLimits(write_stall_seconds=SHORT, keep_alive_seconds=SHORT), loop) as running_server:
        yield running_server


class RecordingTransport:
    """A transport that records each write, and its request cycle."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.transport: Any = self
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.mark.anyio
async def test_response_headers_are_sent_with_the_first_chunk_or_in_the_next_iteration():
    whole, slow, cut = RecordingTransport(), RecordingTransport(), RecordingTransport()
    for cycle in (whole, slow, cut):
        cycle.transport = HeaderBuffer(cast("Any", cycle), asyncio.get_running_loop())
        cycle.transport.write(b"head ")
        assert not cycle.writes
    whole.transport.write(b"body ")
    whole.transport.write(b"more")
    cut.transport.close()
    assert (whole.writes, slow.writes, cut.writes) == ([b"head body ", b"more"], [], [b"head "])
    await asyncio.sleep(0)
    slow.transport.write(b"body")
    assert (whole.writes, slow.writes) == ([b"head body ", b"more"], [b"head ", b"body"])


def test_a_keep_alive_connection_serves_many_requests(patient: RawServer):
    with patient.connect() as client:
        for body in (b"", b"x", b"x" * 200_000):
            send_all(client, post(len(body), body))
            assert parse_answers(receive_all(client, b"\r\n\r\n%d" % len(body))) == [(200, b"%d" % len(body))]


def test_pipelined_requests_are_answered_in_order(patient: RawServer):
    closing = post(3, b"xxx", extra=b"Connection: close\r\n")
    assert patient.exchange(GET + post(2, b"xx") + closing) == [(200, b"0"), (200, b"2"), (200, b"3")]


def test_a_request_may_come_byte_by_byte(patient: RawServer):
    request = b"\r\n" + post(2, b"xx", extra=b"Connection: close\r\n")
    assert patient.exchange(*(bytes([byte]) for byte in request)) == [(200, b"2")]


def test_a_body_that_keeps_coming_may_take_longer_than_a_stall():
    with run_server(ConnectionLimits(body_stall_seconds=2 * SHORT)) as running_server:
        pieces = [post(6, extra=b"Connection: close\r\n"), *[b"x"] * 6]
        assert running_server.exchange(*pieces, pause=SHORT / 2) == [(200, b"6")]


def test_a_client_is_not_blamed_for_the_slowness_of_the_app(stern: RawServer):
    body = b"x" * 500_000
    request = post(len(body), body, path=b"/slow", extra=b"Connection: close\r\n")
    assert stern.exchange(request) == [(200, b"500000")]


def test_the_body_timeout_of_expect_continue_starts_with_the_100():
    extra = b"Expect: 100-continue\r\nConnection: close\r\n"
    request = post(2, path=b"/slow", extra=extra)
    limits = ConnectionLimits(body_stall_seconds=LONGER * 1.1)
    with run_server(limits) as running_server, running_server.connect(request) as client:
        assert receive_all(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        time.sleep(SHORT / 2)
        send_all(client, b"xx")
        assert parse_answers(receive_all(client)) == [(200, b"2")]


def test_an_absolute_target_may_name_the_same_host(patient: RawServer):
    request = b"GET http://A:80/x HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n"
    assert patient.exchange(request) == [(200, b"0")]


def test_http_1_0_needs_no_host(patient: RawServer):
    assert patient.exchange(b"GET / HTTP/1.0\r\n\r\n") == [(200, b"0")]


def test_a_websocket_outlives_the_limits_of_http(hasty: RawServer):
    with connect_websocket(f"ws://127.0.0.1:{hasty.port}/") as client:
        time.sleep(LONGER)
        client.send("still here")
        assert client.recv(timeout=WAIT) == "still here"


def test_a_keep_alive_connection_can_be_upgraded(brisk: RawServer):
    with brisk.connect(GET) as client:
        receive_all(client, b"\r\n\r\n0")
        send_all(client, UPGRADE)
        assert b" 101 " in receive_all(client, b"\r\n\r\n")
        time.sleep(LONGER)
        send_all(client, b"\x81\x82\0\0\0\0hi")
        assert receive_all(client, b"hi") == b"\x81\x02hi"


def test_an_upgrade_we_do_not_know_is_ignored(patient: RawServer):
    request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    assert patient.exchange(request) == [(200, b"0")]


@pytest.mark.parametrize("silence", [b"", b"\r\n"])
def test_an_idle_new_connection_is_closed_without_a_response(hasty: RawServer, silence: bytes):
    assert hasty.exchange(silence) == []


def test_slow_headers_are_rejected(hasty: RawServer):
    assert hasty.exchange(b"GET / HTTP/1.1\r\nHost: a\r\n") == [(408, b"request_timeout")]


def test_dripping_headers_do_not_buy_time(hasty: RawServer):
    drops = [b"GET / HTTP/1.1\r\n", *[b"X: y\r\n"] * 20]
    assert hasty.exchange(*drops, pause=SHORT / 4) == [(408, b"request_timeout")]


def test_later_requests_have_their_own_header_timeout(hasty: RawServer):
    with hasty.connect(GET) as client:
        assert parse_answers(receive_all(client, b"\r\n\r\n0")) == [(200, b"0")]
        time.sleep(LONGER)
        send_all(client, b"GET /")
        assert parse_answers(receive_all(client)) == [(408, b"request_timeout")]


def test_the_first_headers_have_their_time_from_the_connection():
    with run_server(ConnectionLimits(header_seconds=0.8)) as running_server:
        assert running_server.exchange(b"", b"GET / HTTP/1.1\r\n", GET, pause=0.5) == [(408, b"request_timeout")]


def test_a_blank_line_during_an_answer_is_no_offence(hasty: RawServer):
    with hasty.connect(SLOW, b"\r\n") as client:
        assert parse_answers(receive_all(client, b"\r\n\r\n0")) == [(200, b"0")]


def test_a_body_that_stalls_is_rejected_and_the_app_is_notified(stern: RawServer):
    stern.app.disconnected.clear()
    assert stern.exchange(post(5, b"xx")) == [(408, b"request_timeout")]
    assert stern.app.disconnected.wait(WAIT)


def test_a_body_that_drips_for_too_long_is_rejected():
    with run_server(ConnectionLimits(body_total_seconds=SHORT)) as running_server:
        drops = [post(100), *[b"x"] * 20]
        assert running_server.exchange(*drops, pause=SHORT / 4) == [(408, b"request_timeout")]


def test_an_answer_that_needs_no_body_is_finished(stern: RawServer):
    assert stern.exchange(post(5, b"xx", path=b"/early?1")) == [(200, b"earlylate")]


def test_a_body_that_stalls_after_its_answer_closes_the_connection(stern: RawServer):
    assert stern.exchange(post(5, b"xx", path=b"/unread")) == [(200, b"unread")]


def test_a_body_that_ends_after_its_answer_leaves_the_connection_usable(brisk: RawServer):
    with brisk.connect(post(5, b"xx", path=b"/unread")) as client:
        assert parse_answers(receive_all(client, b"unread")) == [(200, b"unread")]
        send_all(client, b"xxx")
        send_all(client, GET)
        assert parse_answers(receive_all(client)) == [(200, b"0")]


def test_an_idle_connection_is_closed_even_if_it_sent_a_little_more(brisk: RawServer):
    whole, half = post(3, b"xxx", path=b"/unread"), post(3, path=b"/unread")
    with brisk.connect(whole) as mute, brisk.connect(whole) as blank, brisk.connect(half) as late:
        for client, more in ((mute, b""), (blank, b"\r\n"), (late, b"xxx")):
            assert parse_answers(receive_all(client, b"unread")) == [(200, b"unread")]
            send_all(client, more)
        assert [receive_all(client) for client in (mute, blank, late)] == [b"", b"", b""]


def test_a_client_that_never_reads_is_disconnected(brisk: RawServer):
    brisk.app.disconnected.clear()
    with brisk.connect(ENDLESS, buffer=4096):
        assert brisk.app.disconnected.wait(WAIT)
        assert eventually(brisk.is_empty)


def test_a_client_that_reads_is_not_disconnected(brisk: RawServer):
    with brisk.connect(ENDLESS) as client:
        deadline = time.monotonic() + LONGER
        while time.monotonic() < deadline:
            assert client.recv(65536)


def test_a_client_that_reads_slowly_gets_a_large_response_whole():
    # Each pause is far shorter than a stall; all together are far longer.
    limits, size = ConnectionLimits(write_stall_seconds=1), 6_000_000
    request = b"GET /sized?%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % size
    with run_server(limits) as running_server, running_server.connect(request, buffer=4096) as client:
        received = 0
        while piece := client.recv(200_000, socket.MSG_WAITALL):
            received += len(piece)
            time.sleep(0.1)
        assert received > size


def test_a_finished_unread_response_times_out(brisk: RawServer):
    with ExitStack() as visits:
        for size in range(65536, 400_000, 32768):
            request = b"GET /sized?%d HTTP/1.1\r\nHost: a\r\n\r\n" % size
            visits.enter_context(brisk.connect(request, buffer=4096))
        assert eventually(brisk.is_empty)


def test_an_aborted_unread_response_times_out(brisk: RawServer):
    with ExitStack() as visits:
        for size in range(65536, 400_000, 32768):
            request = chunked(b"").replace(b" / ", b" /early?%d " % (size // 5))
            client = visits.enter_context(brisk.connect(request, buffer=4096))
            time.sleep(0.02)
            send_all(client, b"this is not a chunk")
        assert eventually(brisk.is_empty)


def test_the_kernel_buffer_is_bounded(patient: RawServer):
    with patient.connect(GET) as client:
        receive_all(client, b"\r\n\r\n0")
        (protocol,) = patient.server.server_state.connections
        transport = cast("Any", protocol).transport
        held = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert held <= 2 * 65536  # Linux doubles what it is asked for
        assert transport.get_write_buffer_limits() == (16384, 65536)


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (b"x" * 8192), id="one header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % (b"X: y\r\n" * 20), id="many headers"),
        pytest.param(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * 8192), id="long target"),
    ],
)
def test_a_head_that_is_too_large_is_rejected(patient: RawServer, request_bytes: bytes):
    assert patient.exchange(request_bytes) == [(431, b"headers_too_large")]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET / HTTP/1.1\r\nX: ", id="header"),
        pytest.param(b"GET /", id="target"),
        pytest.param(chunked(b"1;"), id="chunk extension"),
        pytest.param(chunked(b"0\r\nX: "), id="trailer"),
    ],
)
def test_endless_headers_are_rejected(patient: RawServer, start: bytes):
    assert patient.exchange(start, *[b"x" * 4096] * 50, pause=0.001) == [(431, b"headers_too_large")]


def test_too_many_pipelined_requests_are_rejected_after_the_others(patient: RawServer):
    expected = [(200, b"0")] * 5 + [(400, b"invalid_http")]
    assert patient.exchange(GET * 20) == expected


HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"


def with_headers(headers: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\n%b\r\n0\r\n\r\n" % headers


@pytest.mark.parametrize(
    "request_bytes",
    [
        # those that httptools refuses
        pytest.param(with_headers(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), id="CL and TE"),
        pytest.param(with_headers(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), id="TE and CL"),
        pytest.param(with_headers(b"Content-Length: 5\r\nContent-Length: 6\r\n"), id="two CL"),
        pytest.param(with_headers(b"Content-Length: 5\r\nContent-Length: 5\r\n"), id="CL twice"),
        pytest.param(with_headers(b"Content-Length: 5, 5\r\n"), id="CL list"),
        pytest.param(with_headers(b"Content-Length: +5\r\n"), id="CL plus"),
        pytest.param(with_headers(b"Content-Length: -5\r\n"), id="CL minus"),
        pytest.param(with_headers(b"Content-Length: 0x5\r\n"), id="CL hexadecimal"),
        pytest.param(with_headers(b"Content-Length: 5 5\r\n"), id="CL space"),
        pytest.param(with_headers(b"Content-Length:\r\n"), id="CL empty"),
        pytest.param(with_headers(b"Content-Length: %d\r\n" % 10**20), id="CL overflow"),
        pytest.param(with_headers(b"Transfer-Encoding: xchunked\r\n"), id="TE unknown"),
        pytest.param(with_headers(b"Transfer-Encoding: chunked, identity\r\n"), id="TE not last"),
        pytest.param(with_headers(b"Transfer-Encoding:\x0bchunked\r\n"), id="TE vertical tab"),
        pytest.param(with_headers(b"Transfer-Encoding : chunked\r\n"), id="space before colon"),
        pytest.param(with_headers(b"X: a\r\n b\r\n"), id="folded header"),
        pytest.param(with_headers(b"X: a\nY: b\r\n"), id="bare LF"),
        pytest.param(with_headers(b"X: a\rb\r\n"), id="bare CR"),
        pytest.param(with_headers(b"X: a\0b\r\n"), id="NUL in value"),
        pytest.param(with_headers(b"X\0: a\r\n"), id="NUL in name"),
        pytest.param(with_headers(b"X\r\n"), id="no colon"),
        pytest.param(GET.replace(b"\r\n", b"\n"), id="LF for CRLF"),
        pytest.param(GET.replace(b"GET", b"GOT"), id="method"),
        pytest.param(GET.replace(b"1.1", b"1.2"), id="version"),
        pytest.param(GET.replace(b"/ ", b"/\x01 "), id="control in target"),
        pytest.param(chunked(b"zz\r\n"), id="chunk size"),
        pytest.param(chunked(b"-1\r\n"), id="chunk size minus"),
        pytest.param(chunked(b"0x0\r\n\r\n"), id="chunk size hexadecimal"),
        pytest.param(chunked(b"f" * 17 + b"\r\n"), id="chunk size overflow"),
        pytest.param(chunked(b"5\nhello\n0\n\n"), id="chunk LF"),
        pytest.param(chunked(b"5\r\nhello!\r\n0\r\n\r\n"), id="chunk too long"),
        pytest.param(chunked(b"0\r\nContent-Length: 5\r\n\r\n"), id="CL in trailer"),
        # those that we refuse
        pytest.param(GET.replace(b"Host: a\r\n", b""), id="no Host"),
        pytest.param(GET.replace(b"\r\n\r\n", b"\r\nHost: a\r\n\r\n"), id="two Hosts"),
        pytest.param(GET.replace(b"Host: a", b"Host: a/b"), id="Host with path"),
        pytest.param(GET.replace(b"Host: a", b"Host: b@a"), id="Host with user"),
        pytest.param(GET.replace(b" / ", b" http://b/ "), id="other host in target"),
        pytest.param(GET.replace(b" / ", b" http://b@a/ "), id="user in target"),
        pytest.param(GET.replace(b" / ", b" http://a "), id="target without path"),
        pytest.param(GET.replace(b"GET /", b"CONNECT a:443"), id="CONNECT"),
        pytest.param(GET.replace(b"1.1", b"2.0"), id="HTTP/2.0"),
        pytest.param(GET.replace(b" HTTP/1.1", b""), id="HTTP/0.9"),
        pytest.param(chunked(b"0\r\n\r\n").replace(b"1.1", b"1.0"), id="TE on HTTP/1.0"),
        pytest.param(post(len(HIDDEN), extra=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"), id="h2c with body"),
        pytest.param(UPGRADE.replace(b"Host", b"Content-Length: 30\r\nHost"), id="websocket with body"),
    ],
)
@pytest.mark.parametrize("pause", [0, 0.005], ids=["at once", "apart"])
def test_an_ambiguous_request_is_rejected_and_smuggles_no_other(patient: RawServer, request_bytes: bytes, pause: float):
    assert patient.exchange(request_bytes, HIDDEN, pause=pause) == [(400, b"invalid_http")]
    assert "/hidden" not in patient.app.paths


def test_a_trailer_does_not_become_a_header(patient: RawServer):
    body = b"2\r\nxx\r\n0\r\nAuthorization: stolen\r\n\r\n"
    with patient.connect(chunked(body)) as client:
        assert parse_answers(receive_all(client, b"\r\n\r\n2")) == [(200, b"2")]
    assert patient.app.headers == [(b"host", b"a"), (b"transfer-encoding", b"chunked")]


def test_an_error_waits_for_the_earlier_responses(patient: RawServer):
    assert patient.exchange(SOON + GET + b"\0") == [(200, b"0"), (200, b"0"), (400, b"invalid_http")]


def test_an_error_waits_for_a_response_without_a_body(patient: RawServer):
    with patient.connect(SOON.replace(b"GET", b"HEAD") + b"\0") as client:
        received = receive_all(client)
    assert [line for line in received.splitlines() if line.startswith(b"HTTP/")] == [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 400 Bad Request",
    ]


def test_the_error_of_a_pipelined_body_waits_for_its_turn(patient: RawServer):
    requests = SOON + GET + chunked(b"zz\r\n")
    assert patient.exchange(requests) == [(200, b"0"), (200, b"0"), (400, b"invalid_http")]


def test_data_after_a_rejection_is_ignored(hasty: RawServer):
    with hasty.connect(SLOW + GET[:-2] + b"X: y\r\n") as client:
        time.sleep(SHORT * 1.5)
        send_all(client, b"\r\n" + GET)
        assert parse_answers(receive_all(client)) == [(200, b"0"), (408, b"request_timeout")]


def test_no_error_is_written_into_a_started_response(patient: RawServer):
    with patient.connect(chunked(b"").replace(b" / ", b" /early ")) as client:
        head = receive_all(client, b"\r\n\r\n")
        send_all(client, b"zz\r\n")
        assert head + receive_all(client) == head


def test_a_pipelined_upgrade_is_rejected(patient: RawServer):
    assert patient.exchange(SOON + UPGRADE) == [(200, b"0"), (400, b"invalid_http")]


def test_a_disconnect_stops_the_active_request_of_a_pipeline(patient: RawServer):
    patient.app.disconnected.clear()
    with patient.connect(ENDLESS + GET) as client:
        receive_all(client, b"xxx")
    assert patient.app.disconnected.wait(WAIT)


@pytest.mark.parametrize("pipelined", [GET, post(60_000, b"x" * 60_000), post(300_000, b"x" * 300_000)])
def test_a_pipelined_request_does_not_hide_that_the_client_left(patient: RawServer, pipelined: bytes):
    patient.app.disconnected.clear()
    with patient.connect(b"GET /until-disconnect HTTP/1.1\r\nHost: a\r\n\r\n", pipelined):
        pass
    assert patient.app.disconnected.wait(WAIT)


def test_a_large_pipelined_body_is_rejected_after_the_earlier_responses(patient: RawServer):
    requests = SOON + post(2, b"xx") + post(70_000, b"x" * 70_000)
    assert patient.exchange(requests) == [(200, b"0"), (200, b"2"), (400, b"invalid_http")]


def test_the_protocol_can_be_sent_to_a_worker():
    protocol = cast("Any", pickle.loads(pickle.dumps(http_protocol(ConnectionLimits(header_seconds=1)))))
    assert protocol.keywords["limits"] == ConnectionLimits(header_seconds=1)
