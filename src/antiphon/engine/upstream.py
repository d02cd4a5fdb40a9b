"""One model of one provider: a turn becomes a request, the answer's bytes become parts.

Nothing here waits per event: the bytes of an answer go from the socket through the decoder into the
sink in one call. Trying again happens before the answer has begun, and never after.
"""

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from msgspec.structs import replace

from antiphon.adapters.ask import ask
from antiphon.adapters.astray import astray, moved, moved_to
from antiphon.adapters.base import Adapter, Capabilities, Decoder, Prompt, Provider, Transform
from antiphon.adapters.carry import carried
from antiphon.adapters.faults import redacted, without_key
from antiphon.adapters.registry import adapter_for
from antiphon.agents.turn import Turn
from antiphon.core import parts
from antiphon.core.errors import ErrorPayload, RequestError, UpstreamError, in_a_word
from antiphon.core.parts import Part
from antiphon.engine.checks import warnings
from antiphon.engine.models import Model, Sink
from antiphon.engine.outlet import Flowing
from antiphon.engine.unasked import Unasked, broken, keyless, misled, unknown
from antiphon.transport.auth import Signer, signer
from antiphon.transport.connection import Exchange, Timeouts
from antiphon.transport.http import HttpRequest, Transport
from antiphon.transport.retry import Budget, Patience, patiently
from antiphon.wire import json
from antiphon.wire.upstream import Upstream

logger = logging.getLogger("antiphon.engine")

MANY_MODELS = 1000
"""How many models of a provider may be remembered to need another way of asking."""

MANY_WAYS = 5
"""In how many ways one turn may be asked: a model may lack several things, and says one a time."""

REFUSAL_SECONDS = 3.0
"""How long a provider may take to say why it refuses, once its status has come; less than a stream
waits before it answers 200."""

STEPS = re.compile(r"[/\\]")
DOTS = frozenset({".", ".."})
"""What no part of a model's name may be: it may stand in an address, and lead elsewhere there."""


