"""The client's tools for the agents of LangChain's `create_agent`."""

from collections.abc import Awaitable, Callable
from typing import Any

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
except ImportError as error:
    raise ImportError(f"ClientTools needs LangChain: pip install langchain ({error})", name=error.name) from error

from antiphon.bridges.langgraph import client_tools


class ClientTools(AgentMiddleware[Any, Any]):
    """Offers the functions of the client to the model of an agent, beside the agent's own tools.

    create_agent(model, tools=[get_weather], middleware=[ClientTools()])
    """

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the client's functions."""
        return handler(add_client_tools(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model with the client's functions."""
        return await handler(add_client_tools(request))


def add_client_tools(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """Return the request to a model with the client's functions."""
    own_names = [tool.get("name", "") if isinstance(tool, dict) else tool.name for tool in request.tools]
    return request.override(tools=[*request.tools, *client_tools(own_names)])
