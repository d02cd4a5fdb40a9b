"""Xaibo agents for the tests: modules of our own, and agents made of them and of Xaibo's."""

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any

from xaibo import AgentConfig, ExchangeConfig, ModuleConfig, Xaibo
from xaibo.core.exchange import Exchange
from xaibo.core.models import LLMMessage, LLMOptions, LLMResponse, LLMUsage, UsageEvent
from xaibo.core.protocols import (
    ConversationHistoryProtocol,
    LLMProtocol,
    ResponseProtocol,
    TextMessageHandlerProtocol,
    ToolProviderProtocol,
)
from xaibo.primitives.modules.conversation.conversation import SimpleConversation
from xaibo.primitives.modules.llm import MockLLM
from xaibo.primitives.modules.orchestrator import SimpleToolOrchestrator
from xaibo.primitives.modules.orchestrator.react_orchestrator import ReActOrchestrator
from xaibo.primitives.modules.tools import PythonToolProvider

from antiphon import Reasoning

TOKENS = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
STARTED: list[str] = []
STOPPED: list[str] = []
"""The texts with which `endless` was started and stopped."""


class Handler(TextMessageHandlerProtocol):
    """A module that answers text."""

    # Xaibo reads the annotations of `__init__`, and takes that of its result for a parameter.

    def __init__(self, response: ResponseProtocol, config: dict[str, Any] | None = None):
        self.response = response
        self.config = config or {}


class Words(Handler):
    """Answers with twenty words, in deltas that come as fast as they can."""

    async def handle_text(self, text: str) -> None:
        for number in range(self.config.get("count", 20)):
            await self.response.respond_text(f"word{number} ")
            await asyncio.sleep(self.config.get("pause", 0))
        await asyncio.sleep(self.config.get("rest", 0))


class Burst(Handler):
    """Answers with three hundred words and never waits itself."""

    async def handle_text(self, text: str) -> None:
        for number in range(300):
            await self.response.respond_text(f"word{number} ")


class Echo(Handler):
    """Repeats the text."""

    async def handle_text(self, text: str) -> None:
        await self.response.respond_text(f"{self.config.get('prefix', 'You said: ')}{text}")


class Silent(Handler):
    """Says nothing."""

    async def handle_text(self, text: str) -> None:
        await asyncio.sleep(self.config.get("pause", 0))


class Fail(Handler):
    """Raises an exception after half an answer."""

    async def handle_text(self, text: str) -> None:
        await self.response.respond_text("It begins well")
        raise ValueError("and ends badly")


class Endless(Handler):
    """Never ends, unless it is cancelled."""

    async def handle_text(self, text: str) -> None:
        STARTED.append(text)
        try:
            while True:
                await self.response.respond_text("more ")
                await asyncio.sleep(0.01)
        finally:
            STOPPED.append(text)


class Wardrobe(Handler):
    """Uses all that a response module can take."""

    async def handle_text(self, text: str) -> None:
        await self.response.respond_event(Reasoning("I draw."))
        await self.response.respond_image(io.BytesIO(b"a picture"))
        await self.response.respond_text("Here it is.")


class NeedsExchange(TextMessageHandlerProtocol):
    """Depends on Xaibo's own exchange, and names two modules that it holds."""

    def __init__(self, response: ResponseProtocol, exchange: Exchange, config: dict[str, Any] | None = None):
        self.response = response
        self.exchange = exchange

    async def handle_text(self, text: str) -> None:
        modules = self.exchange.module_instances
        names = [type(modules[id]).__name__ for id in ("__conversation_history__", "__response__")]
        await self.response.respond_text(" ".join(names))


class HistoryPrinter(TextMessageHandlerProtocol):
    """Prints what it would give to a model; appends the user's message to the history, or does not."""

    def __init__(
        self, response: ResponseProtocol, history: ConversationHistoryProtocol, config: dict[str, Any] | None = None
    ):
        self.response = response
        self.history = history
        self.appends = (config or {}).get("appends", True)

    async def handle_text(self, text: str) -> None:
        messages = await self.history.get_history()
        if self.appends:
            await self.history.add_message(LLMMessage.user(text))
            messages = await self.history.get_history()
        await self.response.respond_text(describe(messages))


