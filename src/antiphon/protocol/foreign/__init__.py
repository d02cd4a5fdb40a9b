"""Streams of other servers, read as typed events whichever rules they break.

The gateway's Open Responses adapter and the client share this reader.

- `reader`: one stream, parsed JSON in, events and the response so far out
- `lenient`: any JSON as protocol values; the types and event names that only OpenAI has
- `repair`: which item an event is about, and opening events that are missing
- `strict`: the protocol's rules, checked on what was sent
"""
