"""The ASGI application: Open Responses over HTTP."""
