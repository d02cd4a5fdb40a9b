"""The OpenAPI document of this server, generated from the types of the protocol.

schemas     JSON Schemas of our annotations
operations  all operations: their parameters, bodies and answers
document    the document, from the operations and the application's doors
"""
