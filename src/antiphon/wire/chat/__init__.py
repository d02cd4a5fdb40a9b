"""Chat completions.

wire_types  the request body, as OpenAI documents it and as clients send it
request     the body, converted to a `Request`
dialect     a response as a completion, and its events as chunks
"""
