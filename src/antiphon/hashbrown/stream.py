"""`stream_text`: answers one request of Hashbrown's from one provider, for an endpoint of your own."""

import asyncio
import base64
import hmac
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import cache

from antiphon.adapters.base import Adapter, ConfigSource, Provider, Transform
from antiphon.adapters.registry import adapter_class
from antiphon.engine.engine import Engine
from antiphon.engine.models import Model, Models
from antiphon.engine.provider_model import ProviderClient, ProviderModel, is_valid_model_name
from antiphon.engine.sealing import KeyRing
from antiphon.hashbrown.answer import Described, FrameSink, HashbrownAnswer, decode_or_error
from antiphon.hashbrown.threads import ThreadStorage
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError
from antiphon.protocol.events import Event
from antiphon.protocol.surrogates import repair_value
from antiphon.transport.client import HttpClient, Transport
from antiphon.transport.retry import RetryPolicy
from antiphon.wire.hashbrown.frames import HashbrownDialect
from antiphon.wire.hashbrown.request import Json

logger = logging.getLogger("antiphon.hashbrown")

LoadThread = Callable[[str], Sequence[Json] | Awaitable[Sequence[Json]]]
"""Returns the messages of a thread; raises ThreadError if there is none."""

SaveThread = Callable[[Sequence[Json], str | None], str | Awaitable[str]]
"""Saves the messages of a thread, a new one if the id is None; returns its id."""

MAX_BUFFERED = 256 * 1024
"""How many bytes wait for a slow reader before the provider has to wait."""


def stream_text(  # noqa: PLR0913 - the options of one call
    request: Mapping[str, object],
    *,
    upstream: str | Adapter,
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    transform_request: Transform | None = None,
    load_thread: LoadThread | None = None,
    save_thread: SaveThread | None = None,
    transport: Transport | None = None,
) -> AsyncGenerator[bytes]:
    """Return the encoded frames of the answer to a request of Hashbrown's; each chunk is one or several frames.

    `upstream` is the name of an adapter, such as "openai" or "anthropic", or an adapter with its own provider. The
    request's `model` is the provider's name for it. `transform_request` may change the body that is sent; it may be
    async. A `transport` is shared by several calls; without one, each call has connections of its own.

    Every error in the request or of the provider becomes the last frame. Closing the iterator cancels the request to
    the provider. Raises ValueError for arguments that do not fit together.
    """
    if (load_thread is None) != (save_thread is None):
        given, missing = ("load_thread", "save_thread") if save_thread is None else ("save_thread", "load_thread")
        raise ValueError(f"{given} is given without {missing}. Give both, or neither to have no threads.")
    if isinstance(upstream, Adapter):
        options = {"base_url": base_url, "headers": headers, "transform_request": transform_request}
        for name, value in options.items():
            if value is not None:
                raise ValueError(f"{name} is given beside an adapter. Set it in the adapter's Provider.")
        adapter = upstream
    else:
        adapter = make_upstream(
            Provider(
                name=upstream,
                adapter=upstream,
                base_url=base_url,
                headers=headers or {},
                transform_request=transform_request,
            )
        )
    threads = None
    if load_thread is not None and save_thread is not None:
        if not adapter.has_threads:
            raise ValueError(
                f"load_thread and save_thread cannot be used with '{adapter.name}': keep its threads yourself."
            )
        threads = FunctionThreads(load_thread, save_thread)
    return stream_answer(request, adapter, api_key, threads, transport)


def make_upstream(provider: Provider) -> Adapter:
    """Return the adapter of a provider; raises ValueError if it needs more than the provider has."""
    kind = adapter_class(provider.adapter)
    fields = {"base_url": provider.base_url} if provider.base_url else {}
    source = ConfigSource(name=provider.name, table={"adapter": provider.adapter}, environ={}, in_file=False)
    if missing := kind.missing_field(fields, source):
        field, _ = missing
        raise ValueError(f"'{provider.adapter}' needs its {field}. Give base_url, or an adapter with its own Provider.")
    return kind(provider)


