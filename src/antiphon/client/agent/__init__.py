"""The agent loop: rounds of asking and calling, told as they happen."""
