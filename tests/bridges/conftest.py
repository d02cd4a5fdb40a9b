"""Assertion rewriting for the shared cases, which are no test module by name."""

import pytest

pytest.register_assert_rewrite("tests.bridges.cases")