class PromptPrinter(LLMProtocol):
    """A language model that answers with its prompt and its options."""

    def __init__(self, config: dict[str, Any] | None = None):
        del config

    async def generate(self, messages: list[LLMMessage], options: LLMOptions | None = None) -> LLMResponse:
        options = options or LLMOptions()
        tools = [tool.model_dump() for tool in options.functions or ()]
        prompt = {"messages": json.loads(describe(messages)), "temperature": options.temperature, "tools": tools}
        return LLMResponse(content=json.dumps(prompt), usage=LLMUsage(**TOKENS))


class StreamingAsker(TextMessageHandlerProtocol):
    """Streams what its language model says."""

    def __init__(
        self, response: ResponseProtocol, llm: LLMProtocol, history: ConversationHistoryProtocol, config: Any = None
    ):
        self.response, self.llm, self.history = response, llm, history

    async def handle_text(self, text: str) -> None:
        messages = [*await self.history.get_history(), LLMMessage.user(text)]
        async for piece in self.llm.generate_stream(messages):
            await self.response.respond_text(piece)
        await self.response.respond_event(UsageEvent(**TOKENS))


class ManyModels(TextMessageHandlerProtocol):
    """Depends on a list of language models, which may be empty, and asks each."""

    def __init__(self, response: ResponseProtocol, llms: list[LLMProtocol], config: dict[str, Any] | None = None):
        self.response, self.llms = response, llms

    async def handle_text(self, text: str) -> None:
        for llm in self.llms:
            await self.response.respond_text((await llm.generate([LLMMessage.user(text)])).content)
        await self.response.respond_text(f"{len(self.llms)} models.")


class NoTools(ToolProviderProtocol):
    """Has no tools."""

    def __init__(self, config: dict[str, Any] | None = None):
        del config

    async def list_tools(self) -> list[Any]:
        return []

    async def execute_tool(self, tool_name: str, parameters: dict[str, Any]) -> Any:
        raise AssertionError(f"{tool_name} is not a tool of this agent")


def describe(messages: Sequence[LLMMessage]) -> str:
    """Return messages as JSON, without what is empty."""
    return json.dumps([message.model_dump(mode="json", exclude_none=True) for message in messages])


def get_weather(city: str) -> str:
    """Look out of a window.

    Args:
        city: where the window is
    """
    if city == "nowhere":
        raise ValueError("there is no window")
    return f"sun in {city}"


def call(name: str, id: str = "call_1", **arguments: str) -> dict[str, Any]:
    """Return a call as a mock model makes it."""
    return {"id": id, "name": name, "arguments": arguments}


WEATHER = "tests-bridges-xaibo-agents-get_weather"
"""The name that Xaibo gives the tool."""

TWO_ROUNDS = [
    {"content": "", "tool_calls": [call(WEATHER, city="Rome")], "usage": TOKENS},
    # The same id again, as some servers do.
    {"content": "", "tool_calls": [call(WEATHER, city="nowhere")], "usage": TOKENS},
    {"content": "The sun shines.", "usage": TOKENS},
]
CLIENT_ROUND = [{"content": "", "tool_calls": [call("get_place"), call(WEATHER, "call_2", city="Rome")]}]
REACT = [
    {"content": "I need the weather.", "usage": TOKENS},
    {"content": "I look.", "tool_calls": [call(WEATHER, city="Rome")], "usage": TOKENS},
    {"content": "It is sunny.", "usage": TOKENS},
    {"content": "I know enough.", "usage": TOKENS},
    {"content": "FINAL_ANSWER: sun", "usage": TOKENS},
]


