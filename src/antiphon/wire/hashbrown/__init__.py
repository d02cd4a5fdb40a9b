"""Hashbrown's protocol.

request  the request body, converted to a `Request`; stored threads, merged with its messages
frames   length-prefixed frames, and events as frames
"""
