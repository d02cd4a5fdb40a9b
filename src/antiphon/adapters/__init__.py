"""The providers: one adapter each, which encodes prompts and decodes answers.

An adapter is pure: it knows a provider's dialect, and nothing of ids, indexes, lifecycle, sockets
or clocks. Shared by all adapters:

- `base`: `Adapter`, `Decoder`, `Prompt` and `Provider`; the environment variables and configuration keys of an adapter
- `features`: what a request may use, and what happens where a provider does not support it
- `json_via_tool`: `encode_prompt`, the way in; JSON output from models without a JSON mode
- `conversation`: items as turns, legal ids and names
- `media`: images, files and audio; log probabilities
- `errors`: errors of providers, parsed and redacted
- `json_access`: JSON objects and texts
- `registry`: adapters by name, built-in and installed

The dialects: `openai_chat` (with the providers `openai`, `azure` and `writer`), `anthropic`, `bedrock`, `google`,
`ollama` and `open_responses`. A package has `adapter`, `encode`, `decode` and `wire_types`, as far as it needs them.
"""
