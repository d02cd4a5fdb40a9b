"""Open Responses servers, OpenAI's Responses API included, as providers.

- `adapter`: the adapter, its features and its fallbacks
- `encode`: prompts as Responses requests
- `decode`: streams and responses as parts; `protocol.foreign` reads the events
"""
