"""What every store must do, one sentence of `store/base.py` after another.

A test module gives its store with a fixture named `store`, and inherits all of this.
"""

from tests.store.conversations_contract import ConversationsContract
from tests.store.feed_contract import FeedContract
from tests.store.responses_contract import ResponsesContract
from tests.store.retention_contract import RetentionContract
from tests.store.threads_contract import ThreadsContract


class StoreContract(
    ResponsesContract, RetentionContract, FeedContract, ConversationsContract, ThreadsContract
):
    """All of it."""
