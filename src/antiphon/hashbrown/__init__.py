"""Answers Hashbrown's requests with frames, for the server's endpoint and for endpoints of your own.

answer   one request, from its body to its last frame; the engine makes the response
threads  storage of threads: the interface, and the default in the response store
stream   `stream_text`, the same for an endpoint of your own, with one provider and no server
"""

from antiphon.hashbrown.stream import stream_text
from antiphon.hashbrown.threads import ThreadDirectory, ThreadError, ThreadStorage, ThreadSummary

__all__ = ["ThreadDirectory", "ThreadError", "ThreadStorage", "ThreadSummary", "stream_text"]
