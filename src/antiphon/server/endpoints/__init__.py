"""The HTTP and WebSocket endpoints, one module per resource.

All have one shape: a subclass of `base.Endpoints` whose methods are ASGI callables
`(scope, receive, send)`, and whose `routes` names their paths. Errors are raised as exceptions; the
middleware turns them into HTTP responses. `app.py` lists the classes.

    base           shared: routes, body parsing, query and path parameters
    responses      POST /responses (JSON, stream, background, idempotency), /responses/compact,
                   /responses/input_tokens and /chat/completions; the list of stored responses;
                   GET, DELETE, cancel and input_items of one
    websocket      WebSocket /responses: many requests on one connection
    conversations  conversations and their items
    models         GET /models, /healthz and /readyz
    openapi        GET /openapi.json, and /docs, a page that shows it
    hashbrown      POST /hashbrown/chat
"""
