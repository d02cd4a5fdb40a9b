"""One model of one provider: encode a turn, send it, decode the response bytes into parts.

`ProviderClient` sends requests to one provider, `ProviderModel` answers a turn with it, and
`ResponseReader` reads the response. Nothing here awaits per event: bytes go from the socket through
the decoder into the sink in one call. Retries happen before the first byte of an answer only.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from msgspec.structs import replace

from antiphon.adapters.base import Adapter, Capabilities, Decoder, Prompt, Provider
from antiphon.adapters.errors import TRUNCATED, html_page_error, redact, redact_key, redirect_error, redirect_target
from antiphon.adapters.features import remove_unsupported
from antiphon.adapters.json_via_tool import encode_prompt
from antiphon.adapters.registry import make_adapter
from antiphon.agents.turn import Turn
from antiphon.engine.models import Model, PartSink, WriteText
from antiphon.engine.validation import warn_of_unused_fields
from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, RequestError, UpstreamError, describe_for_log
from antiphon.protocol.parts import Part
from antiphon.transport.auth import credentials_error, make_signer
from antiphon.transport.client import HttpRequest, Transport
from antiphon.transport.connection import HttpResponse, Timeouts
from antiphon.transport.request import Upstream
from antiphon.transport.retry import RetryBudget, RetryPolicy, call_with_retries
from antiphon.wire import json

logger = logging.getLogger("antiphon.engine")

MAX_LEARNED_MODELS = 1000
"""For how many models of a provider a learned adapter is kept."""

MAX_ADAPTERS_TRIED = 5
"""How many adapters one turn may try: a model may lack several features, and an error names one."""

# Less than the server's stream waits before it commits to status 200: the client then still gets
# the provider's own status.
ERROR_BODY_SECONDS = 3.0
"""How long to wait for the body of an error response."""


class ProviderClient:
    """Sends requests to one provider: credentials, retries, error responses."""

    def __init__(
        self,
        provider: Provider,
        key: str | None,
        transport: Transport,
        retry_policy: RetryPolicy,
        timeouts: Timeouts | None = None,
        *,
        adapter: Adapter | None = None,
    ) -> None:
        self.provider = provider
        self.default_adapter = adapter or make_adapter(provider)
        """The adapter of every model for which no other has been learned."""
        self._learned_adapters: dict[str, Adapter] = {}
        self._transport = transport
        self._key = key
        self._retry_policy = retry_policy
        self._timeouts = replace(timeouts or Timeouts(), **provider.timeouts) if provider.timeouts else timeouts
        self._retry_budget = RetryBudget()
        self._signer = make_signer(self.default_adapter.credential(), key)
        self.redact_key: Callable[[str], str] = partial(redact_key, key=key.strip() if key else "")
        """Removes our API key from a provider's text: some error messages repeat it."""

    def adapter_for_model(self, model: str) -> Adapter:
        """Return the learned adapter of a model, or the default one."""
        return self._learned_adapters.get(model, self.default_adapter)

    def learn_adapter(self, model: str, adapter: Adapter) -> None:
        """Use an adapter that has worked for all further requests to a model."""
        logger.info("%.100r uses the adapter '%s' from now on", f"{self.provider.name}/{model}", adapter.name)
        if len(self._learned_adapters) >= MAX_LEARNED_MODELS:
            self._learned_adapters.clear()  # one more failed request each, and they are back
        if type(before := self.adapter_for_model(model)) is type(adapter):
            # Two concurrent requests may each have learned a different missing feature.
            adapter.rejected_features |= before.rejected_features
        self._learned_adapters[model] = adapter

    async def send(self, adapter: Adapter, request: Upstream, *, short_retries: bool = False) -> HttpResponse:
        """Send a request, with retries; return a successful response or raise UpstreamError."""
        if self.provider.api_key_env and self._key is None:
            name, advice = self.provider.name, "Set it to this provider's key, and start again."
            logger.warning("%s: %s is not set, or holds no key. %s", name, self.provider.api_key_env, advice)
            # A caller can neither set the server's variables nor needs to know them.
            advice = "Ask its operator: its log names what is missing."
            raise credentials_error(f"{name}: This server has no API key for the provider. {advice}")
        body = b"" if request.body is None else await self._encode_body(request.body)
        self._retry_budget.deposit()
        policy = self._retry_policy.before_fallback if short_retries else self._retry_policy
        return await call_with_retries(partial(self._send_once, adapter, request, body), policy, self._may_retry)

    async def _encode_body(self, body: object) -> bytes:
        """Encode a request body after the user's `transform_request` hook, if there is one."""
        hook = self.provider.transform_request
        if hook is None:
            return json.encode(body)
        try:
            result = hook(cast("dict[str, object]", body))
            changed = await result if inspect.isawaitable(result) else result
            if changed is None:  # the hook has changed the body in place
                changed = body
            if isinstance(changed, dict):
                return json.encode(cast("dict[object, object]", changed))
            problem = "returned no object"
            logger.error("%s: its transform_request returned %s", self.provider.name, type(changed).__name__)
        except (RequestError, UpstreamError, asyncio.CancelledError):
            raise  # the hook rejects the request on purpose, with a status, or the client has left
        except json.JSONError:
            problem = "returned what cannot be written as JSON"
            logger.exception("%s: its transform_request %s", self.provider.name, problem)
        except BaseException as error:  # the user's code may raise anything, a Rust extension's panic too
            problem = f"failed ({type(error).__name__})"
            logger.exception("%s: its transform_request failed", self.provider.name)
        raise custom_code_error(self.provider.name, f"transform_request {problem}")

    def _may_retry(self, error: UpstreamError, wait: float) -> bool:
        if not self._retry_budget.try_withdraw():
            return False
        reason = describe_for_log(error.status, error.payload)
        logger.info("%s: %s; trying again in %.1f s", self.provider.name, reason, wait)
        return True

    async def _send_once(self, adapter: Adapter, upstream: Upstream, body: bytes) -> HttpResponse:
        request = HttpRequest(
            url=upstream.url,
            method=upstream.method,
            headers={"content-type": "application/json", **upstream.headers, **self.provider.headers},
            body=body,
            timeouts=self._timeouts,
            peer_name=self.provider.name,
        )
        # Signed anew for each attempt: a signature holds for minutes, a token may have expired.
        signature = await self._auth_headers(request)
        request = replace(request, headers={**request.headers, **signature})
        response = await self._transport.open(request)
        status, headers = response.status, response.headers
        successful = 200 <= status < 300
        if successful and "text/html" not in headers.get("content-type", ""):
            return response
        error_body = await response.read_and_release_within(ERROR_BODY_SECONDS)
        if successful:
            raise html_page_error(self.provider.name)
        if target := redirect_target(status, headers, upstream.url, adapter.base_url):
            raise redirect_error(self.provider.name, status, self.redact_key(target))
        redacted = self.redact_key(error_body.decode(errors="replace")).encode()
        raise adapter.decode_error(status, headers, redacted)

    async def _auth_headers(self, request: HttpRequest) -> dict[str, str]:
        """Return the headers that authenticate a request; log the cause if there are none."""
        try:
            return await self._signer.headers(request)
        except UpstreamError as error:
            name, cause = self.provider.name, error.__cause__
            if cause:
                reason = " ".join(redact(self.redact_key(str(cause))).split())
                logger.warning("%s: %s: %s", name, type(cause).__name__, reason)
            raise credentials_error(f"{name}: {error}", retryable=error.retryable) from None


