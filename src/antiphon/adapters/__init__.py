"""One module per upstream: a request in, a provider's request out; its chunks in, parts out.

An adapter is pure. It knows a provider's dialect and nothing of ids, indexes, lifecycle, sockets or
clocks. `base.py` says what an adapter is, `carry.py` holds the one rule for what a provider cannot
carry, `story.py` tells a conversation in turns.
"""
