"""Ollama's own chat API.

- `adapter`: addresses, errors and fallbacks; a prompt as a request
- `decode`: lines of JSON as parts, with the types of these lines
"""
