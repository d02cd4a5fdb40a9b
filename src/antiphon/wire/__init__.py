"""Bytes to values and back, without I/O: framings, and the dialects of our endpoints.

json             strict JSON with limits
sse              Server-Sent Events, newline-delimited JSON
aws_eventstream  AWS's binary event stream
websocket        messages of the WebSocket endpoint
openresponses    the specification's dialect and OpenAI's, and the decoding of requests
chat/            chat completions
hashbrown/       Hashbrown's requests, frames and threads
"""
