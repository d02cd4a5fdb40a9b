"""The command line: each command a thin file over one function."""
