"""What the tests of the Open Responses adapter share."""

import openai

from antiphon.adapters.responses import Responses
from antiphon.core.request import ENCRYPTED_REASONING
from antiphon.core.response import Response
from antiphon.core.value import plain
from tests.adapters.hearing import answered, asked, made
from tests.adapters.scripts.responses import (
    SAID,
    events_of,
    message,
    response,
    stream,
)

THERE = made(Responses)
STRICT = made(Responses, strict=True)
USER = {"role": "user", "content": "Hello"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
INCLUDE = [ENCRYPTED_REASONING]


def items(response: Response) -> list[dict]:
    """Return the output without its ids."""
    return [
        {name: value for name, value in plain(item).items() if name != "id"}  # type: ignore[union-attr]
        for item in response.output
    ]


def mended(body: bytes, **options: object) -> Response:
    """Return what becomes of a stream that is not as it should be."""
    return answered(asked(made(Responses, **options), stream=True), body)


def warned(response: Response) -> str:
    """Return what a response says about its upstream's manners, or nothing."""
    found = [w.message for w in response.warnings or [] if w.code == "upstream_protocol"]
    assert len(found) < 2
    return found[0] if found else ""


def client_of(url: str) -> openai.OpenAI:
    """Return OpenAI's own client of a server."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


CITED = {
    "type": "output_text",
    "text": "See A.",
    "logprobs": [],
    "annotations": [
        {
            "type": "url_citation",
            "url": "https://a.example",
            "start_index": 4,
            "end_index": 5,
            "title": "A",
        },
        {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 3},
        {"type": "url_citation", "url": "https://b.example"},
        {"type": "odd_note", "page": 3},
    ],
}
RAW = {"type": "reasoning_text", "text": "Hm. Well."}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
FLAT = {"type": "error", "code": "server_error", "message": "It broke.", "param": None}
NESTED = {
    "type": "error",
    "error": {"type": "server_error", "code": "oops", "message": "It broke."},
}
TWO = [message("One.", id="msg_1"), SAID]
TWO_EVENTS = [*events_of(TWO[0], 0, ["On", "e."]), *events_of(SAID, 1, ['{"city":', '"Paris"}'])]
AS_IT_SHOULD_BE = items(mended(stream(TWO_EVENTS, response(*TWO))))
