"""What was said before a run, and where what it says is kept.

A `Conversation` lives in this process; the id of one that the server keeps is enough for a
`ServedConversation`. Either way one run at a time speaks in it: a second one waits.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from antiphon.client.agent.lock import ConversationLock
from antiphon.engine.persistence import new_id
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import Item, Message
from antiphon.protocol.struct import InvalidValueError, decode_as
from antiphon.wire.openresponses import decode_request

if TYPE_CHECKING:
    from antiphon.client.async_client import AsyncClient


class Conversation:
    """A conversation kept here: give the same one to run after run."""

    def __init__(
        self,
        items: Sequence[Item | Mapping[str, object]] = (),
        *,
        id: str | None = None,
        instructions: str | None = None,
    ) -> None:
        self.id = id or new_id("conv")
        self.items: list[Item] = parse_items(list(items))
        self.instructions = instructions
        self.lock = ConversationLock()
        """Held by the run that speaks."""

    def __repr__(self) -> str:
        return f"<Conversation {self.id}: {len(self.items)} items>"

    @classmethod
    def of_messages(cls, messages: Sequence[Mapping[str, object]]) -> "Conversation":
        """Take over a chat: system messages become the instructions, calls and results stay.

        >>> chat = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi"}]
        >>> Conversation.of_messages(chat).instructions
        'Be terse.'
        """
        from antiphon.wire.chat import wire_types
        from antiphon.wire.chat.request import ChatTranscript

        said = decode_as(
            list[wire_types.Message], [dict(message) for message in messages], "messages"
        )
        items = ChatTranscript(said).items  # pyright: ignore[reportArgumentType]
        system = [item for item in items if isinstance(item, Message) and item.role == "system"]
        rest = [item for item in items if item not in system]
        return cls(rest, instructions="\n\n".join(item.text for item in system) or None)

    async def load(self) -> list[Item]:
        """Return what was said so far."""
        return list(self.items)

    async def add(self, items: Sequence[Item]) -> None:
        """Keep what a run has said."""
        self.items += items


class RemoteConversation(Conversation):
    """A conversation that the server keeps."""

    def __init__(self, client: "AsyncClient", id: str) -> None:
        super().__init__()
        self.id = id
        self.lock = client.conversation_locks.setdefault(id, self.lock)
        self._conversations = client.conversations

    async def load(self) -> list[Item]:
        """Return what was said so far, all its pages."""
        return [item async for item in self._conversations.items(self.id)]

    async def add(self, items: Sequence[Item]) -> None:
        """Keep what a run has said."""
        for start in range(0, len(items), MAX_ITEMS_PER_REQUEST):
            await self._conversations.add(self.id, items[start : start + MAX_ITEMS_PER_REQUEST])


MAX_ITEMS_PER_REQUEST = 20
"""How many items a conversation takes in one request."""


def resolve_conversation(
    client: "AsyncClient", conversation: Conversation | str | None
) -> Conversation:
    """Return what a run continues: a new conversation if none was given."""
    if isinstance(conversation, str):
        return RemoteConversation(client, conversation)
    return conversation or Conversation()


def parse_items(given: object) -> list[Item]:
    """Read a prompt: words, an item, a message, or a list of such; raises RequestError."""
    try:
        whole = cast("object", given) if isinstance(given, str | list) else [given]
        return decode_request({"input": whole}).input
    except InvalidValueError as error:
        raise RequestError.from_invalid_value(error) from None
