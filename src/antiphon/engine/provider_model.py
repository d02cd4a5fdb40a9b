"""Why a provider could not be asked: errors that name it and the remedy."""

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from msgspec.structs import replace

from antiphon.adapters.base import (
    Adapter,
    Capabilities,
    Decoder,
    Prompt,
    Provider,
    Transform,
)
from antiphon.adapters.errors import (
    html_page_error,
    redact,
    redact_key,
    redirect_error,
    redirect_target,
)
from antiphon.adapters.features import remove_unsupported
from antiphon.adapters.json_via_tool import encode_prompt
from antiphon.adapters.registry import make_adapter
from antiphon.agents.turn import Turn
from antiphon.engine.interfaces import WriteText
from antiphon.engine.models import Model, PartSink
from antiphon.engine.validation import unused_field_warnings
from antiphon.protocol import parts
from antiphon.protocol.errors import (
    ErrorPayload,
    RequestError,
    UpstreamError,
    describe_for_log,
)
from antiphon.protocol.parts import Part
from antiphon.transport.auth import Signer, make_signer
from antiphon.transport.client import HttpRequest, Transport
from antiphon.transport.connection import HttpResponse, Timeouts
from antiphon.transport.request import Upstream
from antiphon.transport.retry import RetryBudget, RetryPolicy, call_with_retries
from antiphon.wire import json


class UnavailableModel(Model):
    """A model that cannot be asked; another may be, in its place."""

    def __init__(self, name: str, reason: UpstreamError) -> None:
        self.name = self.origin = name
        self._reason = reason

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Say why not."""
        del turn, sink
        raise self._reason


def broken_adapter_error(name: str) -> UpstreamError:
    """Say that a provider cannot be asked because its adapter is broken."""
    message = f"{name}: its adapter is broken."
    return UpstreamError(message, status=500, type="server_error", code="server_error")


def transform_hook_error(name: str, what: str) -> UpstreamError:
    """Say that a provider cannot be asked because the user's own function is broken."""
    message = f"{name}: its transform_request {what}."
    return UpstreamError(message, status=500, type="server_error", code="server_error")


def credentials_error(name: str, error: UpstreamError) -> UpstreamError:
    """Say whose credentials are not there."""
    return UpstreamError(
        f"{name}: {error}",
        status=error.status,
        type=error.payload.type,
        code=error.payload.code,
        retryable=error.retryable,
    )


def missing_api_key_error(name: str, variable: str) -> UpstreamError:
    """Say that a provider cannot be asked for want of a key."""
    return UpstreamError(
        f"{name}: {variable} is not set, or holds no key. "
        "Set it to this provider's key, and start again.",
        status=401,
        type="authentication_error",
        code="missing_credentials",
    )


logger = logging.getLogger("antiphon.engine")

MAX_LEARNED_MODELS = 1000
"""How many models of a provider may be remembered to need another way of asking."""

MAX_ADAPTERS_TRIED = 5
"""In how many ways one turn may be asked: a model may lack several things, and says one a time."""

ERROR_BODY_SECONDS = 3.0
"""How long a provider may take to say why it refuses, once its status has come; less than a stream
waits before it answers 200."""

PATH_SEPARATORS = re.compile(r"[/\\]")
DOT_SEGMENTS = frozenset({".", ".."})
"""What no part of a model's name may be: it may stand in an address, and lead elsewhere there."""


