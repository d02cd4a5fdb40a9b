"""Any Open Responses server, called from Python: requests, streams, sockets, and an agent loop."""
