"""Other event models and agent frameworks, translated into parts."""
