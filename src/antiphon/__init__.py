"""Antiphon: one open protocol in front of every model and every agent.

The packages, from the lowest layer to the highest; each imports only those listed before it:

    protocol   the protocol: values, parts -> events (synth), events -> response (fold), rules
    wire       bytes <-> values: JSON, Server-Sent Events, NDJSON, frames, the doors' dialects
    transport  requests to providers: HTTP client, credentials, retries
    adapters   one package per provider: encodes requests, decodes responses into parts
    agents     Python functions as models, and the built-in `demo` and `echo`
    store      storage of responses and delivery of their events: in memory, SQLite or PostgreSQL
    bridges    agents of other frameworks as models; other event models as parts
    engine     one response, from its request to its terminal event
    hashbrown  Hashbrown's requests answered with frames, and their threads
    client     calls any Open Responses server from Python; the agent loop
    server     the ASGI application
    cli        the command line

The names below are imported when they are first used, so that `import antiphon` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.agents.agent import Agent, agent
    from antiphon.agents.turn import Turn
    from antiphon.client.agent.conversation import Conversation
    from antiphon.client.agent.run import AbortSignal, AgentOptions, run_agent, stream_agent
    from antiphon.client.async_client import AsyncClient
    from antiphon.client.sync_client import Client
    from antiphon.client.tools.signature import ToolContext
    from antiphon.client.tools.tool import tool
    from antiphon.protocol.errors import AntiphonError, RemoteProtocolError, RequestError, UpstreamError
    from antiphon.protocol.items import ExtensionItem, FunctionCall, FunctionCallOutput
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
    from antiphon.server.mounting import Antiphon
    from antiphon.server.settings import Settings

__version__ = "0.1.0"

__all__ = ["Agent", "Antiphon", "Settings", "Turn", "agent", "create_app"]
__all__ += ["AbortSignal", "AgentOptions", "AsyncClient", "Client", "Conversation", "run_agent", "stream_agent"]
__all__ += ["ToolContext", "tool"]
__all__ += ["AntiphonError", "RemoteProtocolError", "Request", "RequestError", "Response", "UpstreamError"]
__all__ += ["Annotation", "Call", "Extension", "Failure", "Finish", "Reasoning", "Refusal"]
__all__ += ["Text", "Usage", "Warn", "Whole"]
__all__ += ["ExtensionItem", "FunctionCall", "FunctionCallOutput"]

_MODULES = {
    "agents.agent": "Agent agent",
    "agents.turn": "Turn",
    "client.agent.conversation": "Conversation",
    "client.agent.run": "AbortSignal AgentOptions run_agent stream_agent",
    "client.async_client": "AsyncClient",
    "client.sync_client": "Client",
    "client.tools.signature": "ToolContext",
    "client.tools.tool": "tool",
    "protocol.errors": "AntiphonError RemoteProtocolError RequestError UpstreamError",
    "protocol.items": "ExtensionItem FunctionCall FunctionCallOutput",
    "protocol.request": "Request",
    "protocol.response": "Response",
    "server.app": "create_app",
    "server.mounting": "Antiphon",
    "server.settings": "Settings",
}
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names.split()}


# Called for names that the module does not have yet (PEP 562).
def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'antiphon' has no attribute '{name}'")
    value: object = getattr(import_module(f"antiphon.{_MODULE_BY_NAME.get(name, 'protocol.parts')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
