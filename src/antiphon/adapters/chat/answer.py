"""Chat Completions, heard: the chunks of a stream and whole answers, as parts.

Dialect notes: a whole answer is one chunk whose choice has a `message` in place of a `delta`. A
call's id and name come once, its arguments bit by bit, and only its index says which call a bit
belongs to; servers repeat, omit and reuse ids, names and indexes, so `calls.py` sorts them.
Thinking has three spellings, and `thinking.py` knows what it goes back with. Usage comes in any
chunk, mostly in one without choices after the last. `[DONE]` ends a stream, also one that never
said why.
"""

from collections.abc import Iterable, Mapping

from antiphon.adapters.base import CUTS, MAX_EVENT, Adapter, Decoder, Reader, finish
from antiphon.adapters.chat.calls import Calls
from antiphon.adapters.chat.refrain import Refrain
from antiphon.adapters.chat.shapes import (
    Choice,
    Chunk,
    Fragment,
    Groq,
    Logprobs,
    Note,
    Piece,
    Said,
    Usage,
)
from antiphon.adapters.chat.thinking import Thinking
from antiphon.adapters.chat.tidy import tidied
from antiphon.adapters.faults import Fault, fault_in
from antiphon.adapters.logprobs import weighed
from antiphon.core import content, parts
from antiphon.core.parts import Part
from antiphon.wire import json, sse

