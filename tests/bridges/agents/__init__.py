"""The agent `assistant`, once per framework; see `tests/bridges/cases.py`."""
