"""What is closed when it leaves a model, and opened before a model reads it.

A reasoning item's `encrypted_content` holds what the model itself gave (a provider's signature or
seal), the raw thinking, and whose thinking it is: only a model of the same origin gets them back.
To every other model the item is its summary, and what we did not seal reaches no model at all.

A compaction holds a summary, or the items that stand for the conversation. Any model may read it;
one that cannot be opened is refused, because without it the conversation has no beginning.

What is stored and listed is always the closed item.
"""

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.core.content import InputText, ReasoningText, text_of
from antiphon.core.errors import RequestError
from antiphon.core.items import Compaction, Item, Message, Reasoning
from antiphon.core.value import plain, read
from antiphon.engine.seal import Seal

INTRODUCTION = (
    "The conversation before this point was made shorter. This is what was said and done in it:"
)


SEALED = frozenset({Reasoning, Compaction})


class Thought(Struct, frozen=True, tag="thought"):
    """What the seal of a reasoning item holds."""

    tenant: str
    origin: str
    content: str | None
    text: list[str]


class Gist(Struct, frozen=True, tag="gist"):
    """What the seal of a compaction holds: words or, if there are none, items as JSON."""

    tenant: str
    summary: str
    items: list[dict[str, object]]


class Relayed(Struct, frozen=True, tag="relayed"):
    """What the seal of a compaction that a model made itself holds."""

    tenant: str
    origin: str
    content: str


Kept = Thought | Gist | Relayed


class Envelope(Struct, frozen=True):
    """What passes between one model and one tenant's clients.

    `always` says that thinking is sealed even if the model gave no seal of its own.
    """

    seal: Seal
    origin: str
    tenant: str = ""
    always: bool = False

    # --- on the way out ---

    def close(self, item: Item) -> Item:
        """Close what a model has made."""
        match item:
            case Reasoning() if item.encrypted_content or (self.always and item.content):
                text = [text_of(part) for part in item.content or []]
                thought = Thought(self.tenant, self.origin, item.encrypted_content or None, text)
                return replace(item, encrypted_content=self.seal.close(thought))
            case Compaction():
                relayed = Relayed(self.tenant, self.origin, item.encrypted_content)
                return replace(item, encrypted_content=self.seal.close(relayed))
            case _:
                return item

    def compaction(self, gist: str | list[Item], id: str) -> Compaction:
        """Close what stands for a conversation from now on."""
        words, items = (gist, []) if isinstance(gist, str) else ("", gist)
        kept = Gist(self.tenant, words, cast("list[dict[str, object]]", plain(items)))
        return Compaction(id=id, encrypted_content=self.seal.close(kept))

    # --- on the way in ---

    def open(self, items: Sequence[Item], param: str) -> list[Item]:
        """Return what the model may read; raises RequestError.

        `param` is what to blame for a compaction; `{}` in it stands for the item's index.
        """
        if SEALED.isdisjoint(map(type, items)):  # so it is in most chains, however long
            return list(items)
        opened: list[Item] = []
        for index, item in enumerate(items):
            match item:
                case Reasoning() if item.encrypted_content is not UNSET:
                    opened += self._thinking(item, item.encrypted_content)
                case Compaction():
                    opened += self._gist(item, param.format(index))
                case _:
                    opened.append(item)
        return opened

    def _thinking(self, item: Reasoning, sealed: str) -> list[Item]:
        thought = self._opened(sealed)
        if isinstance(thought, Thought) and thought.origin == self.origin:
            # What was sealed wins over what the client shows: a signature is for these very words.
            raw = [ReasoningText(text=text) for text in thought.text] or item.content
            return [replace(item, encrypted_content=thought.content or UNSET, content=raw)]
        if item.summary or item.content:
            return [replace(item, encrypted_content=UNSET)]
        return []

    def _gist(self, item: Compaction, param: str) -> list[Item]:
        match self._opened(item.encrypted_content):
            case Gist(summary=words, items=[]):
                text = f"{INTRODUCTION}\n\n{words}"
                return [Message(id=item.id, role="developer", content=[InputText(text=text)])]
            case Gist(items=items):
                return [cast("Item", read(Item, raw)) for raw in items]
            case Relayed(origin=origin, content=content) if origin == self.origin:
                return [replace(item, encrypted_content=content)]
            case Relayed():
                raise RequestError(
                    "This compaction can only be read by the model that made it. Use that model, "
                    "or send the items that it stands for.",
                    param=param,
                    code="invalid_encrypted_content",
                )
            case _:
                raise RequestError(
                    "This compaction was not made here, or was changed on its way. Send it back as "
                    "it came, or send the items that it stands for.",
                    param=param,
                    code="invalid_encrypted_content",
                )

    def _opened(self, sealed: str) -> Kept | None:
        value = self.seal.open(sealed)
        try:
            kept = msgspec.convert(value, Kept)
        except msgspec.ValidationError:
            return None
        return kept if kept.tenant == self.tenant else None
