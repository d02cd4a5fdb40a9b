"""Outbound HTTP and nothing else.

request     a provider request as adapters describe it, and the kinds of credentials
auth        credentials as request headers: API keys, AWS signatures, Google and Entra tokens
client      the HTTP client: connection pool, TLS, request encoding
connection  one connection: response parsing, timeouts
response    one response as its reader sees it, and the errors of the transport
proxy       proxies from the environment, and CONNECT tunnels
retry       when to retry, and how long to wait
"""
