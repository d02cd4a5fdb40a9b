"""Other event models into ours."""
