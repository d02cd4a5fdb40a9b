"""`antiphon convert`: a log of another event model as an Open Responses stream or response."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, Literal

from antiphon.bridges.blocks.log import BlockLogConverter
from antiphon.bridges.stream import LogConverter
from antiphon.bridges.threads.log import ThreadLogConverter
from antiphon.cli.main import StartupError, exit_now
from antiphon.protocol.request import INCLUDE_ENCRYPTED_REASONING
from antiphon.protocol.struct import InvalidValueError, to_builtins
from antiphon.wire import json, sse
from antiphon.wire.json import JSONError
from antiphon.wire.openresponses import Dialect

LogFormat = Literal["blocks", "threads"]
Output = Literal["sse", "response", "input"]

CONVERTERS: Mapping[LogFormat, Callable[[], LogConverter]] = {
    "blocks": BlockLogConverter,
    "threads": ThreadLogConverter,
}

MAX_LINE = 64 * 1024 * 1024
"""The most bytes of a line."""

DIALECT = Dialect(frozenset({INCLUDE_ENCRYPTED_REASONING}))
"""The specification's; nothing of a user's own log is hidden."""


class LineError(Exception):
    """Why a line cannot be converted, and which."""


def convert_log(path: str, source: LogFormat, output: Output) -> None:
    """Convert a file, or standard input for `-`, and exit; raises StartupError if the file cannot be read."""
    converter = CONVERTERS[source]()
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            for frames in convert_lines(file, converter, "standard input" if path == "-" else path):
                if output == "sse":
                    sys.stdout.buffer.write(frames)
                    sys.stdout.buffer.flush()
    except LineError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        exit_now(1)
    except BrokenPipeError:  # the reader has seen enough
        exit_now(0)
    except OSError as error:
        raise StartupError(f"cannot convert {path}: {error.strerror}.") from error
    match output:
        case "sse":
            exit_now(0, sse.DONE_FRAME)
        case "response":
            exit_now(0, DIALECT.encode_response(converter.response) + b"\n")
        case "input":
            exit_now(0, json.encode([to_builtins(item) for item in converter.next_input]) + b"\n")


def convert_lines(file: BinaryIO, converter: LogConverter, name: str) -> Iterator[bytes]:
    """Yield the Server-Sent Events of each line, and those of the end; raises LineError."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise LineError(f"{name}, line {number}: It has more than {MAX_LINE} bytes.")
        if not line.strip():
            continue
        try:
            events = converter.feed(line)
        except JSONError as error:
            raise LineError(f"{name}, line {number}: {error}") from error
        except InvalidValueError as error:
            raise LineError(f"{name}, line {number}: Invalid {error.path or 'event'}: {error.reason}.") from error
        yield b"".join(map(DIALECT.encode_sse, events))
    yield b"".join(map(DIALECT.encode_sse, converter.end()))
