"""A scripted upstream on a real socket: plays a provider's bytes and records the requests.

    with upstream(sse(b'data: {"choices": …}\n\n')) as provider:
        ...                         # anything that calls provider.url
        provider.requests[0].json   # what it received

Each answer is played once, the last one repeatedly. `chunk_size` is the size of each write (1 means
byte by byte; 0, the whole body). `cut` closes the connection before the end of the body. `pause` is
the delay between two writes in seconds, `delay` the delay before the status line.
"""

import json
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

STATUSES_WITHOUT_BODY = frozenset({204, 304})
"""Statuses that have no body."""


@dataclass(frozen=True)
class ScriptedAnswer:
    """The answer to one request."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunk_size: int = 0
    cut: bool = False
    pause: float = 0.0
    delay: float = 0.0


def sse_answer(body: bytes, **options: object) -> ScriptedAnswer:
    """Return an answer of Server-Sent Events."""
    return ScriptedAnswer(body, headers={"content-type": "text/event-stream"}, **options)  # type: ignore[arg-type]


def ndjson_answer(body: bytes, **options: object) -> ScriptedAnswer:
    """Return an answer of newline-delimited JSON."""
    return ScriptedAnswer(body, headers={"content-type": "application/x-ndjson"}, **options)  # type: ignore[arg-type]


def json_answer(value: object, status: int = 200, **headers: str) -> ScriptedAnswer:
    """Return a JSON answer."""
    lines = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return ScriptedAnswer(json.dumps(value).encode(), status, lines)


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the upstream received it; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        """The body as JSON."""
        return json.loads(self.body)


class ScriptedUpstream:
    """A server that plays scripted answers."""

    def __init__(self, *answers: ScriptedAnswer) -> None:
        self.answers = list(answers)
        self.requests: list[ReceivedRequest] = []
        self.disconnects = 0
        """How many clients disconnected before the answer was complete."""
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def play(self, *answers: ScriptedAnswer) -> None:
        """Play other answers from now on."""
        with self._lock:
            self.answers = list(answers)

    def close(self) -> None:
        """Close all sockets.

        Each thread closes its own socket: if another thread closed it, the file descriptor could
        already belong to the next upstream.
        """
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while received := self._receive(stream, connection):
                self.requests.append(received)
                with self._lock:
                    answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if not self._play(connection, answer):
                    break
        except OSError:
            self.disconnects += 1
        finally:
            self._open.discard(connection)
            stream.close()
            connection.close()

    def _receive(self, stream, connection: socket.socket) -> ReceivedRequest | None:
        first = stream.readline()
        if not first:
            return None
        method, path, _ = first.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := stream.readline().rstrip(b"\r\n")) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(stream.readline(), 16):
                body += stream.read(size)
                stream.readline()
            stream.readline()
        else:
            body = stream.read(int(headers.get("content-length", "0")))
        return ReceivedRequest(method, path, headers, body)

    def _play(self, connection: socket.socket, answer: ScriptedAnswer) -> bool:
        if answer.delay and select.select([connection], [], [], answer.delay)[0]:
            raise ConnectionResetError("the client left before it was answered")
        head = [f"HTTP/1.1 {answer.status} Scripted"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        if answer.status in STATUSES_WITHOUT_BODY:
            connection.sendall("\r\n".join([*head, "", ""]).encode())
            return not answer.cut
        head += ["transfer-encoding: chunked", "", ""]
        connection.sendall("\r\n".join(head).encode())
        size = answer.chunk_size or max(1, len(answer.body))
        for start in range(0, len(answer.body), size):
            piece = answer.body[start : start + size]
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if answer.pause:
                time.sleep(answer.pause)
        if answer.cut:
            return False
        connection.sendall(b"0\r\n\r\n")
        return True


@contextmanager
def scripted_upstream(*answers: ScriptedAnswer) -> Iterator[ScriptedUpstream]:
    """Run a scripted upstream."""
    scripted = ScriptedUpstream(*(answers or (ScriptedAnswer(),)))
    try:
        yield scripted
    finally:
        scripted.close()
