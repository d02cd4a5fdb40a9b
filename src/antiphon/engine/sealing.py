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

from antiphon.engine.encryption import KeyRing
from antiphon.protocol.content import InputText, ReasoningText, content_text
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import (
    Compaction,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.struct import decode_as, to_builtins

SUMMARY_INTRODUCTION = (
    "The conversation before this point was made shorter. This is what was said and done in it:"
)


SEALED_TYPES = frozenset({Reasoning, Compaction})


class SealedReasoning(Struct, frozen=True, tag="thought"):
    """What the seal of a reasoning item holds."""

    tenant: str
    origin: str
    content: str | None
    text: list[str]


class SealedSummary(Struct, frozen=True, tag="gist"):
    """What the seal of a compaction holds: words or, if there are none, items as JSON."""

    tenant: str
    summary: str
    items: list[dict[str, object]]


class SealedProviderCompaction(Struct, frozen=True, tag="relayed"):
    """What the seal of a compaction that a model made itself holds."""

    tenant: str
    origin: str
    content: str


SealedContent = SealedReasoning | SealedSummary | SealedProviderCompaction


class ItemSealer(Struct, frozen=True):
    """What passes between one model and one tenant's clients.

    `always` says that thinking is sealed even if the model gave no seal of its own.
    """

    key_ring: KeyRing
    origin: str
    tenant: str = ""
    seal_all_reasoning: bool = False

    # --- on the way out ---

    def seal_item(self, item: Item) -> Item:
        """Close what a model has made."""
        match item:
            case Reasoning() if item.encrypted_content or (
                self.seal_all_reasoning and item.content
            ):
                text = [content_text(part) for part in item.content or []]
                thought = SealedReasoning(
                    self.tenant, self.origin, item.encrypted_content or None, text
                )
                return replace(item, encrypted_content=self.key_ring.encrypt(thought))
            case Compaction():
                relayed = SealedProviderCompaction(self.tenant, self.origin, item.encrypted_content)
                return replace(item, encrypted_content=self.key_ring.encrypt(relayed))
            case _:
                return item

    def seal_compaction(self, summary: str | list[Item], id: str) -> Compaction:
        """Close what stands for a conversation from now on."""
        words, items = (summary, []) if isinstance(summary, str) else ("", summary)
        kept = SealedSummary(
            self.tenant, words, cast("list[dict[str, object]]", to_builtins(items))
        )
        return Compaction(id=id, encrypted_content=self.key_ring.encrypt(kept))

    # --- on the way in ---

    def unseal_items(self, items: Sequence[Item], param: str) -> list[Item]:
        """Return what the model may read; raises RequestError.

        `param` is what to blame for a compaction; `{}` in it stands for the item's index.
        """
        if SEALED_TYPES.isdisjoint(map(type, items)):  # so it is in most chains, however long
            return list(items)
        opened: list[Item] = []
        for index, item in enumerate(items):
            match item:
                case Reasoning() if item.encrypted_content is not UNSET:
                    opened += self._unseal_reasoning(item, item.encrypted_content)
                case Compaction():
                    opened += self._unseal_compaction(item, param.format(index))
                case _:
                    opened.append(item)
        return opened

    def _unseal_reasoning(self, item: Reasoning, sealed: str) -> list[Item]:
        thought = self._decrypt(sealed)
        if isinstance(thought, SealedReasoning) and thought.origin == self.origin:
            # What was sealed wins over what the client shows: a signature is for these very words.
            raw = [ReasoningText(text=text) for text in thought.text] or item.content
            return [replace(item, encrypted_content=thought.content or UNSET, content=raw)]
        if item.summary or item.content:
            return [replace(item, encrypted_content=UNSET)]
        return []

    def _unseal_compaction(self, item: Compaction, param: str) -> list[Item]:
        match self._decrypt(item.encrypted_content):
            case SealedSummary(summary=words, items=[]):
                text = f"{SUMMARY_INTRODUCTION}\n\n{words}"
                return [Message(id=item.id, role="developer", content=[InputText(text=text)])]
            case SealedSummary(items=items):
                return [cast("Item", decode_as(Item, raw)) for raw in items]
            case SealedProviderCompaction(origin=origin, content=content) if origin == self.origin:
                return [replace(item, encrypted_content=content)]
            case SealedProviderCompaction():
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

    def _decrypt(self, sealed: str) -> SealedContent | None:
        value = self.key_ring.decrypt(sealed)
        try:
            kept = msgspec.convert(value, SealedContent)
        except msgspec.ValidationError:
            return None
        return kept if kept.tenant == self.tenant else None