class Link:
    """A provider that can be asked."""

    def __init__(
        self,
        provider: Provider,
        key: str | None,
        client: Transport,
        patience: Patience,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.provider = provider
        self.own = adapter_for(provider)
        """The adapter that is asked through as long as nothing else is known."""
        self._others: dict[str, Adapter] = {}
        self._client = client
        self._key = key
        self._patience = patience
        self._timeouts = timeouts
        if provider.timeouts:
            self._timeouts = replace(timeouts or Timeouts(), **provider.timeouts)
        self._budget = Budget()
        self._signer: Signer = signer(self.own.credential(), key)
        self._secret = key.strip() if key else ""

    def hush(self, words: str) -> str:
        """Return a provider's words without our own key, which it may have repeated."""
        return without_key(words, self._secret)

    def adapter(self, model: str) -> Adapter:
        """Return the adapter that a model is asked through."""
        return self._others.get(model, self.own)

    def remember(self, model: str, other: Adapter) -> None:
        """Ask a model in another way from now on, which has worked."""
        name = f"{self.provider.name}/{model}"
        logger.info("%.100r is asked as '%s' from now on", name, other.name)
        if len(self._others) >= MANY_MODELS:
            self._others.clear()  # they are learnt again
        if type(before := self.adapter(model)) is type(other):
            other.lacking |= before.lacking  # of two requests at once each may find something
        self._others[model] = other

    async def open(self, adapter: Adapter, sent: Upstream, *, hurried: bool = False) -> Exchange:
        """Send a request, again if need be; return its answer when it is a good one."""
        if self.provider.api_key_env and self._key is None:
            raise keyless(self.provider.name, self.provider.api_key_env)
        data = b"" if sent.body is None else await self._written(sent.body)
        self._budget.earn()
        patience = self._patience.hurried if hurried else self._patience
        return await patiently(partial(self._once, adapter, sent, data), patience, self._may)

    async def _written(self, body: object) -> bytes:
        """Write a request's body, as the user's own function changes it if there is one."""
        hook = self.provider.transform_request
        if hook is None:
            return json.encode(body)
        name = self.provider.name
        try:
            changed = await transformed(hook, body)
        except (RequestError, UpstreamError):
            raise  # it knows what it does
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            logger.exception("%s: its transform_request failed", name)
            raise misled(name, f"failed ({type(error).__name__})") from None
        if not isinstance(changed, dict):
            logger.error("%s: its transform_request returned %s", name, type(changed).__name__)
            raise misled(name, "returned no object")
        try:
            return json.encode(cast("dict[object, object]", changed))
        except json.JSONError:
            logger.exception("%s: its transform_request returned no JSON", name)
            raise misled(name, "returned what cannot be written as JSON") from None

    def _may(self, error: UpstreamError, wait: float) -> bool:
        if not self._budget.spend():
            return False
        word = in_a_word(error.status, error.payload)
        logger.info("%s: %s; trying again in %.1f s", self.provider.name, word, wait)
        return True

    async def _once(self, adapter: Adapter, sent: Upstream, body: bytes) -> Exchange:
        headers = {"content-type": "application/json", **sent.headers, **self.provider.headers}
        described = Upstream(url=sent.url, body=sent.body, headers=headers, method=sent.method)
        headers |= await self._shown(described, body)
        exchange = await self._client.open(
            HttpRequest(
                url=sent.url,
                method=sent.method,
                headers=headers,
                body=body,
                timeouts=self._timeouts,
                who=self.provider.name,
            )
        )
        good = 200 <= exchange.status < 300
        if good and "text/html" not in exchange.headers.get("content-type", ""):
            return exchange
        answer = await exchange.taken_soon(REFUSAL_SECONDS)
        if good:
            raise astray(self.provider.name)
        status, told = exchange.status, exchange.headers
        if place := moved_to(status, told, sent.url, adapter.base_url):
            raise moved(self.provider.name, status, self.hush(place))
        heard = self.hush(answer.decode(errors="replace")).encode()
        raise adapter.error(status, told, heard)

    async def _shown(self, request: Upstream, body: bytes) -> dict[str, str]:
        """Return the headers that show who asks; the log is told why there are none."""
        try:
            return await self._signer.headers(request, body)
        except UpstreamError as error:
            name, cause = self.provider.name, error.__cause__
            if cause:
                words = " ".join(redacted(self.hush(str(cause))).split())
                logger.warning("%s: %s: %s", name, type(cause).__name__, words)
            raise unknown(name, error) from None


async def transformed(hook: Transform, body: object) -> object:
    """Have a request's body changed as the user wants it."""
    made = hook(cast("dict[str, object]", body))
    made = await made if inspect.isawaitable(made) else made
    return body if made is None else made


def is_name(model: str) -> bool:
    """Tell whether a model can be called so."""
    return bool(model) and DOTS.isdisjoint(STEPS.split(model))


class Question(NamedTuple):
    """One turn, written for one adapter."""

    adapter: Adapter
    prompt: Prompt
    sent: Upstream
    decoder: Decoder


class UpstreamModel(Model):
    """One model of a provider."""

    warns = True

    def __init__(self, link: Link, model: str, *, hurried: bool = False) -> None:
        self._link = link
        self._model = model
        self._hurried = hurried
        provider = link.provider
        self.name = f"{provider.name}/{model}"
        self.origin = f"{provider.name}/{link.adapter(model).family(model)}".rstrip("/")
        self._capabilities = provider.models.get(model, Capabilities())
        self.window = self._capabilities.window

    def hurried(self) -> Model:
        """Return the same model, which does not wait long for its provider."""
        return UpstreamModel(self._link, self._model, hurried=True)

    async def answer(self, turn: Turn, sink: Sink) -> None:
        """Ask the provider, and hear its answer."""
        question = first = self._first(turn, live=sink.live)
        for others in reversed(range(MANY_WAYS)):
            try:
                await self._ask(question, turn, sink)
                break
            except UpstreamError as error:
                other = question.adapter.instead(error) if others and not sink.spoken else None
                if other is None:
                    raise
            question = self._question(other, turn, live=sink.live)
        if question is not first:
            self._link.remember(self._model, question.adapter)

    async def count(self, turn: Turn) -> int | None:
        """Have the provider count, if it does; raises RequestError."""
        adapter = self._link.own
        counting = adapter.counting(carried(adapter, self._prompt(turn, live=False)))
        if counting is None:
            return None
        asked, counted = counting
        try:
            exchange = await self._link.open(adapter, asked)
            return counted(json.decode_lenient(await exchange.taken()))
        except (UpstreamError, ValueError) as error:
            logger.info("%s did not count its tokens: %s", self.name, type(error).__name__)
            return None

    def _prompt(self, turn: Turn, *, live: bool) -> Prompt:
        return Prompt(self._model, turn.request, turn.items, live, self._capabilities)

    def _first(self, turn: Turn, *, live: bool) -> Question:
        """Write a turn as the model is known to want it, or as any other if it cannot be so.

        What was found out by other requests is no reason to refuse this one: let the provider.
        """
        known, own = self._link.adapter(self._model), self._link.own
        try:
            return self._question(known, turn, live=live)
        except RequestError:
            if known is own:
                raise
        return self._question(own, turn, live=live)

    def _question(self, adapter: Adapter, turn: Turn, *, live: bool) -> Question:
        """Write a turn for an adapter; raises RequestError."""
        prompt = self._prompt(turn, live=live)
        return Question(adapter, prompt, *ask(adapter, prompt))

    async def _ask(self, question: Question, turn: Turn, sink: Sink) -> None:
        adapter, prompt, sent, decoder = question
        exchange = await self._link.open(adapter, sent, hurried=self._hurried)
        try:
            unread = [] if adapter.passes_unknown else warnings(turn.request)
            if warned := unread + prompt.warnings:
                sink.take(warned)
            sink.begin()
            hearing = Hearing(exchange, decoder, sink, self._link.hush)
            await hearing.hear(streamed=sink.live)
        finally:
            exchange.release()


class Hearing:
    """One answer being heard."""

    def __init__(
        self, exchange: Exchange, decoder: Decoder, sink: Sink, hush: Callable[[str], str]
    ) -> None:
        self._exchange = exchange
        self._decoder = decoder
        self._sink = sink
        self._hush = hush
        self._words = decoder.words
        self._flow: Flowing | None = None
        """Takes those words past the parts, if that can be now."""
        self._failed = False
        """Whether the provider itself has said that it broke."""

    async def hear(self, *, streamed: bool) -> None:
        """Hear the answer to its end; raises UpstreamError if it breaks before it has begun."""
        kind = self._exchange.headers.get("content-type", "").lower()
        if streamed and kind:
            streamed = self._decoder.hears(kind)
        if streamed or "event-stream" in kind:
            await self._stream()
        else:
            body = await self._exchange.read()
            self._tell(self._decoder.whole(body))

    async def _stream(self) -> None:
        exchange = self._exchange
        exchange.listen(self._receive)
        try:
            while not await exchange.turn():
                await self._sink.drained()
                exchange.resume()
        except UpstreamError:
            if self._failed or not self._decoder.finished:  # or else only its last words were lost
                raise
        self._tell(self._decoder.close())

    def _receive(self, data: bytes) -> None:
        """Hear some bytes. Words after words go straight to where they are sent, if they can."""
        if (flow := self._flow) and (words := self._words) and (said := words(data)):
            if flow(said):
                self._exchange.pause()
            return
        heard = self._decoder.feed(data)
        if heard and type(heard[-1]) is not parts.Failure:
            wanted = self._sink.take(heard)
        else:
            wanted = self._tell(heard)
        if self._decoder.done or not wanted:
            self._exchange.stop()
        elif self._sink.full:
            self._exchange.pause()
        self._words = self._decoder.words
        self._flow = self._sink.flow() if self._words else None

    def _tell(self, heard: list[Part]) -> bool:
        """Pass parts on. What breaks before anything was said is raised: others may do better."""
        if not (heard and type(failure := heard[-1]) is parts.Failure):
            return not heard or self._sink.take(heard)
        failure = replace(failure, error=hushed(failure.error, self._hush))
        self._sink.take(heard[:-1])
        if self._sink.spoken:
            return self._sink.take([failure])
        self._failed = True
        raise failure.exception


def hushed(error: ErrorPayload, hush: Callable[[str], str]) -> ErrorPayload:
    """Return an error none of whose words tells what must not be told."""
    return replace(
        error,
        message=hush(error.message),
        type=hush(error.type),
        code=error.code and hush(error.code),
        param=error.param and hush(error.param),
    )


class Providers:
    """The models of every provider that is configured."""

    def __init__(
        self,
        providers: Sequence[Provider],
        keys: Mapping[str, str],
        client: Transport,
        patience: Patience,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._keys = keys
        self._client = client
        self._patience = patience
        self._timeouts = timeouts
        self._links: dict[str, Link] = {}

    @property
    def names(self) -> list[str]:
        """The models that the configuration names."""
        known = self._providers.values()
        return [f"{provider.name}/{model}" for provider in known for model in provider.models]

    def find(self, name: str) -> Model | None:
        """Return the model of a name, if its provider is configured."""
        provider, _, model = name.partition("/")
        if not self._has(provider, model):
            return None
        try:
            return UpstreamModel(self._link(provider), model)
        except (Exception, SystemExit):  # an adapter may be other people's code
            logger.exception("%s: its adapter broke", provider)
            return Unasked(name, broken(provider))

    def _has(self, provider: str, model: str) -> bool:
        return is_name(model) and provider in self._providers

    def _link(self, name: str) -> Link:
        """Return the way to a provider; its adapter is imported when it is first asked."""
        if name not in self._links:
            provider = self._providers[name]
            key = self._keys.get(name)
            self._links[name] = Link(provider, key, self._client, self._patience, self._timeouts)
        return self._links[name]
