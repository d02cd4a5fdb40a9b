"""Chat Completions: the dialect that OpenAI defined and most servers speak.

- `adapter`: the request, with its options and tools; fallbacks for what a server rejects
- `servers`: how the servers of the dialect differ, and what each supports; error messages that name a missing feature
- `encode`: a conversation as messages
- `decode`: chunks and whole answers as parts, tool calls included
- `reasoning_state`: reasoning, and what has to be sent back with it
- `fast_text`: the text fast path, for chunks that differ only in their text
- `wire_types`: the shapes of chunks and answers
"""
