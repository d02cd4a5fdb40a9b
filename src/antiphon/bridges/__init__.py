"""Other event models, translated into ours. `emitter` builds events one call at a time."""
