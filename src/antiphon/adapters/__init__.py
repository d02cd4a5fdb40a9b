"""One module per upstream: a request in, a provider's request out; its chunks in, parts out.

An adapter is pure. It knows a provider's dialect and nothing of ids, indexes, lifecycle, sockets or
clocks. A provider with more to say has a folder: the adapter itself, its `conversation.py` written,
its `answer.py` heard, the `shapes.py` of it; `chat` is the dialect that several share.

What is the same for all stands beside them. `base.py` says what an adapter is, `carry.py` holds the
one rule for what a provider cannot carry, `story.py` tells a conversation in turns, `media.py`
reads images and files, `options.py` finds the nearest word, `forced.py` has JSON from models that
have no JSON mode, `faults.py` reads errors, `fields.py` JSON. `ask.py` puts it together, and
`registry.py` knows adapters by name.
"""
