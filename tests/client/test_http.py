"""HTTP requests to servers that time out, fail, redirect, or are unreachable."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from antiphon.client.async_client import AsyncClient
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.fold import fold
from antiphon.protocol.struct import decode
from antiphon.transport.connection import Timeouts
from tests.client.client_factory import REQUEST, ClientFactory, encode_sse
from tests.http_client import WAIT
from tests.protocol.broken_streams import LEGAL
from tests.scripted_upstream import ScriptedAnswer, json_answer, scripted_upstream, sse_answer

pytestmark = pytest.mark.anyio

SILENCE = Timeouts(first_byte=0.3)
"""Only the response is late: a busy machine may take long to connect."""

KEPT: dict[str, tuple[ScriptedAnswer, Callable[[AsyncClient], Awaitable[object]]]] = {
    "retrieve": (json_answer({"id": "resp_0", "output": []}), lambda client: client.retrieve("resp_0")),
    "resume": (sse_answer(encode_sse(LEGAL)), lambda client: client.resume("resp_0").final()),
    "models": (json_answer({"data": []}), lambda client: client.models()),
    "delete": (json_answer({"deleted": True}), lambda client: client.delete("resp_0")),
}


@pytest.mark.parametrize("way", KEPT)
async def test_get_and_delete_are_retried_after_a_timeout(make_client: ClientFactory, way: str):
    answer, ask = KEPT[way]
    with scripted_upstream(ScriptedAnswer(delay=WAIT), answer) as server:
        await ask(make_client(server, timeout=1, retries=1))
    first, second = server.requests
    assert first == second


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_timeouts_are_retried_a_limited_number_of_times(make_client: ClientFactory, retries: int):
    with scripted_upstream(ScriptedAnswer(delay=WAIT)) as server:
        with pytest.raises(UpstreamError, match=r"sent nothing for 0\.3 seconds") as caught:
            await make_client(server, timeout=SILENCE, retries=retries).retrieve("resp_0")
        assert len(server.requests) == 1 + retries
    assert (caught.value.status, caught.value.payload.code) == (504, "timeout")


async def test_a_post_is_not_retried_after_a_timeout(make_client: ClientFactory):
    with scripted_upstream(ScriptedAnswer(delay=WAIT)) as server:
        client = make_client(server, timeout=SILENCE, retries=2)
        for ask in (client.create(**REQUEST), client.stream(**REQUEST).final(), client.cancel("resp_0")):
            with pytest.raises(UpstreamError) as caught:
                await ask
            assert (caught.value.payload.code, caught.value.retryable) == ("timeout", False)
        assert len(server.requests) == 3


async def test_a_429_or_5xx_is_retried(make_client: ClientFactory):
    busy = json_answer({"error": {"message": "Later."}}, 429, retry_after="0.01")
    with scripted_upstream(busy, busy, sse_answer(encode_sse(LEGAL))) as server:
        assert await make_client(server, retries=2).stream(**REQUEST).final() == fold(LEGAL)
    assert len(server.requests) == 3
    with scripted_upstream(busy) as server:
        with pytest.raises(UpstreamError) as caught:
            await make_client(server, retries=1).stream(**REQUEST).final()
        assert (caught.value.status, caught.value.retryable) == (429, True)
        assert caught.value.headers == {"retry-after": "0.01"}
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (
            {"error": {"type": "invalid_request", "code": "c", "param": "p", "message": "No."}},
            {"type": "invalid_request", "code": "c", "param": "p", "message": "No."},
        ),
        ({"message": "No.", "code": 7}, {"type": "invalid_request", "code": "7", "message": "No."}),
        ({"detail": "No."}, {"type": "invalid_request", "message": "No."}),
        ({"error": "No."}, {"type": "invalid_request", "message": "No."}),
        ({"detail": [{"msg": "No."}]}, {"type": "invalid_request", "message": "No."}),
    ],
)
async def test_every_shape_of_error_body_is_decoded(make_client: ClientFactory, body: Any, payload: dict[str, str]):
    with scripted_upstream(json_answer(body, 400)) as server:
        for ask in (make_client(server).create(**REQUEST), make_client(server).stream(**REQUEST).final()):
            with pytest.raises(UpstreamError) as caught:
                await ask
            who = server.url.removeprefix("http://")
            words = f"{who}: {payload['message']}"
            assert caught.value.payload == decode(ErrorPayload, payload | {"message": words})
            assert (caught.value.status, caught.value.retryable) == (400, False)


MOVED = [
    ("https://there.example/v2/PATH", "https://there.example/v2"),
    ("https://me:hunter2@there.example/v2/PATH?key=hunter2", "https://there.example/v2"),
    ("//there.example:8000/v1/PATH", "http://there.example:8000/v1"),
    ("/v2/PATH", "URL/v2"),
    ("https://there.example/login", "https://there.example/login"),
    ("https://there.example/hunter2-and-more", "https://there.example/[redacted]"),
]


ASKS: dict[str, tuple[str, Callable[[AsyncClient], Awaitable[object]]]] = {
    "create": ("responses", lambda client: client.create(**REQUEST)),
    "stream": ("responses", lambda client: client.stream(**REQUEST).final()),
    "retrieve": ("responses/resp_0", lambda client: client.retrieve("resp_0")),
    "resume": ("responses/resp_0", lambda client: client.resume("resp_0").final()),
    "models": ("models", lambda client: client.models()),
}


@pytest.mark.parametrize("way", ASKS)
@pytest.mark.parametrize(("location", "place"), MOVED)
@pytest.mark.parametrize("status", [301, 308])
async def test_a_redirect_is_not_followed_and_the_error_names_its_target(
    make_client: ClientFactory, status: int, location: str, place: str, way: str
):
    path, ask = ASKS[way]
    there = {"location": location.replace("PATH", path)}
    with scripted_upstream(ScriptedAnswer(b"<html>", status, there)) as server:
        with pytest.raises(UpstreamError) as caught:
            await ask(make_client(server, api_key="hunter2-and-more", retries=2))
        assert len(server.requests) == 1
    error, who = caught.value, server.url.removeprefix("http://")
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_invalid", False)
    assert str(error) == (
        f"{who}: answered {status}: it has moved to {place.replace('URL', server.url)}. Its base_url should lead there."
    )


@pytest.mark.parametrize("location", [None, "http://[", "mailto:a@b.example"])
async def test_a_redirect_without_a_location_is_an_ordinary_error(make_client: ClientFactory, location: str | None):
    headers = {"location": location} if location else {}
    with (
        scripted_upstream(ScriptedAnswer(b"", 301, headers)) as server,
        pytest.raises(UpstreamError, match="answered 301 and did not say why"),
    ):
        await make_client(server).models()


HTML = {"content-type": "text/html"}


async def test_an_html_page_is_an_error(make_client: ClientFactory):
    with scripted_upstream(ScriptedAnswer(b"<html>Bad gateway</html>", 502, HTML)) as server:
        client = make_client(server)
        with pytest.raises(UpstreamError, match="answered 502 and did not say why"):
            await client.create(**REQUEST)


ODD = {
    "a page": (
        ScriptedAnswer(b"\n<html>Welcome!</html>", 200, HTML),
        "answered with a web page. Its base_url probably leads elsewhere.",
    ),
    "nothing": (
        ScriptedAnswer(b"", 200, {"content-type": "application/json"}),
        "answered with nothing instead of {wanted}.",
    ),
    "no content": (ScriptedAnswer(status=204), "answered with nothing instead of {wanted}."),
    "words": (
        ScriptedAnswer(b"It works!", 200, {"content-type": "application/json"}),
        "answered with something else instead of {wanted}.",
    ),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_unexpected_body_is_described_in_the_error(make_client: ClientFactory, odd: str):
    answer, message = ODD[odd]
    with scripted_upstream(answer) as server:
        client, who = make_client(server), server.url.removeprefix("http://")
        for expected, ask in (
            ("a response", client.create(**REQUEST)),
            ("a response", client.retrieve("resp_0")),
            ("JSON", client.models()),
            ("JSON", client.conversations.create()),
        ):
            with pytest.raises(UpstreamError) as caught:
                await ask
            assert str(caught.value) == f"{who}: {message.format(wanted=expected)}"
            assert (caught.value.status, caught.value.payload.code) == (502, "upstream_invalid")


async def test_an_html_page_instead_of_a_stream_is_an_error(make_client: ClientFactory):
    with (
        scripted_upstream(ScriptedAnswer(b"<html>Welcome!</html>", 200, HTML)) as server,
        pytest.raises(UpstreamError, match="answered with a web page"),
    ):
        await make_client(server).stream(**REQUEST).final()


async def test_json_with_an_html_content_type_is_accepted(make_client: ClientFactory):
    with scripted_upstream(ScriptedAnswer(b'{"id": "resp_0", "output": []}', 200, HTML)) as server:
        assert (await make_client(server).create(**REQUEST)).id == "resp_0"
        assert (await make_client(server).stream(**REQUEST).final()).id == "resp_0"


@pytest.mark.parametrize("answer", [ScriptedAnswer(status=204), ScriptedAnswer(), json_answer({"deleted": True})])
async def test_delete_accepts_an_empty_body(make_client: ClientFactory, answer: ScriptedAnswer):
    with scripted_upstream(answer) as server:
        await make_client(server).delete("resp_0")
        await make_client(server).conversations.delete("conv_0")
    assert [request.method for request in server.requests] == ["DELETE", "DELETE"]


async def test_delete_rejects_an_html_page(make_client: ClientFactory):
    with (
        scripted_upstream(ScriptedAnswer(b"<html>Welcome!</html>", 200, HTML)) as server,
        pytest.raises(UpstreamError, match="answered with a web page"),
    ):
        await make_client(server).delete("resp_0")


REASON = b'{"error":{"message":"No."}}'
UNFINISHED = {
    "cut in a word": (ScriptedAnswer(REASON[:-4], cut=True), "answered {status} and did not say why."),
    "cut at its end": (ScriptedAnswer(REASON, cut=True), "No."),
    "stalled": (ScriptedAnswer(REASON, chunk_size=9, pause=0.5), "answered {status} and did not say why."),
}


@pytest.mark.parametrize("body", UNFINISHED)
@pytest.mark.parametrize("status", [401, 500])
async def test_an_error_with_an_incomplete_body_keeps_its_status(
    make_client: ClientFactory, body: str, status: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("antiphon.client.http.ERROR_BODY_TIMEOUT", 0.05)
    answer, message = UNFINISHED[body]
    with scripted_upstream(replace(answer, status=status)) as server, pytest.raises(UpstreamError) as caught:
        await make_client(server).models()
    who = server.url.removeprefix("http://")
    assert (caught.value.status, caught.value.retryable) == (status, status == 500)
    assert str(caught.value) == f"{who}: {message.format(status=status)}"


async def test_an_error_object_with_status_200_is_raised(make_client: ClientFactory):
    with scripted_upstream(json_answer({"error": {"message": "No.", "type": "server_error"}})) as server:
        opened = make_client(server).stream(**REQUEST)
        with pytest.raises(UpstreamError, match=r"No\."):
            await opened.final()


async def test_an_unreachable_server_is_an_error():
    with pytest.raises(UpstreamError) as caught:
        await AsyncClient("http://127.0.0.1:1/v1", retries=0).create(**REQUEST)
    assert str(caught.value) == "127.0.0.1:1: cannot be reached: connection refused."
    assert (caught.value.status, caught.value.payload.code) == (502, "upstream_unreachable")


@pytest.mark.parametrize(
    "address",
    [
        "http://x/v1?api-version=1",
        "http://x/v1#y",
        "http://me:secret@x/v1",
        "http://[x/secret",
        "localhost:8000/v1",
        "x.example/secret",
        "ftp://x/v1",
        "http:///v1",
        "http://x:secret/v1",
        "http://x:99999/v1",
    ],
)
def test_an_invalid_base_url_is_rejected_without_quoting_it(address: str):
    with pytest.raises(RequestError, match="base_url") as caught:
        AsyncClient(address)
    assert caught.value.payload.param == "base_url"
    assert "secret" not in str(caught.value)


async def test_a_key_repeated_by_the_server_is_redacted(make_client: ClientFactory):
    error_body = {"error": {"message": "Incorrect API key provided: hunter2-and-more."}}
    with scripted_upstream(json_answer(error_body, 401)) as server:
        client = make_client(server, api_key="hunter2-and-more")
        for ask in (client.models, client.stream(**REQUEST).final, client.connect().open):
            with pytest.raises(UpstreamError, match=r"Incorrect API key provided: \[redacted\]"):
                await ask()


async def test_key_and_headers_are_sent(make_client: ClientFactory):
    with scripted_upstream(json_answer({"id": "resp_0", "output": []})) as server:
        client = make_client(server, api_key="secret", headers={"X-Team": "a"})
        await client.create(**REQUEST, extra_headers={"x-team": "b", "Idempotency-Key": "k"})
    headers = server.requests[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer secret", "b")
    assert headers["idempotency-key"] == "k"
