"""Antiphon: one open protocol in front of every model and every agent.

The packages, from the lowest layer to the highest; each imports only those listed before it:

    protocol   the protocol: values, parts -> events (synth), events -> response (fold), rules
    wire       bytes <-> values: JSON, Server-Sent Events, NDJSON, frames, the doors' dialects
    transport  requests to providers: HTTP client, credentials, retries
    adapters   one package per provider: encodes requests, decodes responses into parts
    agents     Python functions as models, and the built-in `demo` and `echo`
    store      storage of responses and delivery of their events: in memory, in SQLite
    engine     one response, from its request to its terminal event
    client     calls any Open Responses server from Python; the agent loop
    server     the ASGI application
    cli        the command line

The names below are imported when they are first used, so that `import antiphon` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.agents.agent import Agent, Turn, agent
    from antiphon.client.agent.conversation import Conversation
    from antiphon.client.agent.run import AbortSignal, AgentOptions, run_agent, stream_agent
    from antiphon.client.async_client import AsyncClient
    from antiphon.client.sync_client import Client
    from antiphon.client.tools.tool import tool
    from antiphon.protocol.errors import AntiphonError, RequestError, UpstreamError
    from antiphon.protocol.parts import (
        Annotation,
        Call,
        Extension,
        Failure,
        Finish,
        Reasoning,
        Refusal,
        Text,
        Usage,
        Warn,
        Whole,
    )
    from antiphon.protocol.request import Request
    from antiphon.protocol.response import Response
    from antiphon.server.app import create_app
    from antiphon.server.settings import Settings

__version__ = "0.1.0"

__all__ = ["Agent", "Settings", "Turn", "agent", "create_app"]
__all__ += ["AbortSignal", "AgentOptions", "AsyncClient", "Client", "Conversation", "run_agent", "stream_agent", "tool"]
__all__ += ["AntiphonError", "Request", "RequestError", "Response", "UpstreamError"]
__all__ += ["Annotation", "Call", "Extension", "Failure", "Finish", "Reasoning", "Refusal"]
__all__ += ["Text", "Usage", "Warn", "Whole"]

_MODULES = {
    "Agent": "antiphon.agents.agent",
    "agent": "antiphon.agents.agent",
    "Turn": "antiphon.agents.agent",
    "run_agent": "antiphon.client.agent.run",
    "stream_agent": "antiphon.client.agent.run",
    "AsyncClient": "antiphon.client.async_client",
    "Conversation": "antiphon.client.agent.conversation",
    "AbortSignal": "antiphon.client.agent.run",
    "AgentOptions": "antiphon.client.agent.run",
    "Client": "antiphon.client.sync_client",
    "tool": "antiphon.client.tools.tool",
    "AntiphonError": "antiphon.protocol.errors",
    "RequestError": "antiphon.protocol.errors",
    "UpstreamError": "antiphon.protocol.errors",
    "Request": "antiphon.protocol.request",
    "Response": "antiphon.protocol.response",
    "create_app": "antiphon.server.app",
    "Settings": "antiphon.server.settings",
}


# Called for names that the module does not have yet (PEP 562).
def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'antiphon' has no attribute '{name}'")
    value: object = getattr(import_module(_MODULES.get(name, "antiphon.protocol.parts")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
