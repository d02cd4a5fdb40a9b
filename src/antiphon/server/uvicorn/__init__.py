"""The uvicorn server, hardened for untrusted clients.

Only this package uses uvicorn's private parts (`_types`, `RequestResponseCycle`, attributes of its
protocol classes). `TESTED_VERSIONS` names the releases they were checked against.

    server        the server process: configuration, start-up, draining, forced exit
    http_protocol HTTP/1.1 with timeouts and size limits; rejects request heads that two servers
                  could read differently
    ws_protocol   WebSocket with timeouts and limits on sizes and small frames
    connection    what both share: limits, fair parsing, and a timeout for clients that do not read
    direct_write  writes chunks of a streamed body without a task switch
"""

TESTED_VERSIONS = frozenset({"0.54.0"})
"""The releases of uvicorn whose private parts this package was checked against."""
