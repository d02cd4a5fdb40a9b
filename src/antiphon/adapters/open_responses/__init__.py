"""Open Responses servers, OpenAI's Responses API included, as providers.

- `adapter`: the adapter, its features and fallbacks; prompts as Responses requests
- `decode`: streams and responses as parts; `protocol.foreign` reads the events
"""