class ProviderModel(Model):
    """One model of a provider."""

    warns_of_unused_fields = True
    idempotent = True

    def __init__(self, client: ProviderClient, model: str, *, short_retries: bool = False) -> None:
        self._client = client
        self._model = model
        self._short_retries = short_retries
        provider = client.provider
        self.name = f"{provider.name}/{model}"
        self.origin = f"{provider.name}/{client.adapter_for_model(model).vendor(model)}".rstrip("/")
        self.has_threads = client.default_adapter.has_threads
        self._capabilities = provider.models.get(model, Capabilities())
        self.window = self._capabilities.window

    def with_short_retries(self) -> Model:
        return ProviderModel(self._client, self._model, short_retries=True)

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Send a turn to the provider and feed its response to the sink.

        An error may show that the model lacks a feature. The adapter then names another adapter
        that does without, and the one that works is learned.
        """
        items = [*turn.history, *turn.input]  # faster than `turn.items`, whose cache has a lock
        prompt = Prompt(self._model, turn.request, items, sink.streaming, self._capabilities)
        adapter, request, decoder = self._encode(prompt)
        first = adapter
        for others_left in reversed(range(MAX_ADAPTERS_TRIED)):
            try:
                await self._send(adapter, request, decoder, prompt, sink)
                break
            except UpstreamError as error:
                other = adapter.fallback_adapter(error) if others_left and not sink.has_output else None
                if other is None:
                    raise
            adapter = other
            prompt.warnings.clear()  # they were about the adapter that failed
            request, decoder = encode_prompt(adapter, prompt)
        if adapter is not first:
            self._client.learn_adapter(self._model, adapter)

    async def count(self, turn: Turn) -> int | None:
        """Ask the provider for a token count, if it has an endpoint for it; raises RequestError."""
        adapter = self._client.default_adapter
        prompt = Prompt(self._model, turn.request, turn.items, False, self._capabilities)
        counting = adapter.count_tokens_request(remove_unsupported(adapter, prompt))
        if counting is None:
            return None
        request, decode_count = counting
        try:
            response = await self._client.send(adapter, request)
            return decode_count(json.decode_lenient(await response.read_and_release()))
        except (UpstreamError, ValueError) as error:
            logger.info("%s did not count its tokens: %s", self.name, type(error).__name__)
            return None

    def _encode(self, prompt: Prompt) -> tuple[Adapter, Upstream, Decoder]:
        """Encode a prompt with the learned adapter, or else the default; raises RequestError."""
        learned = self._client.adapter_for_model(self._model)
        default = self._client.default_adapter
        try:
            return learned, *encode_prompt(learned, prompt)
        except RequestError:
            # What other requests have taught is no reason to reject this one: ask the provider.
            if learned is default:
                raise
        prompt.warnings.clear()
        return default, *encode_prompt(default, prompt)

    async def _send(
        self, adapter: Adapter, request: Upstream, decoder: Decoder, prompt: Prompt, sink: PartSink
    ) -> None:
        response = await self._client.send(adapter, request, short_retries=self._short_retries)
        try:
            unused = [] if adapter.passes_unknown_fields else warn_of_unused_fields(prompt.request)
            if warnings := unused + prompt.warnings:
                sink.feed(warnings)
            sink.mark_answering()
            reader = ResponseReader(response, decoder, sink, self._client.redact_key)
            await reader.read(streaming=sink.streaming)
        finally:
            response.release()


class ResponseReader:
    """Reads one HTTP response: feeds its bytes to the decoder, and the parts to the sink."""

    def __init__(self, response: HttpResponse, decoder: Decoder, sink: PartSink, redact: Callable[[str], str]) -> None:
        self._response = response
        self._decoder = decoder
        self._sink = sink
        self._redact = redact
        self._match_text = decoder.text_fast_path
        self._write_text: WriteText | None = None
        """Takes the texts that `_match_text` finds, if the sink has a fast path now."""
        self._failed = False
        """Whether the provider itself reported a failure."""

    async def read(self, *, streaming: bool) -> None:
        """Read the response to its end; raises UpstreamError for a failure before any output."""
        content_type = self._response.headers.get("content-type", "").lower()
        # Some providers answer a request for a stream with one JSON body, and the other way round.
        if streaming and content_type:
            streaming = self._decoder.is_stream(content_type)
        if streaming or "event-stream" in content_type:
            await self._read_stream()
        else:
            body = await self._response.read()
            self._forward_end(self._decoder.feed_whole(body))
            self._sink.check_size()

    async def _read_stream(self) -> None:
        response = self._response
        # Not counted per event: this costs the hot path nothing.
        response.on_growth = self._sink.check_size
        response.subscribe(self._receive)
        try:
            while not await response.wait():
                await self._sink.drain()
                response.resume()
        except UpstreamError:
            # A connection that breaks after the finish reason has lost nothing of the answer. But without its end, a
            # compressed stream was not checked against its checksum.
            if self._failed or response.is_cut or not self._decoder.finished:
                raise
        self._forward_end(self._decoder.close())

    def _receive(self, data: bytes) -> None:
        """Decode received bytes; plain text deltas take the text fast path if there is one."""
        if (write := self._write_text) and (match := self._match_text) and (texts := match(data)):
            if write(texts):
                self._response.pause()
            return
        batch = self._decoder.feed(data)
        if batch and type(batch[-1]) is not parts.Failure:
            wanted = self._sink.feed(batch)
        else:
            wanted = self._forward(batch)
        # Whatever a provider sends after the end of its answer is not read.
        if self._decoder.done or not wanted:
            self._response.stop()
        elif self._sink.full:
            self._response.pause()
        self._match_text = self._decoder.text_fast_path
        self._write_text = self._sink.text_fast_path() if self._match_text else None

    def _forward_end(self, batch: list[Part]) -> None:
        """Feed the last parts to the sink, without the failure if an end without a reason is accepted."""
        match batch:
            case [*others, parts.Failure(error=ErrorPayload(code=TRUNCATED.code))] if not self._decoder.needs_end:
                self._forward(others)
                batch = [] if self._sink.accepts_end() else batch[-1:]
            case _:
                pass
        self._forward(batch)

    def _forward(self, batch: list[Part]) -> bool:
        """Feed parts to the sink; raise a failure that comes before any output."""
        if not (batch and type(failure := batch[-1]) is parts.Failure):
            return not batch or self._sink.feed(batch)
        # A provider that rejects our key in mid-stream may repeat it.
        texts = {name: getattr(failure.error, name) for name in ("message", "type", "code", "param")}
        redacted = {name: self._redact(text) for name, text in texts.items() if text}
        failure = replace(failure, error=replace(failure.error, **redacted))
        self._sink.feed(batch[:-1])
        if self._sink.has_output:
            return self._sink.feed([failure])
        # It can still become an HTTP status, or another model can answer.
        self._failed = True
        raise failure.exception


class Providers:
    """The models of every configured provider."""

    def __init__(self, providers: Sequence[Provider], make_client: Callable[[Provider], ProviderClient]) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._make_client = make_client
        self._clients: dict[str, ProviderClient] = {}

    @property
    def names(self) -> list[str]:
        """The models that the configuration names."""
        return [f"{name}/{model}" for name, provider in self._providers.items() for model in provider.models]

    def find(self, name: str) -> Model | None:
        """Return a model by its name `provider/model`, None if the provider is not configured."""
        provider, _, model = name.partition("/")
        if provider not in self._providers or not is_valid_model_name(model):
            return None
        try:
            if provider not in self._clients:  # the first use imports its adapter
                self._clients[provider] = self._make_client(self._providers[provider])
            return ProviderModel(self._clients[provider], model)
        except BaseException:  # an adapter may be other people's code
            logger.exception("%s: its adapter broke", provider)
            return UnavailableModel(name, custom_code_error(provider, "adapter is broken"))


class UnavailableModel(Model):
    """A model that always raises the same error; an alias may still fall back to another."""

    def __init__(self, name: str, error: UpstreamError) -> None:
        self.name = self.origin = name
        self._error = error

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        del turn, sink
        raise self._error


def is_valid_model_name(model: str) -> bool:
    """Tell whether a model name is safe in a URL path."""
    # These segments would lead to another path.
    return bool(model) and {".", ".."}.isdisjoint(re.split(r"[/\\]", model))


def custom_code_error(name: str, problem: str) -> UpstreamError:
    """Return the error for an adapter or a `transform_request` hook that failed."""
    return UpstreamError(f"{name}: its {problem}.", status=500, type="server_error", code="server_error")
