"""Two models that need no API key: for trying things out, and for testing clients.

`demo` follows a script, so that every part of the protocol can be reached on purpose:

    anything                        text, word by word
    reasoning asked for             reasoning first, with a summary if asked for
    a word of a tool's name,        a call of that tool with arguments that its schema accepts;
      USE_TOOL, or tool_choice        after the output, an answer that quotes it
    USE_TOOLS                       one call of each tool, in parallel
    text.format                     JSON that satisfies it
    story                           at least sixty words
    SLOW                            thirty words, one every 100 ms
    REFUSE, FAIL                    a refusal; a failure in mid-answer
    max_output_tokens               obeyed; a token is a word, in input and output

`echo` repeats the last user message.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence

from antiphon.agents.agent import agent
from antiphon.agents.turn import Turn
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    Item,
    LogProb,
    Message,
    TopLogProb,
)
from antiphon.protocol.json_schema import Schema, SchemaValidator, is_array, is_number, is_object, resolve_reference
from antiphon.protocol.parts import Part
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, JsonObjectFormat, JsonSchemaFormat
from antiphon.protocol.struct import encode
from antiphon.protocol.tools import ExtensionTool, ExtensionToolChoice, FunctionTool, must_call

STORY_TEXT = (
    "Once upon a time a small server stood at the edge of a large network. Every day it was asked "
    "the same questions, and every day it answered them a little better. One evening a stranger "
    "came with a question nobody had asked before. The server thought about it word by word, and "
    "sent each word as soon as it had one, so that the stranger never had to wait in the dark. "
    "When the answer was whole, they both knew it by heart, and neither of them ever forgot it."
)
SLOW_TEXT = (
    "This answer takes its time on purpose: it is thirty words or more, and it sends one of them "
    "every tenth of a second, so that there is time to cancel it, to leave, or to look."
)
STOP_WORDS = frozenset("get set the and for with from into list make find call run do new".split())
"""Words of a tool's name that are too common to mean the tool."""

WORD_PATTERN = re.compile(r"\s*\S+|\s+$")
JSON_PIECE_PATTERN = re.compile(r".{1,8}", re.DOTALL)


class TokenMeter:
    """Counts the tokens of a turn and its answer, and ends the answer at `max_output_tokens`.

    A token is a word; in the arguments of a call it is eight characters.
    """

    def __init__(self, turn: Turn) -> None:
        self.limit = turn.request.max_output_tokens
        texts = [turn.instructions or "", *(encode(tool).decode() for tool in turn.tools), *map(item_text, turn.items)]
        self.input = sum(len(text.split()) for text in texts)
        self.output = 0
        self.reasoning = 0
        self.truncated = False

    def pieces(self, text: str, pattern: re.Pattern[str] = WORD_PATTERN) -> Iterator[str]:
        """Yield the pieces of a text until the limit is reached."""
        for piece in pattern.findall(text):
            if self.output == self.limit:
                self.truncated = True
                return
            self.output += 1
            yield piece

    def finish(self) -> Iterator[Part]:
        """Yield the usage, and the finish reason if the answer was truncated."""
        yield parts.Usage(self.input, self.output, 0, self.reasoning)
        if self.truncated:
            yield parts.Finish("length")


def item_text(item: Item) -> str:
    """Return the text of an item that counts as tokens."""
    match item:
        case Message() | FunctionCallOutput():
            return item.text
        case FunctionCall():
            return f"{item.name} {item.arguments}"
        case _:
            return item.type


@agent("demo", counts_tokens=True)
async def demo(turn: Turn) -> AsyncIterator[Part]:
    """A scripted model that makes the whole protocol reachable without a key."""
    # The whole answer is planned before the first part, so that an unsupported request is a 400.
    # In a thread, because an example for a large schema would block the event loop.
    meter = TokenMeter(turn)
    has_schema = bool(turn.tools) or isinstance(turn.request.text.format, JsonSchemaFormat)
    calls, text = await asyncio.to_thread(plan, turn) if has_schema else plan(turn)
    for index, tool in enumerate(turn.tools):
        if isinstance(tool, ExtensionTool):
            message = f"This model has no tool '{tool.type}'; it was left out."
            yield parts.Warn("unsupported_tool", message, f"tools[{index}]")
    for part in write_reasoning(turn, meter):
        yield part
    # Searched once and not for every part: the text may be long.
    is_slow, fails = "SLOW" in turn.text, "FAIL" in turn.text
    for part in write_calls(calls, meter) if calls else write_text(text, turn, meter):
        if is_slow:
            await asyncio.sleep(0.1)
        yield part
        # After some output: a failure before it would be an HTTP error and no `response.failed`.
        if fails and meter.output >= 4:
            break
    if fails:
        raise RuntimeError("the demo model was asked to fail")
    for part in meter.finish():
        yield part


@agent("echo", counts_tokens=True)
async def echo(turn: Turn) -> AsyncIterator[Part]:
    """Repeats the last user message."""
    meter = TokenMeter(turn)
    for word in meter.pieces(turn.text):
        yield parts.Text(word)
    for part in meter.finish():
        yield part


