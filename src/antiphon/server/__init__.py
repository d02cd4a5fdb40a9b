"""The ASGI application: Open Responses over HTTP and WebSocket.

app             create_app: routes and middleware
mounting        Antiphon: the application as a part of another one
middleware      request ids, authentication, access log; errors as clients see them
cors            which web pages may use the server
endpoints/      one module per resource
openapi/        the OpenAPI document, generated from our types
streaming/      Server-Sent Events, disconnects, WebSocket lanes
service         the engine, its running tasks, draining
settings        all settings
config/         antiphon.toml and the environment
provider_probe  which providers are reachable, and their models
xaibo           OpenAiResponsesApiAdapter, a drop-in for Xaibo's own
asgi            ASGI types and helpers
uvicorn/        the hardened server process
"""
