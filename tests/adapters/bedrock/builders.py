"""Requests, content blocks and the SDK's client for the tests of the Bedrock adapter."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import boto3
from botocore.config import Config

from antiphon.adapters.bedrock.adapter import Bedrock
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.run_adapter import make_adapter
from tests.adapters.scenes import TOOL
from tests.adapters.scenes.bedrock import EVENTS, SCENES
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, scripted_upstream

BEDROCK = make_adapter(Bedrock, region="eu-west-1")
CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
NEW_CLAUDE = "global.anthropic.claude-opus-4-7-v1"
PIXEL = b"\x89PNG\r\n\x1a\n and so on"
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"}
PDF = b"%PDF-1.7 and so on"
FILE = {
    "type": "input_file",
    "filename": "report_v1.pdf",
    "file_data": f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}",
}
HELLO = [{"role": "user", "content": [{"text": "Hello"}]}]
TOOL_SPEC = {
    "toolSpec": {
        "name": "weather",
        "description": "Tell the weather.",
        "strict": True,
        "inputSchema": {"json": TOOL["parameters"]},
    }
}
LOOSE_TOOL = {**TOOL, "strict": False}
LOOSE_TOOL_SPEC = {"toolSpec": {name: value for name, value in TOOL_SPEC["toolSpec"].items() if name != "strict"}}


def build_answer(body: bytes, content_type: str = EVENTS, status: int = 200, **headers: str) -> ScriptedAnswer:
    return ScriptedAnswer(body, status, {"content-type": content_type, **headers})


@cache
def aws_session() -> boto3.Session:
    """Return a session with fake keys; a new one takes 0.4 seconds to load AWS's service models."""
    return boto3.Session("AKIDEXAMPLE", "wJalrXUtnFEMI", region_name="eu-west-1")


@contextmanager
def aws_client(provider: ScriptedUpstream) -> Iterator:
    """Give a client of AWS's SDK that ignores the environment."""
    config = Config(retries={"total_max_attempts": 1}, ignore_configured_endpoint_urls=True)
    client = aws_session().client("bedrock-runtime", endpoint_url=provider.url, config=config)
    yield client
    client.close()


def items_without_ids(response: Response) -> list[object]:
    """Return the output without its ids."""
    return [to_builtins(item) | {"id": ""} for item in response.output]  # type: ignore[operator]


def aws_client_request(**fields: object) -> tuple[str, dict]:
    with scripted_upstream(build_answer(SCENES["text"].whole, "application/json")) as provider:
        with aws_client(provider) as client:
            client.converse(**{"modelId": CLAUDE, "messages": HELLO} | fields)
        received = provider.requests[0]
        return received.path, received.json


def call_output(content: object, **more: object) -> dict:
    return {"type": "function_call_output", "call_id": "tooluse_1", "output": content, **more}


CALL = {"type": "function_call", "call_id": "tooluse_1", "name": "weather", "arguments": '{"city":"Paris"}'}
TOOL_USE = {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Paris"}}}
DOCUMENT_BLOCK = {"document": {"format": "pdf", "name": "report v1", "source": {"bytes": PDF}}}
IMAGE_BLOCK = {"image": {"format": "png", "source": {"bytes": PIXEL}}}


def tool_result(*content: dict, **more: object) -> dict:
    return {"role": "user", "content": [{"toolResult": {"toolUseId": "tooluse_1", "content": [*content], **more}}]}


def user_message(*content: dict) -> dict:
    return {"role": "user", "content": [*content]}


def assistant_message(*content: dict) -> dict:
    return {"role": "assistant", "content": [*content]}


def user_input(*content: dict) -> list[dict]:
    return [{"role": "user", "content": [*content]}]
