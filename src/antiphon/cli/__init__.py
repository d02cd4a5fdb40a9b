"""The command line; each command is a thin module over one function.

main      the commands and their options; ends the process without waiting for threads
load      what --app and --agents name
serve     antiphon serve, antiphon worker
processes antiphon serve --workers, and the processes of --reload
reload    antiphon serve --reload
models    antiphon models
convert   antiphon convert
"""
