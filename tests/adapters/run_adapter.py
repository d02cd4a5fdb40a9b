"""Adapters without a network: encode a request, decode bytes into a response."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from antiphon.adapters.base import Adapter, Capabilities, Decoder, Prompt, Provider
from antiphon.adapters.json_via_tool import encode_prompt
from antiphon.protocol import parts
from antiphon.protocol.checker import find_violations
from antiphon.protocol.events import Event
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.transport.request import Upstream
from antiphon.wire.openresponses import decode_request


@dataclass(frozen=True)
class EncodedRequest:
    """An encoded request, the decoder of its answer, and the warnings."""

    prompt: Prompt
    sent: Upstream
    decoder: Decoder

    @property
    def body(self) -> dict:
        """The body that is sent."""
        assert isinstance(self.sent.body, dict)
        return self.sent.body

    @property
    def warnings(self) -> list[parts.Warn]:
        """The warnings about dropped features."""
        return self.prompt.warnings


def make_adapter(kind: type[Adapter], **options: object) -> Adapter:
    """Create an adapter with a provider's options."""
    name = str(options.pop("name", kind.name))
    return kind(Provider(name=name, adapter=kind.name, **options))  # type: ignore[arg-type]


def encode_request(
    adapter: Adapter, *, upstream_model: str = "some-model", capabilities: Capabilities | None = None, **fields: object
) -> EncodedRequest:
    """Encode a request; `fields` are those of a Responses request."""
    fields = {"model": "x/y", "input": "Hello"} | fields
    request = decode_request(fields)
    prompt = Prompt(upstream_model, request, request.input, request.stream, capabilities or Capabilities())
    return EncodedRequest(prompt, *encode_prompt(adapter, prompt))


def decode_parts(asked: EncodedRequest, body: bytes, *, pieces: int = 0, stream: bool = True) -> list[Part]:
    """Decode an answer in chunks of `pieces` bytes, or, without `stream`, as a whole."""
    if not stream:
        return asked.decoder.feed_whole(body)
    size = pieces or max(1, len(body))
    decoded: list[Part] = []
    for start in range(0, len(body), size):
        decoded += asked.decoder.feed(body[start : start + size])
    return decoded + asked.decoder.close()


def synthesize(asked: EncodedRequest, decoded: Iterable[Part]) -> tuple[list[Event], Response]:
    """Return the events for some parts, which must obey every rule, and the final response."""
    numbers = count()
    begun = Response.new(asked.prompt.request, id="resp_test", created_at=1)
    synth = Synth(begun, ids=lambda prefix: f"{prefix}_{next(numbers)}", clock=lambda: 2.0)
    events = list(synth.start())
    for part in decoded:
        events += synth.feed(part)  # it rejects parts after a failure
    events += synth.end()
    assert find_violations(events) == []
    return events, synth.response


def decode_response(asked: EncodedRequest, body: bytes, *, pieces: int = 0, stream: bool = True) -> Response:
    """Return the response for an upstream's bytes."""
    return synthesize(asked, decode_parts(asked, body, pieces=pieces, stream=stream))[1]
