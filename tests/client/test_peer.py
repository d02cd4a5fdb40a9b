"""A server as it is met: late, refusing, moved, elsewhere, or not there at all."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from antiphon.client.client import AsyncClient
from antiphon.core.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.core.fold import fold
from antiphon.core.value import decode
from tests.asking import WAIT
from tests.client.asking import SAID, Asking, framed
from tests.core.test_rules import LEGAL
from tests.upstream import Answer, sse, upstream, whole

pytestmark = pytest.mark.anyio

# --- late ---

KEPT: dict[str, tuple[Answer, Callable[[AsyncClient], Awaitable[object]]]] = {
    "retrieve": (whole({"id": "resp_0", "output": []}), lambda client: client.retrieve("resp_0")),
    "resume": (sse(framed(LEGAL)), lambda client: client.resume("resp_0").final()),
    "models": (whole({"data": []}), lambda client: client.models()),
    "delete": (whole({"deleted": True}), lambda client: client.delete("resp_0")),
}


@pytest.mark.parametrize("way", KEPT)
async def test_what_may_be_asked_twice_is_asked_again_when_nothing_comes(asking: Asking, way: str):
    answer, ask = KEPT[way]
    with upstream(Answer(late=WAIT), answer) as server:
        await ask(asking(server, timeout=0.2, retries=1))
    first, second = server.requests
    assert first == second


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_a_server_that_never_answers_is_not_asked_for_ever(asking: Asking, retries: int):
    with upstream(Answer(late=WAIT)) as server:
        with pytest.raises(UpstreamError, match=r"said nothing for 0\.1 seconds") as caught:
            await asking(server, timeout=0.1, retries=retries).retrieve("resp_0")
        assert len(server.requests) == 1 + retries
    assert (caught.value.status, caught.value.payload.code) == (504, "timeout")


async def test_what_may_have_been_heard_is_not_asked_for_twice(asking: Asking):
    with upstream(Answer(late=WAIT)) as server:
        client = asking(server, timeout=0.1, retries=2)
        for ask in (client.create(**SAID), client.stream(**SAID).final(), client.cancel("resp_0")):
            with pytest.raises(UpstreamError) as caught:
                await ask
            assert (caught.value.payload.code, caught.value.retryable) == ("timeout", False)
        assert len(server.requests) == 3


# --- refused ---


async def test_a_server_that_is_busy_is_asked_again(asking: Asking):
    busy = whole({"error": {"message": "Later."}}, 429, retry_after="0.01")
    with upstream(busy, busy, sse(framed(LEGAL))) as server:
        assert await asking(server, retries=2).stream(**SAID).final() == fold(LEGAL)
    assert len(server.requests) == 3
    with upstream(busy) as server:
        with pytest.raises(UpstreamError) as caught:
            await asking(server, retries=1).stream(**SAID).final()
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
        (
            {"detail": [{"msg": "No."}]},
            {"type": "invalid_request", "message": "No."},
        ),
    ],
)
async def test_a_refusal_is_read_in_every_shape(asking: Asking, body: Any, payload: dict[str, str]):
    with upstream(whole(body, 400)) as server:
        for ask in (asking(server).create(**SAID), asking(server).stream(**SAID).final()):
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
    "create": ("responses", lambda client: client.create(**SAID)),
    "stream": ("responses", lambda client: client.stream(**SAID).final()),
    "retrieve": ("responses/resp_0", lambda client: client.retrieve("resp_0")),
    "resume": ("responses/resp_0", lambda client: client.resume("resp_0").final()),
    "models": ("models", lambda client: client.models()),
}


@pytest.mark.parametrize("way", ASKS)
@pytest.mark.parametrize(("location", "place"), MOVED)
@pytest.mark.parametrize("status", [301, 308])
async def test_a_server_that_has_moved_is_not_followed_and_its_place_is_told(
    asking: Asking, status: int, location: str, place: str, way: str
):
    path, ask = ASKS[way]
    there = {"location": location.replace("PATH", path)}
    with upstream(Answer(b"<html>", status, there)) as server:
        with pytest.raises(UpstreamError) as caught:
            await ask(asking(server, api_key="hunter2-and-more", retries=2))
        assert len(server.requests) == 1
    error, who = caught.value, server.url.removeprefix("http://")
    assert (error.status, error.payload.code, error.retryable) == (502, "upstream_invalid", False)
    assert str(error) == (
        f"{who}: answered {status}: it has moved to {place.replace('URL', server.url)}. "
        "Its base_url should lead there."
    )


@pytest.mark.parametrize("location", [None, "http://[", "mailto:a@b.example"])
async def test_a_redirect_to_nowhere_is_told_as_it_is(asking: Asking, location: str | None):
    headers = {"location": location} if location else {}
    with (
        upstream(Answer(b"", 301, headers)) as server,
        pytest.raises(UpstreamError, match="answered 301 and did not say why"),
    ):
        await asking(server).models()


HTML = {"content-type": "text/html"}


async def test_a_page_is_no_answer(asking: Asking):
    with upstream(Answer(b"<html>Bad gateway</html>", 502, HTML)) as server:
        client = asking(server)
        with pytest.raises(UpstreamError, match="answered 502 and did not say why"):
            await client.create(**SAID)


ODD = {
    "a page": (
        Answer(b"\n<html>Welcome!</html>", 200, HTML),
        "answered with a web page. Its base_url probably leads elsewhere.",
    ),
    "nothing": (
        Answer(b"", 200, {"content-type": "application/json"}),
        "answered with nothing instead of {wanted}.",
    ),
    "no content": (Answer(status=204), "answered with nothing instead of {wanted}."),
    "words": (
        Answer(b"It works!", 200, {"content-type": "application/json"}),
        "answered with something else instead of {wanted}.",
    ),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_answer_that_is_none_says_what_it_is(asking: Asking, odd: str):
    answer, message = ODD[odd]
    with upstream(answer) as server:
        client, who = asking(server), server.url.removeprefix("http://")
        for wanted, ask in (
            ("a response", client.create(**SAID)),
            ("a response", client.retrieve("resp_0")),
            ("JSON", client.models()),
            ("JSON", client.conversations.create()),
        ):
            with pytest.raises(UpstreamError) as caught:
                await ask
            assert str(caught.value) == f"{who}: {message.format(wanted=wanted)}"
            assert (caught.value.status, caught.value.payload.code) == (502, "upstream_invalid")


async def test_a_page_is_no_stream(asking: Asking):
    with (
        upstream(Answer(b"<html>Welcome!</html>", 200, HTML)) as server,
        pytest.raises(UpstreamError, match="answered with a web page"),
    ):
        await asking(server).stream(**SAID).final()


async def test_a_response_that_is_called_a_page_is_a_response(asking: Asking):
    with upstream(Answer(b'{"id": "resp_0", "output": []}', 200, HTML)) as server:
        assert (await asking(server).create(**SAID)).id == "resp_0"
        assert (await asking(server).stream(**SAID).final()).id == "resp_0"


@pytest.mark.parametrize("answer", [Answer(status=204), Answer(), whole({"deleted": True})])
async def test_what_is_deleted_need_not_be_talked_about(asking: Asking, answer: Answer):
    with upstream(answer) as server:
        await asking(server).delete("resp_0")
        await asking(server).conversations.delete("conv_0")
    assert [request.method for request in server.requests] == ["DELETE", "DELETE"]


async def test_a_page_has_deleted_nothing(asking: Asking):
    with (
        upstream(Answer(b"<html>Welcome!</html>", 200, HTML)) as server,
        pytest.raises(UpstreamError, match="answered with a web page"),
    ):
        await asking(server).delete("resp_0")


REASON = b'{"error":{"message":"No."}}'
UNFINISHED = {
    "cut in a word": (Answer(REASON[:-4], cut=True), "answered {status} and did not say why."),
    "cut at its end": (Answer(REASON, cut=True), "No."),
    "stalled": (Answer(REASON, pieces=9, pause=0.5), "answered {status} and did not say why."),
}


@pytest.mark.parametrize("body", UNFINISHED)
@pytest.mark.parametrize("status", [401, 500])
async def test_a_refusal_whose_reason_does_not_come_keeps_its_status(
    asking: Asking, body: str, status: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("antiphon.client.peer.REFUSAL_SECONDS", 0.05)
    answer, message = UNFINISHED[body]
    with (
        upstream(replace(answer, status=status)) as server,
        pytest.raises(UpstreamError) as caught,
    ):
        await asking(server).models()
    who = server.url.removeprefix("http://")
    assert (caught.value.status, caught.value.retryable) == (status, status == 500)
    assert str(caught.value) == f"{who}: {message.format(status=status)}"


async def test_an_error_in_a_good_answer_is_raised(asking: Asking):
    with upstream(whole({"error": {"message": "No.", "type": "server_error"}})) as server:
        told = asking(server).stream(**SAID)
        with pytest.raises(UpstreamError, match=r"No\."):
            await told.final()


async def test_a_server_that_is_not_there():
    with pytest.raises(UpstreamError, match="cannot be reached") as caught:
        await AsyncClient("http://127.0.0.1:1/v1", retries=0).create(**SAID)
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
def test_an_address_that_nothing_can_be_written_behind_is_refused_and_not_repeated(address: str):
    with pytest.raises(RequestError, match="base_url") as caught:
        AsyncClient(address)
    assert caught.value.payload.param == "base_url"
    assert "secret" not in str(caught.value)


async def test_a_key_that_the_server_repeats_is_not_repeated_here(asking: Asking):
    said = {"error": {"message": "Incorrect API key provided: hunter2-and-more."}}
    with upstream(whole(said, 401)) as server:
        client = asking(server, api_key="hunter2-and-more")
        for ask in (client.models, client.stream(**SAID).final, client.connect().open):
            with pytest.raises(UpstreamError, match=r"Incorrect API key provided: \[redacted\]"):
                await ask()


async def test_the_key_and_the_headers_are_shown(asking: Asking):
    with upstream(whole({"id": "resp_0", "output": []})) as server:
        client = asking(server, api_key="secret", headers={"X-Team": "a"})
        await client.create(**SAID, extra_headers={"x-team": "b", "Idempotency-Key": "k"})
    headers = server.requests[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer secret", "b")
    assert headers["idempotency-key"] == "k"
