"""Anthropic's Messages API.

`adapter.py` addresses requests, `encode.py` writes their bodies, `decode.py` turns responses into
parts, `wire_types.py` holds the response types, and `models.py` knows what each Claude supports.
"""