class ProviderClient:
    """A provider that can be asked."""

    def __init__(
        self,
        provider: Provider,
        key: str | None,
        transport: Transport,
        retry_policy: RetryPolicy,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.provider = provider
        self.default_adapter = make_adapter(provider)
        """The adapter that is asked through as long as nothing else is known."""
        self._learned_adapters: dict[str, Adapter] = {}
        self._transport = transport
        self._key = key
        self._retry_policy = retry_policy
        self._timeouts = timeouts
        if provider.timeouts:
            self._timeouts = replace(timeouts or Timeouts(), **provider.timeouts)
        self._retry_budget = RetryBudget()
        self._signer: Signer = make_signer(self.default_adapter.credential(), key)
        self._secret = key.strip() if key else ""

    def redact_key(self, text: str) -> str:
        """Return a provider's words without our own key, which it may have repeated."""
        return redact_key(text, self._secret)

    def adapter_for_model(self, model: str) -> Adapter:
        """Return the adapter that a model is asked through."""
        return self._learned_adapters.get(model, self.default_adapter)

    def learn_adapter(self, model: str, adapter: Adapter) -> None:
        """Ask a model in another way from now on, which has worked."""
        name = f"{self.provider.name}/{model}"
        logger.info("%.100r is asked as '%s' from now on", name, adapter.name)
        if len(self._learned_adapters) >= MAX_LEARNED_MODELS:
            self._learned_adapters.clear()  # they are learnt again
        if type(before := self.adapter_for_model(model)) is type(adapter):
            adapter.rejected_features |= (
                before.rejected_features
            )  # of two requests at once each may find something
        self._learned_adapters[model] = adapter

    async def send(
        self, adapter: Adapter, request: Upstream, *, short_retries: bool = False
    ) -> HttpResponse:
        """Send a request, again if need be; return its answer when it is a good one."""
        if self.provider.api_key_env and self._key is None:
            raise missing_api_key_error(self.provider.name, self.provider.api_key_env)
        data = b"" if request.body is None else await self._encode_body(request.body)
        self._retry_budget.deposit()
        patience = self._retry_policy.before_fallback if short_retries else self._retry_policy
        return await call_with_retries(
            partial(self._send_once, adapter, request, data), patience, self._may_retry
        )

    async def _encode_body(self, body: object) -> bytes:
        """Write a request's body, as the user's own function changes it if there is one."""
        hook = self.provider.transform_request
        if hook is None:
            return json.encode(body)
        name = self.provider.name
        try:
            changed = await apply_transform(hook, body)
        except (RequestError, UpstreamError):
            raise  # it knows what it does
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            logger.exception("%s: its transform_request failed", name)
            raise transform_hook_error(name, f"failed ({type(error).__name__})") from None
        if not isinstance(changed, dict):
            logger.error("%s: its transform_request returned %s", name, type(changed).__name__)
            raise transform_hook_error(name, "returned no object")
        try:
            return json.encode(cast("dict[object, object]", changed))
        except json.JSONError:
            logger.exception("%s: its transform_request returned no JSON", name)
            raise transform_hook_error(name, "returned what cannot be written as JSON") from None

    def _may_retry(self, error: UpstreamError, wait: float) -> bool:
        if not self._retry_budget.try_withdraw():
            return False
        word = describe_for_log(error.status, error.payload)
        logger.info("%s: %s; trying again in %.1f s", self.provider.name, word, wait)
        return True

    async def _send_once(self, adapter: Adapter, request: Upstream, body: bytes) -> HttpResponse:
        headers = {"content-type": "application/json", **request.headers, **self.provider.headers}
        described = Upstream(
            url=request.url, body=request.body, headers=headers, method=request.method
        )
        headers |= await self._auth_headers(described, body)
        exchange = await self._transport.open(
            HttpRequest(
                url=request.url,
                method=request.method,
                headers=headers,
                body=body,
                timeouts=self._timeouts,
                peer_name=self.provider.name,
            )
        )
        good = 200 <= exchange.status < 300
        if good and "text/html" not in exchange.headers.get("content-type", ""):
            return exchange
        answer = await exchange.read_and_release_within(ERROR_BODY_SECONDS)
        if good:
            raise html_page_error(self.provider.name)
        status, told = exchange.status, exchange.headers
        if place := redirect_target(status, told, request.url, adapter.base_url):
            raise redirect_error(self.provider.name, status, self.redact_key(place))
        heard = self.redact_key(answer.decode(errors="replace")).encode()
        raise adapter.decode_error(status, told, heard)

    async def _auth_headers(self, request: Upstream, body: bytes) -> dict[str, str]:
        """Return the headers that show who asks; the log is told why there are none."""
        try:
            return await self._signer.headers(request, body)
        except UpstreamError as error:
            name, cause = self.provider.name, error.__cause__
            if cause:
                words = " ".join(redact(self.redact_key(str(cause))).split())
                logger.warning("%s: %s: %s", name, type(cause).__name__, words)
            raise credentials_error(name, error) from None


async def apply_transform(hook: Transform, body: object) -> object:
    """Have a request's body changed as the user wants it."""
    made = hook(cast("dict[str, object]", body))
    made = await made if inspect.isawaitable(made) else made
    return body if made is None else made


def is_valid_model_name(model: str) -> bool:
    """Tell whether a model can be called so."""
    return bool(model) and DOT_SEGMENTS.isdisjoint(PATH_SEPARATORS.split(model))


class EncodedPrompt(NamedTuple):
    """One turn, written for one adapter."""

    adapter: Adapter
    prompt: Prompt
    request: Upstream
    decoder: Decoder


class ProviderModel(Model):
    """One model of a provider."""

    warns_of_unused_fields = True

    def __init__(self, client: ProviderClient, model: str, *, short_retries: bool = False) -> None:
        self._client = client
        self._model = model
        self._short_retries = short_retries
        provider = client.provider
        self.name = f"{provider.name}/{model}"
        self.origin = f"{provider.name}/{client.adapter_for_model(model).vendor(model)}".rstrip("/")
        self._capabilities = provider.models.get(model, Capabilities())
        self.window = self._capabilities.window

    def with_short_retries(self) -> Model:
        """Return the same model, which does not wait long for its provider."""
        return ProviderModel(self._client, self._model, short_retries=True)

    async def answer(self, turn: Turn, sink: PartSink) -> None:
        """Ask the provider, and hear its answer."""
        question = first = self._encode_first(turn, live=sink.streaming)
        for others in reversed(range(MAX_ADAPTERS_TRIED)):
            try:
                await self._send(question, turn, sink)
                break
            except UpstreamError as error:
                other = (
                    question.adapter.fallback_adapter(error)
                    if others and not sink.has_output
                    else None
                )
                if other is None:
                    raise
            question = self._encode(other, turn, live=sink.streaming)
        if question is not first:
            self._client.learn_adapter(self._model, question.adapter)

    async def count(self, turn: Turn) -> int | None:
        """Have the provider count, if it does; raises RequestError."""
        adapter = self._client.default_adapter
        counting = adapter.count_tokens_request(
            remove_unsupported(adapter, self._prompt(turn, live=False))
        )
        if counting is None:
            return None
        asked, counted = counting
        try:
            exchange = await self._client.send(adapter, asked)
            return counted(json.decode_lenient(await exchange.read_and_release()))
        except (UpstreamError, ValueError) as error:
            logger.info("%s did not count its tokens: %s", self.name, type(error).__name__)
            return None

    def _prompt(self, turn: Turn, *, live: bool) -> Prompt:
        return Prompt(self._model, turn.request, turn.items, live, self._capabilities)

    def _encode_first(self, turn: Turn, *, live: bool) -> EncodedPrompt:
        """Write a turn as the model is known to want it, or as any other if it cannot be so.

        What was found out by other requests is no reason to refuse this one: let the provider.
        """
        known, own = self._client.adapter_for_model(self._model), self._client.default_adapter
        try:
            return self._encode(known, turn, live=live)
        except RequestError:
            if known is own:
                raise
        return self._encode(own, turn, live=live)

    def _encode(self, adapter: Adapter, turn: Turn, *, live: bool) -> EncodedPrompt:
        """Write a turn for an adapter; raises RequestError."""
        prompt = self._prompt(turn, live=live)
        return EncodedPrompt(adapter, prompt, *encode_prompt(adapter, prompt))

    async def _send(self, encoded: EncodedPrompt, turn: Turn, sink: PartSink) -> None:
        adapter, prompt, sent, decoder = encoded
        exchange = await self._client.send(adapter, sent, short_retries=self._short_retries)
        try:
            unread = [] if adapter.passes_unknown_fields else unused_field_warnings(turn.request)
            if warned := unread + prompt.warnings:
                sink.feed(warned)
            sink.mark_answering()
            hearing = ResponseReader(exchange, decoder, sink, self._client.redact_key)
            await hearing.read(streaming=sink.streaming)
        finally:
            exchange.release()


class ResponseReader:
    """One answer being heard."""

    def __init__(
        self, exchange: HttpResponse, decoder: Decoder, sink: PartSink, redact: Callable[[str], str]
    ) -> None:
        self._exchange = exchange
        self._decoder = decoder
        self._sink = sink
        self._redact = redact
        self._match_text = decoder.text_fast_path
        self._write_text: WriteText | None = None
        """Takes those words past the parts, if that can be now."""
        self._failed = False
        """Whether the provider itself has said that it broke."""

    async def read(self, *, streaming: bool) -> None:
        """Hear the answer to its end; raises UpstreamError if it breaks before it has begun."""
        kind = self._exchange.headers.get("content-type", "").lower()
        if streaming and kind:
            streaming = self._decoder.is_stream(kind)
        if streaming or "event-stream" in kind:
            await self._read_stream()
        else:
            body = await self._exchange.read()
            self._forward(self._decoder.feed_whole(body))

    async def _read_stream(self) -> None:
        exchange = self._exchange
        exchange.subscribe(self._receive)
        try:
            while not await exchange.wait():
                await self._sink.drain()
                exchange.resume()
        except UpstreamError:
            if self._failed or not self._decoder.finished:  # or else only its last words were lost
                raise
        self._forward(self._decoder.close())

    def _receive(self, data: bytes) -> None:
        """Hear some bytes. Words after words go straight to where they are sent, if they can."""
        if (flow := self._write_text) and (words := self._match_text) and (said := words(data)):
            if flow(said):
                self._exchange.pause()
            return
        heard = self._decoder.feed(data)
        if heard and type(heard[-1]) is not parts.Failure:
            wanted = self._sink.feed(heard)
        else:
            wanted = self._forward(heard)
        if self._decoder.done or not wanted:
            self._exchange.stop()
        elif self._sink.full:
            self._exchange.pause()
        self._match_text = self._decoder.text_fast_path
        self._write_text = self._sink.text_fast_path() if self._match_text else None

    def _forward(self, batch: list[Part]) -> bool:
        """Pass parts on. What breaks before anything was said is raised: others may do better."""
        if not (batch and type(failure := batch[-1]) is parts.Failure):
            return not batch or self._sink.feed(batch)
        failure = replace(failure, error=redact_error(failure.error, self._redact))
        self._sink.feed(batch[:-1])
        if self._sink.has_output:
            return self._sink.feed([failure])
        self._failed = True
        raise failure.exception


def redact_error(error: ErrorPayload, redact: Callable[[str], str]) -> ErrorPayload:
    """Return an error none of whose words tells what must not be told."""
    return replace(
        error,
        message=redact(error.message),
        type=redact(error.type),
        code=error.code and redact(error.code),
        param=error.param and redact(error.param),
    )


class Providers:
    """The models of every provider that is configured."""

    def __init__(
        self,
        providers: Sequence[Provider],
        keys: Mapping[str, str],
        transport: Transport,
        retry_policy: RetryPolicy,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._keys = keys
        self._transport = transport
        self._retry_policy = retry_policy
        self._timeouts = timeouts
        self._clients: dict[str, ProviderClient] = {}

    @property
    def names(self) -> list[str]:
        """The models that the configuration names."""
        known = self._providers.values()
        return [f"{provider.name}/{model}" for provider in known for model in provider.models]

    def find(self, name: str) -> Model | None:
        """Return the model of a name, if its provider is configured."""
        provider, _, model = name.partition("/")
        if not self._is_configured(provider, model):
            return None
        try:
            return ProviderModel(self._client_for(provider), model)
        except (Exception, SystemExit):  # an adapter may be other people's code
            logger.exception("%s: its adapter broke", provider)
            return UnavailableModel(name, broken_adapter_error(provider))

    def _is_configured(self, provider: str, model: str) -> bool:
        return is_valid_model_name(model) and provider in self._providers

    def _client_for(self, name: str) -> ProviderClient:
        """Return the way to a provider; its adapter is imported when it is first asked."""
        if name not in self._clients:
            provider = self._providers[name]
            key = self._keys.get(name)
            self._clients[name] = ProviderClient(
                provider, key, self._transport, self._retry_policy, self._timeouts
            )
        return self._clients[name]
