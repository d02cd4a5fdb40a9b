"""Python functions as models.

`agent` makes a model of a function, which receives a turn; `demo` holds two models that need no API key.
"""
