"""The model behind the agents of the shared cases: it answers by the last user message and the tool outputs since.

It runs in the test process, on a real server of ours that speaks Responses and chat completions, so that a framework's
own OpenAI model class can call it, and a test can see and control what it does.
"""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Sequence

from antiphon.agents.agent import Agent, Turn, agent
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, InputImage, Message
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import encode

USAGE = parts.Usage(input_tokens=10, output_tokens=5, cached_tokens=2, reasoning_tokens=1)
"""What every call of the model costs."""

GREETING = ["Hello", " from", " the", " model."]


class ScriptedModel:
    """A model with one script per user message."""

    def __init__(self) -> None:
        self.release = threading.Event()
        """Ends the answer to `Wait.`."""
        self.ticks = 0
        """How many words of the endless answer to `Count.` there are."""
        self.stopped = 0
        """How often an endless answer was stopped."""

    @property
    def agent(self) -> Agent:
        """The model, named `scripted`."""

        @agent("scripted")
        async def scripted(turn: Turn) -> AsyncIterator[Part]:
            if turn.text == "Wait.":
                async for part in self._wait():
                    yield part
            elif turn.text == "Count.":
                async for part in self._count():
                    yield part
            elif turn.text == "Fail.":
                # After the first text: no client repeats the request, and none takes it for a wrong request.
                yield parts.Text("I will ")
                raise RuntimeError("This always fails.")
            else:
                for part in answer(turn):
                    yield part
            yield USAGE

        return scripted

    async def _wait(self) -> AsyncIterator[Part]:
        yield parts.Text("One moment, ")
        while not self.release.is_set():
            await asyncio.sleep(0.005)
        yield parts.Text("please.")

    async def _count(self) -> AsyncIterator[Part]:
        try:
            while True:
                self.ticks += 1
                yield parts.Text("more ")
                await asyncio.sleep(0.005)
        finally:
            self.stopped += 1


def answer(turn: Turn) -> Sequence[Part]:
    """Return the whole answer to a turn."""
    match turn.text:
        case "Hi.":
            return [parts.Text(delta) for delta in GREETING]
        case "Think.":
            thoughts = [parts.Reasoning(summary=delta) for delta in ("I have ", "to think.")]
            return [*thoughts, parts.Text("I have thought.")]
        case "What is this?":
            return [parts.Text(describe_images(turn))]
        case "What did I say?":
            return [parts.Text(json.dumps(describe_conversation(turn)))]
        case "What are your instructions?":
            return [parts.Text(read_instructions(turn))]
        case _:
            return answer_with_tools(turn)


def answer_with_tools(turn: Turn) -> Sequence[Part]:
    """Return the answers that need tools, round by round."""
    match turn.text, [output.text for output in turn.tool_outputs]:
        # Two rounds: the second call needs the output of the first.
        case ("What shall I wear in Oslo?", []):
            answer = [call_tool(turn, "get_weather", city="Oslo")]
        case ("What shall I wear in Oslo?", [weather]):
            answer = [parts.Text("I look in the wardrobe."), call_tool(turn, "choose_clothes", weather=weather)]
        case ("What shall I wear in Oslo?", [weather, clothes]):
            answer = [parts.Text("In Oslo there is "), parts.Text(weather), parts.Text(f". Wear {clothes}.")]
        # Two tools of the client in one round.
        case ("Who am I, and where?", []):
            answer = [call_tool(turn, "get_user"), call_tool(turn, "get_place", precision="city")]
        case ("Who am I, and where?", [user, place]):
            answer = [parts.Text(f"You are {user} "), parts.Text(f"in {place}.")]
        # A tool of the agent and one of the client in one round.
        case ("How is the weather where I am?", []):
            answer = [call_tool(turn, "get_weather", city="Oslo"), call_tool(turn, "get_place", precision="city")]
        case ("How is the weather where I am?", [weather, place]):
            answer = [parts.Text(f"There is {weather} "), parts.Text(f"in {place}.")]
        case ("Work.", []):
            answer = [call_tool(turn, "work")]
        case question, outputs:
            answer = [parts.Text(f"There is no answer to {question!r} with the outputs {outputs}.")]
    return answer


def call_tool(turn: Turn, name: str, **arguments: str) -> Part:
    """Call a tool; say so if it is not offered."""
    if name not in [function.name for function in turn.functions]:
        return parts.Text(f"There is no tool {name!r}.")
    return parts.Call(name=name, arguments=json.dumps(arguments))


def describe_images(turn: Turn) -> str:
    """Name the type and the size of every image of the last message."""
    last = next(item for item in reversed(turn.items) if isinstance(item, Message) and item.role == "user")
    seen: list[str] = []
    for part in last.content:
        if isinstance(part, InputImage):
            head, _, data = (part.image_url or "").partition(";base64,")
            seen.append(f"{head.removeprefix('data:')} of {len(base64.b64decode(data))} bytes")
    return f"I see {', '.join(seen) or 'nothing'}."


def describe_conversation(turn: Turn) -> list[list[str]]:
    """List what the model was given to read, without instructions and reasoning."""
    said: list[list[str]] = []
    for item in turn.items:
        match item:
            case Message(role="system" | "developer"):
                pass
            case Message():
                said.append([item.role, item.text])
            case FunctionCall(name=name, arguments=arguments):
                said.append(["call", name, encode(json.loads(arguments)).decode()])
            case FunctionCallOutput():
                said.append(["output", item.text])
            case _:
                pass
    return said


def read_instructions(turn: Turn) -> str:
    """Return all instructions that the model was given."""
    system = [item.text for item in turn.items if isinstance(item, Message) and item.role in ("system", "developer")]
    return "\n".join([turn.instructions or "", *system])
