"""Ends the process at once, without waiting for threads that are blocked on the network."""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def exit_now(code: int, output: bytes = b"") -> NoReturn:
    """Flush the logs and the output, write `output`, and end the process."""
    logging.shutdown()
    try:
        with suppress(BrokenPipeError):  # the reader has closed the pipe
            sys.stdout.flush()
            sys.stdout.buffer.write(output)
            sys.stdout.flush()
    except OSError as error:
        code = code or 1
        with suppress(OSError):
            print(f"antiphon: cannot write the output: {error}", file=sys.stderr)
    with suppress(OSError):
        sys.stderr.flush()
    # Unlike `sys.exit`, this does not wait for threads.
    os._exit(code)
