"""Ambiguous request heads are rejected, all others accepted."""

import pytest

from antiphon.protocol.errors import RequestError
from antiphon.server.uvicorn import http_protocol

HOST = (b"host", b"a")


@pytest.mark.parametrize(
    ("version", "target", "headers"),
    [
        ("1.1", b"/", [HOST]),
        ("1.1", b"/?to=http://b/", [HOST]),
        ("1.1", b"//b/", [HOST]),
        ("1.1", b"*", [HOST]),
        ("1.1", b"/", [(b"host", b"")]),
        ("1.1", b"/", [(b"host", b"[::1]:8000")]),
        ("1.1", b"http://A/x", [HOST]),
        ("1.1", b"/", [HOST, (b"transfer-encoding", b"chunked")]),
        ("1.0", b"/", []),
        ("1.0", b"http://b/", []),
    ],
)
def test_a_plain_head_passes(version: str, target: bytes, headers: list[tuple[bytes, bytes]]):
    http_protocol.check_request_head(version, target, headers)


@pytest.mark.parametrize(
    ("version", "target", "headers", "blamed"),
    [
        ("2.0", b"/", [HOST], "HTTP/2.0"),
        ("1.0", b"/", [(b"transfer-encoding", b"chunked")], "Transfer-Encoding"),
        ("1.1", b"a:443", [HOST], "target"),
        ("1.1", b"http://a", [HOST], "target"),
        ("1.1", b"**", [HOST], "target"),
        ("1.1", b"/", [], "0 Host headers"),
        ("1.1", b"/", [HOST, HOST], "2 Host headers"),
        ("1.0", b"/", [HOST, HOST], "2 Host headers"),
        ("1.1", b"/", [(b"host", b"a b")], "not a host"),
        ("1.1", b"/", [(b"host", b"a/b")], "not a host"),
        ("1.1", b"http://b/", [HOST], "and Host differ"),
        ("1.1", b"http://a:80/", [HOST], "and Host differ"),
    ],
)
def test_an_ambiguous_head_is_rejected(version: str, target: bytes, headers: list[tuple[bytes, bytes]], blamed: str):
    with pytest.raises(RequestError, match=blamed) as caught:
        http_protocol.check_request_head(version, target, headers)
    assert (caught.value.status, caught.value.payload.code) == (400, "invalid_http")


@pytest.mark.parametrize("headers", [[], [HOST], [(b"content-length", b"0")]])
def test_an_upgrade_without_a_body_passes(headers: list[tuple[bytes, bytes]]):
    http_protocol.check_upgrade_request(headers)


@pytest.mark.parametrize("header", [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")])
def test_an_upgrade_with_a_body_is_rejected(header: tuple[bytes, bytes]):
    with pytest.raises(RequestError, match="body"):
        http_protocol.check_upgrade_request([HOST, header])