REASONS: Mapping[str, parts.Reason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
"""Why a model stops; `model_length` is Mistral's word for a window that is full."""

BROKEN = frozenset({"error", "insufficient_system_resource", "abort", "network_error"})
"""Reasons that are failures: OpenRouter's and Mistral's, DeepSeek's, vLLM's, and Zhipu's."""

PLAIN = frozenset({"text", "thinking", "refusal"})
"""The pieces of content that are words, if they hold anything."""

READ = Reader(Chunk, tidied)


def words_in(data: bytes) -> object:
    """Return the words of a chunk that has a choice."""
    said = (READ(data).choices or [Choice()])[0].delta
    return said and said.content


class ChatDecoder(Decoder):
    """Hears one answer."""

    def __init__(self, adapter: Adapter) -> None:
        self._events = sse.Decoder(MAX_EVENT)
        super().__init__(adapter, self._events)
        self._refrain = Refrain()
        self._calls = Calls()
        self._thinking = Thinking()

    def feed(self, data: bytes | None) -> list[Part]:
        """Return the parts that some bytes complete; words that come as before, without ado."""
        if data and self.words and (said := self.words(data)):
            self._thinking.last = "words"
            return [parts.Text(words) for words in said]
        told = super().feed(data)
        between = not (self._events.inside or self.done or self._thinking.is_due)
        self.words = self._refrain.words if between and self._refrain.is_known else None
        return told

    def read(self, chunk: object) -> Iterable[Part]:
        """Read one event."""
        if not isinstance(chunk, sse.Event):
            return ()
        data = chunk.data
        if chunk.event == "error":
            return (self._broken(error_in(data)),)
        if data.startswith(sse.DONE):
            told = self._finish(None)
            self.done = True
            return told
        if not data:
            return ()
        heard = READ(data)
        choices = heard.choices
        if choices and len(choices) == 1 and not (heard.usage or heard.error or heard.x_groq):
            # Words and nothing else, as nearly every chunk is.
            choice = choices[0]
            said = choice.delta
            if (
                said is not None
                and type(words := said.content) is str
                and words
                and not (choice.finish_reason or choice.index or choice.logprobs or choice.error)
                and not (said.reasoning_content or said.reasoning or said.tool_calls)
                and not (said.refusal or said.function_call or said.annotations)
                and not (said.images or said.audio or said.reasoning_details)
                and not (self._thinking.details and self._thinking.is_due)
            ):
                self._thinking.last = "words"
                if self._refrain.trials:
                    self._refrain.learn(data, words, words_in)
                return (parts.Text(words),)
        return self._heard(heard, data)

    def read_whole(self, body: bytes) -> Iterable[Part]:
        """Read a whole answer, which must hold one."""
        told = self._heard(READ(body), body)
        if told and isinstance(told[-1], parts.Failure):
            return told
        if all(isinstance(part, parts.Usage) for part in told):
            fault = Fault("answered without a choice.", "model_error", "upstream_invalid")
            told.append(self.adapter.failure(fault))
        elif not any(isinstance(part, parts.Finish) for part in told):
            told += self._finish(None)
        return told

    # --- what a chunk says ---

    def _heard(self, chunk: Chunk, data: bytes) -> list[Part]:
        if chunk.error or chunk.object == "error":
            return [self._broken(error_in(data))]
        aside = chunk.x_groq or Groq()
        if aside.error:
            return [self._broken({"error": aside.error})]
        told: list[Part] = []
        for choice in chunk.choices or ():
            if not choice.index:
                self._choice(choice, told)
        if usage := chunk.usage or aside.usage:
            told.append(usage_of(usage))
        return told

    def _choice(self, choice: Choice, told: list[Part]) -> None:
        if choice.error:
            told.append(self._broken({"error": choice.error}))
            return
        if choice.delta is not None:
            self._said(choice.delta, choice.logprobs, told)
        elif choice.message is not None:
            self._calls.by_position = True
            self._said(choice.message, choice.logprobs, told)
        if choice.finish_reason and not self.finished:
            told += self._finish(choice.finish_reason)

    def _said(self, said: Said, logprobs: Logprobs | None, told: list[Part]) -> None:
        called = said.tool_calls or (said.function_call and [Fragment(function=said.function_call)])
        thinking = said.reasoning_content or said.reasoning
        if thinking and isinstance(thinking, str):
            field = "reasoning_content" if said.reasoning_content else "reasoning"
            told.append(self._thinking.think(thinking, field))
        if said.reasoning_details:
            self._thinking.detail(said.reasoning_details)
        words = said.content or said.refusal
        if called or (words and self._thinking.is_due):
            told += self._thinking.rest()
        if isinstance(said.content, list):
            self._pieces(said.content, told)
        elif said.content or not (told or called or said.refusal or said.reasoning_details):
            tokens = weighed(logprobs.content) if logprobs else None
            told.append(parts.Text(said.content or "", logprobs=tokens))
        if said.refusal:
            told.append(parts.Refusal(said.refusal))
        if said.annotations:
            told.extend(notes_of(said.annotations))
        if called:
            told.extend(self._calls.heard(called))
        if called:
            self._thinking.last = ""
        elif told and type(told[-1]) is not parts.Reasoning:
            self._thinking.last = "words" if words or self._thinking.last == "words" else ""
        if said.images or said.audio or has_more_than_words(said.content):
            told += self.left_out()

    def _pieces(self, pieces: list[Piece], told: list[Part]) -> None:
        before = len(told)
        for piece in pieces:
            if thinking := words_of(piece.thinking):
                told.append(self._thinking.think(thinking, "content"))
            elif piece.refusal:
                told.append(parts.Refusal(piece.refusal))
            elif piece.text:
                self._thinking.last = "words"
                told.append(parts.Text(piece.text))
        if len(told) == before:
            told.append(parts.Text(""))

    # --- how it ends ---

    def _finish(self, raw: str | None) -> list[Part]:
        if self.finished:
            return []
        if raw in BROKEN:
            fault = Fault(f"stopped with '{raw}'.", "model_error", raw)
            return [self.adapter.failure(fault)]
        told = self._calls.rest(cut=REASONS.get(raw or "") in CUTS)
        return [*self._thinking.rest(), *told, finish(raw, REASONS, called=self._calls.made)]

    def _broken(self, value: object) -> parts.Failure:
        return self.adapter.failure(fault_in(value))


def error_in(data: bytes) -> object:
    """Read an error, which may be mere words."""
    try:
        return json.decode_lenient(data)
    except json.JSONError:
        return {"error": data.decode(errors="replace")}


def usage_of(usage: Usage) -> parts.Usage:
    """Read token counts; those of the prompt include what was cached.

    Some servers, xAI's for one, count thinking in nothing but the total.
    """
    read = usage.prompt_tokens_details or usage.prompt_token_details
    written = usage.completion_tokens_details
    given, made, total = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
    cached = read.cached_tokens if read else None
    if given is not None and made is not None and total is not None and (cached or 0) <= given:
        made = max(made, total - given)
    return parts.Usage(
        given,
        made,
        cached,
        written.reasoning_tokens if written else None,
    )


def notes_of(notes: list[Note]) -> Iterable[Part]:
    """Read the annotations that are citations."""
    for note in notes:
        if cited := note.url_citation:
            yield parts.Annotation(
                content.UrlCitation(
                    url=cited.url,
                    title=cited.title or "",
                    start_index=max(0, cited.start_index or 0),
                    end_index=max(0, cited.end_index or 0),
                )
            )


def words_of(thinking: list[Piece] | str | None) -> str:
    """Return the words of a thinking piece."""
    if isinstance(thinking, list):
        return "".join(piece.text or "" for piece in thinking)
    return thinking or ""


def has_more_than_words(content: list[Piece] | str | None) -> bool:
    """Tell whether any piece of content, or of a thought in it, is none: an image, say."""
    return isinstance(content, list) and any(
        has_more_than_words(piece.thinking)
        or not (piece.type in PLAIN or piece.text or piece.thinking or piece.refusal)
        for piece in content
    )