@demo.counter
@echo.counter
async def count_input_tokens(turn: Turn) -> int:
    """Count the words of a turn's input."""
    return TokenMeter(turn).input


@demo.compactor
@echo.compactor
async def summarize(items: Sequence[Item], turn: Turn) -> str:
    """Return the first words of every item."""
    del turn
    labels = [f"{item.role}:" if isinstance(item, Message) else item.type for item in items]
    starts = [" ".join(item_text(item).split()[:12]) for item in items]
    return "\n".join(f"- {label} {start}" for label, start in zip(labels, starts, strict=True))


def plan(turn: Turn) -> tuple[list[tuple[str, str]], str]:
    """Return the calls, by name and arguments, or else the text of the answer."""
    calls: list[tuple[str, str]] = []
    for tool in choose_calls(turn):
        param = f"tools[{turn.request.tools.index(tool)}].parameters"
        calls.append((tool.name, write_example(tool.parameters or {"type": "object"}, turn.text, param)))
    return calls, "" if calls else compose_answer(turn)


def write_reasoning(turn: Turn, meter: TokenMeter) -> Iterator[Part]:
    """Yield reasoning, if the request asks for it."""
    wanted = turn.request.reasoning
    if wanted is None or wanted.effort == "none" or not (wanted.effort or wanted.summary):
        return
    thought = f"The user said {len(turn.text.split())} words. I have a script, so I will follow it."
    for word in meter.pieces(thought):
        yield parts.Reasoning(word)
    if wanted.summary:
        for word in meter.pieces("Followed the script."):
            yield parts.Reasoning(summary=word)
    # A real provider encrypts this; for the demo it only has to survive the round trip.
    if INCLUDE_ENCRYPTED_REASONING in turn.request.include:
        yield parts.Reasoning(encrypted_content=base64.b64encode(thought.encode()).decode())
    meter.reasoning = meter.output


def choose_calls(turn: Turn) -> list[FunctionTool]:
    """Return the tools to call."""
    if isinstance(turn.tool_choice, ExtensionToolChoice):
        message = f"This model has no tool '{turn.tool_choice.type}'. Use a function, or 'auto'."
        raise RequestError(message, param="tool_choice", code="unsupported_value")
    tools, is_required = turn.functions, must_call(turn.tool_choice)
    if is_required and not tools:
        message = "tool_choice asks for a call, but this model has none of these tools."
        raise RequestError(message, param="tool_choice", code="unsupported_value")
    if outputs := {output.call_id for output in turn.tool_outputs}:
        # The same call again would never end: only a demand leads to another one.
        called = {item.name for item in turn.items if isinstance(item, FunctionCall) and item.call_id in outputs}
        return [tool for tool in tools if is_required and tool.name not in called][:1]
    if "USE_TOOLS" in turn.text:
        return tools if turn.request.parallel_tool_calls else tools[:1]
    words = set(re.findall(r"[a-z0-9]+", turn.text.lower()))
    named = [tool for tool in tools if words & name_words(tool.name)]
    if not named and (is_required or "USE_TOOL" in turn.text):
        named = tools
    return named[:1]


