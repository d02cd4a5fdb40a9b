"""Serve the test agents with several adapters, in Xaibo's environment: `python -m tests.bridges.xaibo.serve PORT`.

Our adapter is at the root. The others, each below a prefix, have agents and a folder of their own.
"""

import inspect
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response
from xaibo.core.models import LLMMessage
from xaibo.primitives.modules.conversation.conversation import SimpleConversation
from xaibo.server.adapters.openai_responses import OpenAiResponsesApiAdapter as XaiboAdapter

from antiphon.server.xaibo import OpenAiResponsesApiAdapter
from tests.bridges.xaibo.agents import STARTED, STOPPED, make_xaibo


class PreparingAdapter(OpenAiResponsesApiAdapter):
    """Prepares the conversation itself, as a subclass of Xaibo's adapter may."""

    async def create_response(self, request: Request) -> Response:
        data = await request.json()
        conversation = SimpleConversation()
        await conversation.add_message(LLMMessage.assistant("Whom do you want to greet?"))
        await conversation.add_message(LLMMessage.user(data["input"]))
        response_data = {
            "id": "resp_ours",
            "status": "in_progress",
            "output": [],
            "model": data["model"],
            "user": "ada",
        }
        handle = self._handle_streaming_response if data.get("stream") else self._handle_non_streaming_response
        return await handle(response_data, data["input"], conversation)


def describe(adapter: type[XaiboAdapter] | type[OpenAiResponsesApiAdapter]) -> dict[str, Any]:
    """Return the signatures of an adapter."""
    handlers = [name for name, value in vars(adapter).items() if inspect.iscoroutinefunction(value)]
    return {
        "constructor": {name: repr(p.default) for name, p in inspect.signature(adapter).parameters.items()},
        "adapt": list(inspect.signature(adapter.adapt).parameters),
        "handlers": {name: list(inspect.signature(getattr(adapter, name)).parameters) for name in handlers},
    }


def main(port: int) -> None:
    """Serve."""
    app = FastAPI()
    # Ours would wait for longer than any test, Xaibo's waits.
    OpenAiResponsesApiAdapter(make_xaibo(), streaming_timeout=30, responses_dir="./data/responses").adapt(app)
    others = {
        "theirs": XaiboAdapter(make_xaibo(), streaming_timeout=1, responses_dir="./theirs"),
        "impatient": OpenAiResponsesApiAdapter(make_xaibo(), streaming_timeout=0.8, responses_dir="./impatient"),
        "preparing": PreparingAdapter(make_xaibo(), responses_dir="./preparing"),
    }
    for name, adapter in others.items():
        part = FastAPI()
        adapter.adapt(part)
        app.mount(f"/{name}", part)

    @app.get("/endless")
    async def endless() -> dict[str, list[str]]:
        return {"started": STARTED, "stopped": STOPPED}

    @app.get("/signatures")
    async def signatures() -> dict[str, Any]:
        return {"ours": describe(OpenAiResponsesApiAdapter), "theirs": describe(XaiboAdapter)}

    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
