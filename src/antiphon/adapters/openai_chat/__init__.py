"""Chat Completions: the dialect that OpenAI defined and most servers speak.

- `adapter`: the request, with its options and tools; fallbacks for what a server rejects
- `servers`: how the servers of the dialect differ, and what each supports; error messages that name a missing feature
- `encode`: a conversation as messages
- `decode`: chunks and whole answers as parts, with tool calls and reasoning
- `fast_text`: the text fast path, for chunks that differ only in their text
- `wire_types`: the shapes of chunks and answers, and of what is sent back with reasoning
"""