def name_words(name: str) -> set[str]:
    """Return the words of a tool's name without stop words: getLocalTime gives local, time."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    words = re.findall(r"[a-z0-9]+", spaced.lower())
    return {word for word in words if len(word) > 2 and word not in STOP_WORDS}


def write_calls(calls: list[tuple[str, str]], meter: TokenMeter) -> Iterator[Part]:
    """Yield the calls, as far as the limit allows."""
    for key, (name, arguments) in enumerate(calls):
        for index, piece in enumerate(meter.pieces(arguments, JSON_PIECE_PATTERN)):
            yield parts.Call(key, name="" if index else name, arguments=piece)
    yield parts.Finish("tool_calls")


def write_text(text: str, turn: Turn, meter: TokenMeter) -> Iterator[Part]:
    """Yield a text word by word, or a refusal; with logprobs, each word has the probability one."""
    if "REFUSE" in turn.text:
        yield from map(parts.Refusal, meter.pieces("I was asked to refuse, and so I do."))
    elif INCLUDE_LOGPROBS not in turn.request.include:
        yield from map(parts.Text, meter.pieces(text))
    else:
        for word in meter.pieces(text):
            top = TopLogProb(token=word, logprob=0.0, bytes=list(word.encode()))
            others = [top] if turn.request.top_logprobs else []
            chosen = LogProb(token=word, logprob=0.0, bytes=top.bytes, top_logprobs=others)
            yield parts.Text(word, logprobs=[chosen])


def compose_answer(turn: Turn) -> str:
    """Return the text of the answer to a turn."""
    if isinstance(format := turn.request.text.format, JsonSchemaFormat):
        return write_example(format.schema or {}, turn.text, "text.format.schema")
    if isinstance(format, JsonObjectFormat):
        return json.dumps({"answer": turn.text})
    if outputs := turn.tool_outputs:
        names = {c.call_id: c.name for c in turn.items if isinstance(c, FunctionCall)}
        return "\n".join(f"{names.get(o.call_id, 'The tool')} says: {o.text}" for o in outputs)
    if "SLOW" in turn.text:
        return SLOW_TEXT
    if "story" in turn.text.lower():
        return STORY_TEXT
    messages = [item for item in turn.items if isinstance(item, Message)]
    content = [part for message in messages for part in message.content]
    seen = [f"You said: {turn.text}"]
    for kind, sentence in ((InputImage, "I was shown {} image{}."), (InputFile, "I was given {} file{}.")):
        if count := sum(isinstance(part, kind) for part in content):
            seen.append(sentence.format(count, "s" * (count > 1)))
    if len(messages) > 1:
        seen.append(f"This conversation has {len(messages)} messages.")
    return " ".join(["Hello from Antiphon's demo model.", *seen])


# A client may send any schema: it must not make this process build an endless value.
MAX_EXAMPLE_VALUES = 1000
MAX_EXAMPLE_LENGTH = 4096
TOPIC = re.compile(r"\b(?:in|for|of) ([A-Z][\w'-]*(?: [A-Z][\w'-]*)*)")
"""A name after a preposition, as in "the weather in San Francisco"."""


def write_example(schema: Schema, text: str, param: str) -> str:
    """Return a simple value for a JSON Schema, as JSON; its strings are the topic of the text.

    Only `const`, `default`, `enum`, `examples`, `required`, the types and the lower limits are
    followed, and the first member of a union is taken. A schema that needs more is an error.
    """
    topic = found[1] if (found := TOPIC.search(text)) else text.strip()
    value: object = None
    problems: list[str] = []
    # An empty list is a poor example, so an element is tried first.
    for fills_arrays in (True, False):
        try:
            value = ExampleBuilder(schema, topic[:MAX_EXAMPLE_LENGTH], fills_arrays=fills_arrays).build(schema, "text")
            problems = [*SchemaValidator(schema).problems(value)]
        except (ValueError, RecursionError) as error:
            problems = [str(error)]
        if not problems:
            break
    if problems:
        message = f"The demo model cannot satisfy this schema: {problems[0]}. Give it a `default`."
        raise RequestError(message, param=param)
    return encode(value).decode()


class ExampleBuilder:
    """Builds one example value, in a bounded number of steps."""

    def __init__(self, root: Schema, topic: str, *, fills_arrays: bool = False) -> None:
        self._root = root
        self._topic = topic
        self._fills_arrays = fills_arrays
        """Whether an array that may be empty gets an element; not one that would contain itself."""
        self._count = 0

    def build(self, schema: object, name: str, refs: tuple[str, ...] = ()) -> object:
        """Return a value for the schema of a property; `refs` are the references around it."""
        # A few definitions that refer to each other can describe a value of any size.
        self._count += 1
        if self._count > MAX_EXAMPLE_VALUES:
            raise ValueError("the schema is too large")
        if not is_object(schema):
            return self._topic or name
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("enum", "examples"):
            if is_array(values := schema.get(key)) and values:
                return values[0]
        if isinstance(ref := schema.get("$ref"), str):
            # A recursive type ends at null where its schema allows that, or else is rejected.
            inner = resolve_reference(self._root, ref) if ref not in refs else {"const": None}
            return self.build(inner, name, (*refs, ref))
        for key in ("anyOf", "oneOf", "allOf"):
            if is_array(members := schema.get(key)) and members:
                first = next((m for m in members if m != {"type": "null"}), members[0])
                return self.build(first, name, refs)
        return self._build_type(schema, name, refs)

    def _build_type(self, schema: Schema, name: str, refs: tuple[str, ...]) -> object:
        types = schema.get("type", "object" if "properties" in schema else "string")
        match types[0] if is_array(types) and types else types:
            case "object":
                properties, required = schema.get("properties"), schema.get("required")
                known = properties if is_object(properties) else {}
                names = [n for n in required if isinstance(n, str)] if is_array(required) else []
                return {n: self.build(known.get(n, True), n, refs) for n in names}
            case "array":
                count = int(_lower_limit(schema, "minItems", MAX_EXAMPLE_VALUES))
                can_fill = self._fills_arrays and is_object(schema.get("items")) and schema.get("maxItems") != 0
                values = [self.build(schema.get("items"), name, refs) for _ in range(count or can_fill)]
                # An element that would contain itself is null.
                return values if count else [value for value in values if value is not None]
            case "integer" | "number":
                return _lower_limit(schema, "minimum")
            case "boolean":
                return False
            case "null":
                return None
            case _:
                least = int(_lower_limit(schema, "minLength", MAX_EXAMPLE_LENGTH))
                most = schema.get("maxLength")
                text = self._topic or name
                return (text[:most] if isinstance(most, int) else text).ljust(least, ".")


def _lower_limit(schema: Schema, key: str, most: float | None = None) -> float:
    limit = schema.get(key)
    return limit if is_number(limit) and limit > 0 and (most is None or limit <= most) else 0
