"""One response, from its request to its last event."""
