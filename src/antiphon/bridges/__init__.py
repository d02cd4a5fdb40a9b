"""Other event models and agent frameworks, translated into parts.

frameworks  recognises the agents of all supported frameworks
"""
