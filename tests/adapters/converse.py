"""Bedrock in the tests: what is sent in them, and AWS's own client beside ours."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from botocore.config import Config

from antiphon.adapters.bedrock import Bedrock
from antiphon.core.items import FunctionCall, Reasoning
from antiphon.core.response import Response
from antiphon.core.value import plain
from tests.adapters.hearing import made
from tests.adapters.scripts import TOOL, Seen
from tests.adapters.scripts.bedrock import (
    EVENTS,
    SCENES,
)
from tests.upstream import Answer, ScriptedUpstream, upstream

BEDROCK = made(Bedrock, region="eu-west-1")
CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
NEW_CLAUDE = "global.anthropic.claude-opus-4-7-v1"
PIXEL = b"\x89PNG\r\n\x1a\n and so on"
IMAGE = {
    "type": "input_image",
    "image_url": f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}",
}
PDF = b"%PDF-1.7 and so on"
FILE = {
    "type": "input_file",
    "filename": "report_v1.pdf",
    "file_data": f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}",
}
HELLO = [{"role": "user", "content": [{"text": "Hello"}]}]
SPEC = {
    "toolSpec": {
        "name": "weather",
        "description": "Tell the weather.",
        "strict": True,
        "inputSchema": {"json": TOOL["parameters"]},
    }
}
LOOSE = {**TOOL, "strict": False}
LOOSE_SPEC = {
    "toolSpec": {name: value for name, value in SPEC["toolSpec"].items() if name != "strict"}
}


def played(body: bytes, content_type: str = EVENTS, status: int = 200, **headers: str) -> Answer:
    return Answer(body, status, {"content-type": content_type, **headers})


@contextmanager
def theirs(provider: ScriptedUpstream) -> Iterator:
    """AWS's own client, with keys of its own and nothing from around it."""
    session = boto3.Session("AKIDEXAMPLE", "wJalrXUtnFEMI", region_name="eu-west-1")
    settled = Config(retries={"total_max_attempts": 1}, ignore_configured_endpoint_urls=True)
    client = session.client("bedrock-runtime", endpoint_url=provider.url, config=settled)
    yield client
    client.close()


def items(response: Response) -> list[object]:
    """The output without what is ours alone: its ids."""
    return [plain(item) | {"id": ""} for item in response.output]  # type: ignore[operator]


def seen(response: Response, stop: str) -> Seen:
    usage = response.usage
    assert usage
    details = response.incomplete_details
    return Seen(
        text=response.output_text,
        calls=[
            (item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if isinstance(item, FunctionCall)
        ],
        reasoning="".join(
            part.text  # type: ignore[union-attr]
            for item in response.output
            if isinstance(item, Reasoning)
            for part in item.content or []
        ),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        status=response.status,
        reason=details.reason if details else None,
        stop=stop,
    )


def sent_by_them(**fields: object) -> tuple[str, dict]:
    with upstream(played(SCENES["text"].whole, "application/json")) as provider:
        with theirs(provider) as client:
            client.converse(**{"modelId": CLAUDE, "messages": HELLO} | fields)
        received = provider.requests[0]
        return received.path, received.json


def output(content: object, **more: object) -> dict:
    return {"type": "function_call_output", "call_id": "tooluse_1", "output": content, **more}


CALL = {
    "type": "function_call",
    "call_id": "tooluse_1",
    "name": "weather",
    "arguments": '{"city":"Paris"}',
}
USE = {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Paris"}}}
DOCUMENT = {"document": {"format": "pdf", "name": "report v1", "source": {"bytes": PDF}}}
PICTURE = {"image": {"format": "png", "source": {"bytes": PIXEL}}}


def result(*content: dict, **more: object) -> dict:
    return {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "tooluse_1", "content": [*content], **more}}],
    }


def user(*content: dict) -> dict:
    return {"role": "user", "content": [*content]}


def assistant(*content: dict) -> dict:
    return {"role": "assistant", "content": [*content]}


def from_user(*content: dict) -> list[dict]:
    return [{"role": "user", "content": [*content]}]
