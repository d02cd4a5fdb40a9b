"""Chat Completions: the dialect that OpenAI defined and most servers speak.

- `adapter`: the request, with its options and tools; fallbacks for what a server rejects
- `servers`: how the servers of the dialect differ, and what each supports
- `encode`: a conversation as messages
- `decode`: chunks and whole answers as parts
- `tool_calls`: which call a fragment of a stream belongs to
- `reasoning_state`: reasoning, and what has to be sent back with it
- `fast_text`: the text fast path, for chunks that differ only in their text
- `unsupported_errors`: error messages that say which feature a server lacks
- `wire_types`: the shapes of chunks and answers
"""
