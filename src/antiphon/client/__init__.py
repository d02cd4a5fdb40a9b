"""Call any Open Responses server from Python: requests, streams, WebSockets, and an agent loop.

async_client    `AsyncClient`, and every request that it can make
sync_client     `Client`: the same without async/await, on a thread with an event loop
params          the parameters of a request, encoded as body, headers and path
http            requests with key, retries and connections; event streams that reconnect; their bytes as events
websocket       sessions and lanes: many responses over one WebSocket
stream          `Stream`: a response as its events; the buffer before a slow reader
conversations   conversations that the server stores; paginated lists of items
errors          exceptions for error bodies, error events and lost connections
agent           the agent loop
tools           functions that a model may call
"""
