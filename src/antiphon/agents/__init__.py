"""Python functions as models.

`agent` makes a model of a function, which receives a turn; `threads` runs those that block; `demo` holds two
models that need no API key.
"""
