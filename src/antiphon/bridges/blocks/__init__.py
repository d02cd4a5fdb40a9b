"""The block events of `llm_client`, to Open Responses and back.

events          the events
open_blocks     which blocks are open
jsonl           their JSON, one event per line
to_responses    block events -> a response, its events, and input of the next request
from_responses  the events of a response -> block events
timeline        calls functions per kind of block, and rebuilds blocks
log             a log as a response, for `antiphon convert`
"""
