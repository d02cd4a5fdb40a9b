"""One response, from its request to its last event.

| file | what it does |
| --- | --- |
| `engine` | checks a request, prepares its context, creates, finds, cancels and deletes responses |
| `validation` | what a request must satisfy; warnings of unused fields |
| `models` | `Model`, the sinks, and the model that a name means |
| `provider_model` | a model of a provider: encode, send, read the response |
| `fallback` | candidates that are tried in order |
| `ask` | models that an agent asks while it answers |
| `run` | produces one response: parts in, events out, the end stored; removes calls that `tool_choice` does not allow |
| `persistence` | stores responses, loads and caches their context; idempotency keys, replays, ids |
| `background` | background responses, their event log and its readers |
| `sealing` | encrypted content that clients carry |
| `compaction` | replaces a conversation by a summary |
| `maintenance` | recovery, expiry, shutdown |
"""
