from typing import Protocol

from xaibo.core.models import LLMMessage

class ConversationHistoryProtocol(Protocol):
    async def get_history(self) -> list[LLMMessage]: ...
