"""Google's Gemini: `generateContent` on the Gemini API and on Vertex AI.

`adapter.py` addresses requests and reads errors, `encode.py` writes request bodies, `decode.py`
turns responses into parts, `wire_types.py` holds the response types.
"""
