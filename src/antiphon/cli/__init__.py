"""The command line; each command is a thin module over one function.

main      the commands and their options; ends the process without waiting for threads
serve     antiphon serve
models    antiphon models
"""
