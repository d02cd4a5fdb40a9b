"""Python functions as models.

`agent` makes a model of a function, `turn` is what the function receives, and `demo` holds two
models that need no API key.
"""
