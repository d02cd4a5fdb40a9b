"""Block events of `llm_client`."""
