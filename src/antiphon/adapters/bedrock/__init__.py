"""The Converse API of AWS Bedrock.

`adapter.py` addresses requests and reads errors, `encode.py` writes request bodies for the models
of each vendor, `decode.py` turns responses into parts, `wire_types.py` holds the response types.
"""
