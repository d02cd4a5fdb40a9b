"""CPU per event: from a provider's chunk to the bytes of our event, beside plain msgspec."""

import itertools
import time
from collections.abc import Callable

import msgspec

from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.parts import Text
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.wire import sse
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.openresponses import Dialect, OpenAIDialect
from bench.table import show

CHUNK = (
    b'{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":'
    b'1741569952,"model":"gpt-4.1-2025-04-14","choices":[{"index":0,"delta":{"content":" hello"},'
    b'"logprobs":null,"finish_reason":null}]}'
)
ROUNDS, COUNT = 40, 2_000


class Delta(msgspec.Struct):
    """The new text of a chunk."""

    content: str | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk."""

    delta: Delta
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """A chat completion chunk, as an adapter reads it."""

    choices: list[Choice]


def per_call(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the minimum CPU microseconds of one call of each function.

    They take turns, so that a slow moment of the machine is everybody's.
    """
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(ROUNDS):
        for name, function in functions.items():
            begin = time.process_time()
            for _ in range(COUNT):
                function()
            best[name] = min(best[name], (time.process_time() - begin) / COUNT * 1e6)
    return best


def new_synth(dialect: Dialect | None = None) -> Synth:
    """Return a synthesizer in the middle of a text that a dialect has encoded so far."""
    counter = itertools.count()
    response = Response.new(Request(model="m"), id="resp_" + "0" * 48, created_at=0)
    synth = Synth(response, ids=lambda prefix: f"{prefix}_{next(counter):048}", clock=time.time)
    for event in [*synth.start(), *synth.feed(Text("Once"))]:
        if dialect:
            dialect.encode_sse(event)
    return synth


def main() -> None:
    """Measure."""
    decode = msgspec.json.Decoder(Chunk).decode
    encode = msgspec.json.Encoder().encode
    frame = b"data: " + CHUNK + b"\n\n"
    event = new_synth().feed(Text(" hello"))[0]
    assert isinstance(event, OutputTextDelta)

    def bare() -> bytes:
        decode(CHUNK)
        return encode(event)

    def chain(dialect: Dialect) -> Callable[[], object]:
        synth, sent = new_synth(dialect), b""

        def run() -> None:
            nonlocal sent
            text = decode(CHUNK).choices[0].delta.content or ""
            for made in synth.feed(Text(text)):
                sent = dialect.encode_sse(made)

        return run

    parser, synth, dialect = sse.Decoder(), new_synth(), Dialect()
    part = Text(" hello")
    figures = per_call(
        {
            "bare_us": bare,
            "chain_us": chain(Dialect()),
            "chain_openai_us": chain(OpenAIDialect()),
            "chain_chat_us": chain(ChatDialect()),
            "decode_chunk_us": lambda: decode(CHUNK),
            "synth_us": lambda: synth.feed(part),
            "event_to_bytes_us": lambda: dialect.encode_sse(event),
            "upstream_sse_us": lambda: parser.feed(frame),
        }
    )
    figures["chain_over_bare"] = figures["chain_us"] / figures["bare_us"]
    rows = [(name.removesuffix("_us"), value, "µs") for name, value in figures.items()]
    rows[-1] = ("chain over bare", figures["chain_over_bare"], "× (aim: ≤ 4)")
    show("micro: CPU per event, chunk bytes to event bytes", rows, figures)


if __name__ == "__main__":
    main()
