"""Assertion rewriting for the contract modules, which are not test modules by name."""

import pytest

for name in ("responses", "retention", "queue", "feed", "conversations", "threads", "lists"):
    pytest.register_assert_rewrite(f"tests.store.{name}_contract")
