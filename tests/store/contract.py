"""The contract that every store must pass, as `store/base.py` describes it.

A test module defines a fixture named `store`, and inherits from StoreContract.
"""

from tests.store.conversations_contract import ConversationsContract
from tests.store.feed_contract import FeedContract
from tests.store.lists_contract import ListsContract
from tests.store.queue_contract import QueueContract
from tests.store.responses_contract import ResponsesContract
from tests.store.retention_contract import RetentionContract
from tests.store.threads_contract import ThreadsContract


class StoreContract(
    ResponsesContract,
    RetentionContract,
    QueueContract,
    FeedContract,
    ConversationsContract,
    ThreadsContract,
    ListsContract,
):
    """The complete contract."""
