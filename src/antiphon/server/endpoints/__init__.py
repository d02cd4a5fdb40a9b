"""The HTTP and WebSocket endpoints, one module per resource.

All have one shape: a subclass of `base.Endpoints` whose methods are ASGI callables
`(scope, receive, send)`, and whose `routes` names their paths. Errors are raised as exceptions; the
middleware turns them into HTTP responses. `app.py` lists the classes.

    responses         POST /responses: JSON, stream, background, idempotency
    websocket         WebSocket /responses: many requests on one connection
    stored_responses  GET, DELETE, cancel and input_items of a stored response
    input_tokens      POST /responses/input_tokens
    compact           POST /responses/compact
    conversations     conversations and their items
    chat_completions  POST /chat/completions
    models            GET /models
    hashbrown         POST /hashbrown/chat
    health            GET /healthz and /readyz
    base, query       shared: routes, body parsing, query and path parameters
"""
