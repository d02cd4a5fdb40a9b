"""Streaming of responses to clients.

event_stream   Server-Sent Events of one response, with backpressure and heartbeats; stops the model when its client
               disconnects
ws_lanes       the lanes of a WebSocket: turns in order within a lane, lanes concurrently; its outgoing
               messages, and the event sink of a turn
"""
