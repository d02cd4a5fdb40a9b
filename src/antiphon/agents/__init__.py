"""Python functions as models.

`agent` makes a model of a function, which receives a `turn`; `part_reader` converts what it yields; `ask` holds the
answer of another model that it asks; `threads` runs functions that block; `demo` holds two models that need no API key.
"""