def tool_agent(name: str, orchestrator: type, responses: list[dict[str, Any]]) -> AgentConfig:
    """Return an agent with a scripted model and one tool."""
    return AgentConfig(
        id=name,
        modules=[
            ModuleConfig(module=MockLLM, id="llm", config={"responses": responses}),
            ModuleConfig(module=PythonToolProvider, id="tools", config={"tool_functions": [get_weather]}),
            ModuleConfig(module=orchestrator, id="orchestrator", config={"show_reasoning": False}),
        ],
    )


def agent(name: str, module: type, **config: Any) -> AgentConfig:
    """Return an agent of one module."""
    return AgentConfig(id=name, modules=[ModuleConfig(module=module, id="handler", config=config)])


def prompt_agent() -> AgentConfig:
    """Return an agent that answers with the prompt of its model."""
    return AgentConfig(
        id="prompt",
        description="Prints its prompt.",
        modules=[
            ModuleConfig(module=PromptPrinter, id="llm"),
            ModuleConfig(module=NoTools, id="tools"),
            ModuleConfig(module=SimpleToolOrchestrator, id="orchestrator", config={"system_prompt": "Be kind."}),
        ],
    )


def entries_agent() -> AgentConfig:
    """Return an agent with two entry points."""
    return AgentConfig(
        id="doors",
        modules=[
            ModuleConfig(module=Echo, id="front", config={"prefix": "front: "}),
            ModuleConfig(module=Echo, id="back", config={"prefix": "back: "}),
        ],
        exchange=[ExchangeConfig(module="__entry__", protocol=TextMessageHandlerProtocol, provider=["front", "back"])],
    )


def own_history_agent() -> AgentConfig:
    """Return an agent that declares a history of its own."""
    return AgentConfig(
        id="own-history",
        modules=[
            ModuleConfig(module=SimpleConversation, id="memory"),
            ModuleConfig(module=HistoryPrinter, id="handler"),
        ],
    )


def many_models_agent(name: str, *answers: str) -> AgentConfig:
    """Return an agent that depends on a list of language models."""
    llms = [
        ModuleConfig(module=MockLLM, id=f"llm{number}", config={"responses": [{"content": answer, "usage": TOKENS}]})
        for number, answer in enumerate(answers)
    ]
    return AgentConfig(
        id=name,
        modules=[*llms, ModuleConfig(module=ManyModels, id="handler")],
        exchange=[ExchangeConfig(module="handler", protocol=LLMProtocol, provider=[llm.id for llm in llms])],
    )


def streaming_agent() -> AgentConfig:
    """Return an agent that streams from its model."""
    return AgentConfig(
        id="streaming",
        modules=[
            ModuleConfig(
                module=MockLLM, id="llm", config={"responses": [{"content": "abcdefghi"}], "streaming_chunk_size": 3}
            ),
            ModuleConfig(module=StreamingAsker, id="handler"),
        ],
    )


def make_xaibo() -> Xaibo:
    """Return a Xaibo with all test agents."""
    xaibo = Xaibo()
    for config in (
        agent("words", Words),
        agent("paced", Words, count=3, pause=0.03, rest=0.3),
        agent("slow", Words, count=3, pause=0.5),
        agent("burst", Burst),
        agent("echo", Echo),
        agent("silent", Silent),
        agent("asleep", Silent, pause=60),
        agent("fail", Fail),
        agent("endless", Endless),
        agent("wardrobe", Wardrobe),
        agent("needs-exchange", NeedsExchange),
        agent("appends", HistoryPrinter),
        agent("appends-not", HistoryPrinter, appends=False),
        prompt_agent(),
        entries_agent(),
        own_history_agent(),
        streaming_agent(),
        many_models_agent("no-models"),
        many_models_agent("one-model", "One, "),
        many_models_agent("two-models", "One, ", "two, "),
        tool_agent("tools", SimpleToolOrchestrator, TWO_ROUNDS),
        tool_agent("client-tools", SimpleToolOrchestrator, CLIENT_ROUND),
        tool_agent("react", ReActOrchestrator, REACT),
    ):
        xaibo.register_agent(config)
    return xaibo
