"""Leaving at once: threads that wait for others are not waited for."""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def exit_now(code: int, output: bytes = b"") -> NoReturn:
    """End the process, when all that was said has been written, and this."""
    logging.shutdown()
    try:
        with suppress(BrokenPipeError):  # nobody reads it any more
            sys.stdout.flush()
            sys.stdout.buffer.write(output)
            sys.stdout.flush()
    except OSError as error:
        code = code or 1
        with suppress(OSError):
            print(f"antiphon: what was said could not be written: {error}", file=sys.stderr)
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)
