"""Requests, responses and the SDK's client for the tests of the Google adapter."""

import base64
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from antiphon.adapters.google.adapter import Google
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.run_adapter import decode_response, encode_request, make_adapter
from tests.adapters.scenes.google import sse_stream
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, scripted_upstream

with warnings.catch_warnings():  # the SDK's source has invalid escapes
    warnings.simplefilter("ignore")
    from google import genai
    from google.genai import errors as errors
    from google.genai import models, types

GOOGLE = make_adapter(Google)
GEMINI_3 = "gemini-3.5-flash"
BYTES = b"\x89PNG\r\n\x1a\n and so on"
PIXEL = base64.b64encode(BYTES).decode()
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
PDF = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}
AUDIO = {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}


FOREIGN_ITEMS: list[dict] = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA not ours"},
    {"type": "function_call", "call_id": "toolu_|1", "name": "weather", "arguments": '{"a":1}'},
    {"type": "function_call", "call_id": "toolu_|2", "name": "time", "arguments": "none"},
    {"type": "function_call_output", "call_id": "toolu_|2", "output": "noon"},
    {"type": "function_call_output", "call_id": "toolu_|1", "output": "21"},
]
"""The items of another provider's model."""


def decode_chunks(*chunks: dict, model: str = GEMINI_3, **fields: Any) -> Response:
    """Decode a stream of chunks into a response."""
    return decode_response(encode_request(GOOGLE, upstream_model=model, stream=True, **fields), sse_stream(*chunks))


def output_as_input(response: Response) -> list[dict]:
    """Return the output as input items."""
    return [to_builtins(item) for item in response.output]  # type: ignore[misc]


def user_content(*parts: dict) -> dict:
    """Return the fields of a request with a user's message."""
    return {"input": [{"role": "user", "content": list(parts)}]}


@contextmanager
def google_client(*answers: ScriptedAnswer) -> Iterator[tuple[models.Models, ScriptedUpstream]]:
    """Give a client of Google's SDK, and the scripted upstream that it calls."""
    with scripted_upstream(*answers) as provider:
        options = types.HttpOptions(base_url=provider.url, api_version="v1beta")
        with genai.Client(api_key="k", http_options=options) as whole:
            yield whole.models, provider
