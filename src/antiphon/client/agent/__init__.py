"""The agent loop: rounds of requests and tool calls, reported as events.

run              `stream_agent`, `run_agent`, their options, and the abort signal
loop             one run: request a response, call its tools, send the results, repeat
transports       WebSocket, HTTP or chat completions; what to do when a round fails
context_window   the history of a run, and what is dropped when the context window is full
conversation     conversations that runs continue, one run at a time
events           the events of a run
event_mapper     protocol events to agent events, tool calls and metrics included
smoothing        text in even chunks at an even pace, without breaking characters or code fences
"""
