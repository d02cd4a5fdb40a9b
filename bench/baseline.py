"""A minimal translating gateway in plain Python, to compare ours with.

It uses the same event loop, HTTP parser and JSON library, and leaves everything else out: no
checks, limits, state or lifecycle, one dialect each way. It decodes every chunk and encodes every
event. For answers that are not streamed it only copies the text, in a shape that no client would
accept.
"""

import asyncio
import sys

import httptools
import msgspec
import uvloop

from antiphon.adapters.openai_chat.wire_types import Chunk
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.struct import encode

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\ncontent-length: %d\r\n\r\n%b"
END = b'event: response.completed\ndata: {"type":"response.completed"}\n\n'
ID = "msg_" + "0" * 48

read = msgspec.json.Decoder(Chunk).decode


class Upstream(asyncio.Protocol):
    """A connection to the upstream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport: asyncio.Transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def ask(self, body: bytes, client: asyncio.Transport) -> None:
        """Send a request on behalf of a client."""
        self._client, self._streamed = client, b'"stream": true' in body
        self._number, self._over = 0, False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(ASK % (len(body), body))
        if self._streamed:
            client.write(HEAD)

    def on_message_complete(self) -> None:
        """Forget the connection."""
        self._over = True

    def data_received(self, data: bytes) -> None:
        """Translate the received bytes and send them to the client."""
        self._parser.feed_data(data)
        if self._streamed:
            told = [self._delta(words) for words in self._words()]
            if self._over:
                told.append(b"%x\r\n%b\r\n0\r\n\r\n" % (len(END), END))
            if told:
                self._client.write(b"".join(told))
            self._pieces.clear()
        elif self._over:
            said = read(b"".join(self._pieces)).choices or []
            body = encode({"output": [choice.message and choice.message.content for choice in said]})
            self._client.write(WHOLE % (len(body), body))
        if self._over:
            FREE.append(self)

    def _words(self) -> list[str]:
        lines = b"".join(self._pieces).split(b"\n\n")
        chunks = [read(line[6:]).choices for line in lines if line.startswith(b"data: {")]
        said = [choices[0].delta.content for choices in chunks if choices and choices[0].delta]
        return [words for words in said if isinstance(words, str) and words]

    def _delta(self, words: str) -> bytes:
        event = OutputTextDelta(sequence_number=self._number, item_id=ID, output_index=0, content_index=0, delta=words)
        self._number += 1
        data = b"event: response.output_text.delta\ndata: %b\n\n" % encode(event)
        return b"%x\r\n%b\r\n" % (len(data), data)


FREE: list[Upstream] = []
"""Idle connections to the upstream."""


class Client(asyncio.Protocol):
    """A connection from a client."""

    upstream = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport: asyncio.Transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        self._heard = b""

    def data_received(self, data: bytes) -> None:
        """Send the upstream request once the body is complete."""
        self._heard += data
        body = self._heard.partition(b"\r\n\r\n")[2]
        if self._heard.startswith(b"GET"):
            self._transport.write(WHOLE % (2, b"{}"))
        elif not body.endswith(b"}"):
            return
        elif FREE:
            FREE.pop().ask(body, self._transport)
        else:
            self._asking = asyncio.ensure_future(self._ask(body))
        self._heard = b""

    async def _ask(self, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(Upstream, "127.0.0.1", self.upstream)
        made[1].ask(body, self._transport)


async def serve(port: int, upstream: int) -> None:
    """Run the gateway."""
    Client.upstream = upstream
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Client, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
