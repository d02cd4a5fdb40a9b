"""Hashbrown's protocol.

request  the request body, converted to a `Request`
frames   length-prefixed frames, and events as frames
threads  stored threads, merged with the messages of a request
"""
