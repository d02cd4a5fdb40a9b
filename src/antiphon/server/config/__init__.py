"""The configuration: `antiphon.toml` and the environment.

load      reads both; combines them with what each adapter knows about its provider
tables    the tables of the file: their keys, types and examples; numbers and their bounds; checks of URLs
"""
