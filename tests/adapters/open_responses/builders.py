"""What the tests of the Open Responses adapter share."""

import openai

from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.run_adapter import decode_response, encode_request, make_adapter
from tests.adapters.scenes.responses import SAID, events_of, message, response, stream

ADAPTER = make_adapter(OpenResponses)
STRICT_ADAPTER = make_adapter(OpenResponses, strict=True)
USER = {"role": "user", "content": "Hello"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
INCLUDE = [INCLUDE_ENCRYPTED_REASONING]


def items_without_ids(response: Response) -> list[dict]:
    """Return the output without its ids."""
    return [
        {name: value for name, value in to_builtins(item).items() if name != "id"}  # type: ignore[union-attr]
        for item in response.output
    ]


def decode_stream(body: bytes, **options: object) -> Response:
    """Return what becomes of a stream that is not as it should be."""
    return decode_response(encode_request(make_adapter(OpenResponses, **options), stream=True), body)


def warning_message(response: Response) -> str:
    """Return the warning about broken rules, or an empty string."""
    found = [w.message for w in response.warnings or [] if w.code == "upstream_protocol"]
    assert len(found) < 2
    return found[0] if found else ""


def openai_client(url: str) -> openai.OpenAI:
    """Return OpenAI's own client of a server."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


CITED_MESSAGE = {
    "type": "output_text",
    "text": "See A.",
    "logprobs": [],
    "annotations": [
        {"type": "url_citation", "url": "https://a.example", "start_index": 4, "end_index": 5, "title": "A"},
        {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 3},
        {"type": "url_citation", "url": "https://b.example"},
        {"type": "odd_note", "page": 3},
    ],
}
RAW_REASONING = {"type": "reasoning_text", "text": "Hm. Well."}
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
FLAT_ERROR = {"type": "error", "code": "server_error", "message": "It broke.", "param": None}
NESTED_ERROR = {"type": "error", "error": {"type": "server_error", "code": "oops", "message": "It broke."}}
TWO_ITEMS = [message("One.", id="msg_1"), SAID]
TWO_EVENTS = [*events_of(TWO_ITEMS[0], 0, ["On", "e."]), *events_of(SAID, 1, ['{"city":', '"Paris"}'])]
EXPECTED_ITEMS = items_without_ids(decode_stream(stream(TWO_EVENTS, response(*TWO_ITEMS))))
