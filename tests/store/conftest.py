"""Explain a failing assertion of the contract as well as one in a test module."""

import pytest

for name in ("responses", "keeping", "feeds", "conversations", "threads"):
    pytest.register_assert_rewrite(f"tests.store.{name}")