async def stream_answer(
    request: Mapping[str, object],
    adapter: Adapter,
    api_key: str | None,
    threads: ThreadStorage | None,
    transport: Transport | None,
) -> AsyncGenerator[bytes]:
    """Yield the frames of one answer."""
    client = transport or HttpClient()
    models = UpstreamModels(ProviderClient(adapter.provider, api_key, client, RetryPolicy(), adapter=adapter))
    engine = Engine(models, key_ring=derive_key_ring(api_key) if api_key else process_key_ring())
    dialect = HashbrownDialect()
    frames = FrameBuffer(dialect)
    answer = HashbrownAnswer(engine, dialect, frames, threads, describe_error)
    # JavaScript's halves of surrogate pairs; the server reads them so, too.
    task = asyncio.create_task(answer.write(decode_or_error(repair_value(request))))
    task.add_done_callback(lambda _: frames.close())
    try:
        while chunk := await frames.take():
            yield chunk
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if transport is None:
            client.close()
        # asyncio closes sockets in the next iteration of its loop, which may end with this call.
        await asyncio.sleep(0)


class FrameBuffer(FrameSink):
    """Holds the frames of an answer until they are read."""

    def __init__(self, dialect: HashbrownDialect) -> None:
        self._encode = dialect.encode_frames
        self._chunks: list[bytes] = []
        self._size = 0
        self._closed = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def full(self) -> bool:
        return self._size > MAX_BUFFERED

    def write(self, events: list[Event]) -> None:
        """Take events as frames; some have none."""
        self.buffer(b"".join(map(self._encode, events)))

    def buffer(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
            self._size += len(chunk)
            self._news.set()

    async def drain(self) -> None:
        """Wait until there is room."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Mark the end; what is buffered can still be taken."""
        self._closed = True
        self._news.set()

    async def take(self) -> bytes:
        """Wait for frames and return all of them; empty at the end."""
        await self._news.wait()
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._room.set()
        if not self._closed:
            self._news.clear()
        return chunk


class UpstreamModels(Models):
    """The models of one provider, under the provider's own names."""

    def __init__(self, client: ProviderClient) -> None:
        super().__init__()
        self._client = client

    def find(self, name: str) -> list[Model]:
        return [ProviderModel(self._client, name)] if is_valid_model_name(name) else []


class FunctionThreads(ThreadStorage):
    """A thread storage that consists of two functions, which may be async."""

    def __init__(self, load: LoadThread, save: SaveThread) -> None:
        self._load = load
        self._save = save

    async def load(self, thread_id: str, *, tenant: str) -> Sequence[Json]:
        del tenant
        loaded = self._load(thread_id)
        return await loaded if inspect.isawaitable(loaded) else loaded

    async def save(self, messages: Sequence[Json], thread_id: str | None, *, tenant: str) -> str:
        del tenant
        saved = self._save(messages, thread_id)
        return await saved if inspect.isawaitable(saved) else saved


def derive_key_ring(api_key: str) -> KeyRing:
    """Return a key ring made from an API key: what a thread keeps sealed stays readable while the key is the same."""
    digest = hmac.digest(api_key.encode(), b"antiphon: sealed reasoning in Hashbrown threads", "sha256")
    return KeyRing([base64.b64encode(digest).decode()])


@cache
def process_key_ring() -> KeyRing:
    """Return the key ring of calls without an API key; it lasts as long as the process."""
    return KeyRing.ephemeral()


def describe_error(error: Exception) -> Described:
    """Return what a client may know of an error; our own failures are logged with traceback."""
    if isinstance(error, RequestError | UpstreamError):
        return error.payload, error.headers
    logger.error("an answer failed", exc_info=error)
    return ErrorPayload(message="Internal error. The log has it.", type="server_error", code="internal_error"), {}
