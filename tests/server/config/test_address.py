"""Checks of URLs."""

import pytest

from antiphon.server.config.tables import invalid_url_problem, is_loopback, is_unencrypted


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
    ],
)
def test_only_this_machine_is_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:9100/v1", None),
        ("HTTPS://[::1]:1/", None),
        ("https://a.b/v1/", None),
        ("", "is not an http(s) URL"),
        ("a.b/v1", "is not an http(s) URL"),
        ("localhost:80", "is not an http(s) URL"),
        ("ftp://a.b", "is not an http(s) URL"),
        ("http://", "is not an http(s) URL"),
        ("http://:80", "is not an http(s) URL"),
        ("http://a:0", "is not an http(s) URL"),
        ("http://a:99999", "is not an http(s) URL"),
        ("http://[::1", "is not an http(s) URL"),
        ("http://a b/", "is not an http(s) URL"),
        ("http://a/\r\nx: y", "is not an http(s) URL"),
        ("http://bär.example/", "is not an http(s) URL"),
        ("https://a.b/?key=1", "has a query or a fragment"),
        ("https://a.b/#x", "has a query or a fragment"),
        ("https://a.b/v1?", "has a query or a fragment"),
        ("https://a.b/v1#", "has a query or a fragment"),
        ("https://me@a.b", "contains a user name or password"),
        ("https://:secret@a.b", "contains a user name or password"),
    ],
)
def test_invalid_urls_are_reported(url: str, problem: str | None) -> None:
    assert invalid_url_problem(url) == problem


def test_only_http_to_another_machine_can_be_read_by_others() -> None:
    urls = ["http://a.b", "http://10.0.0.1", "https://a.b", "http://localhost", "http://[::1]:1"]
    assert [is_unencrypted(url) for url in urls] == [True, True, False, False, False]
