"""What every store must do, one sentence of `store/base.py` after another.

A test module gives its store with a fixture named `store`, and inherits all of this.
"""

from tests.store.conversations import ConversationsContract
from tests.store.feeds import FeedContract
from tests.store.keeping import RetentionContract
from tests.store.responses import ResponsesContract
from tests.store.threads import ThreadsContract


class StoreContract(
    ResponsesContract, RetentionContract, FeedContract, ConversationsContract, ThreadsContract
):
    """All of it."""
