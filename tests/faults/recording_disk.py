"""A record of everything SQLite writes, from which the disk after a power cut can be rebuilt.

The methods of SQLite's default file layer (VFS) are replaced in this process, so the store runs unchanged on
Python's own `sqlite3`. A disk may write blocks in any order until a sync, and may tear them: a rebuilt
file holds all writes before its last sync, and of the later ones any subset, cut at sector boundaries.
"""

import ctypes
import random
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512

_Close = CFUNCTYPE(c_int, c_void_p)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
# The name as an address: SQLite keeps the pointer for as long as the file is open.
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)


class _FileMethods(Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (
        ("version", c_int),
        ("close", _Close),
        ("read", c_void_p),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        ("rest", c_void_p * 13),
    )


class _File(Structure):
    """`sqlite3_file`."""

    _fields_ = (("methods", POINTER(_FileMethods)),)


class _FileLayer(Structure):
    """The head of `sqlite3_vfs`."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("max_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("app_data", c_void_p),
        ("open", _Open),
        ("delete", _Delete),
    )


@dataclass(frozen=True)
class Write:
    """Bytes written to a file, not yet synced."""

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    """A file was cut to a size."""

    path: str
    size: int


@dataclass(frozen=True)
class Delete:
    """A file was deleted, and perhaps its folder synced."""

    path: str
    is_synced: bool


@dataclass(frozen=True)
class Sync:
    """Everything written to a file so far is on the disk."""

    path: str


@dataclass(frozen=True)
class Acknowledged:
    """The program promised that a row is stored."""

    id: str


Operation = Write | Truncate | Delete | Sync | Acknowledged


@dataclass
class RecordingDisk:
    """The operations on the files of one folder, in order."""

    folder: Path
    operations: list[Operation] = field(default_factory=list[Operation])

    def acknowledge(self, id: str) -> None:
        """Record that a row was acknowledged now."""
        self.operations.append(Acknowledged(id))

    def restore(self, cut: int, folder: Path, chance: random.Random) -> list[str]:
        """Write the files as a power cut before operation `cut` may leave them; return the rows acknowledged so far."""
        before = self.operations[:cut]
        syncs = [(index, operation.path) for index, operation in enumerate(before) if isinstance(operation, Sync)]
        last_sync = {path: index for index, path in syncs}
        # With the first sync of a new journal SQLite also syncs the folder, and with it earlier deletions.
        first_sync = {path: index for index, path in reversed(syncs) if path.endswith(("-journal", "-wal"))}
        folder_sync = max(first_sync.values(), default=-1)
        files: dict[str, bytearray] = {}
        for index, operation in enumerate(before):
            if isinstance(operation, Sync | Acknowledged):
                continue
            content = files.setdefault(operation.path, bytearray())
            is_durable = index < last_sync.get(operation.path, -1)
            if isinstance(operation, Write):
                _write_sectors(content, operation, 1.0 if is_durable else chance.choice((0.0, 0.5, 1.0)), chance)
            elif isinstance(operation, Truncate):
                if is_durable or chance.random() < 0.5:
                    del content[operation.size :]
            elif operation.is_synced or index < folder_sync or chance.random() < 0.5:
                del files[operation.path]
        for path, content in files.items():
            (folder / Path(path).name).write_bytes(content)
        return [operation.id for operation in before if isinstance(operation, Acknowledged)]


def _write_sectors(content: bytearray, write: Write, share: float, chance: random.Random) -> None:
    """Write a share of the sectors, chosen at random; all of them for 1.0."""
    start = 0
    while start < len(write.data):
        end = start + SECTOR - (write.offset + start) % SECTOR if share < 1 else len(write.data)
        if chance.random() < share:
            offset = write.offset + start
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(write.data[start:end])] = write.data[start:end]
        start = end


@contextmanager
def record_disk(folder: Path) -> Iterator[RecordingDisk]:
    """Record what SQLite writes below a folder; files opened meanwhile must be closed before the end."""
    sqlite = ctypes.CDLL(find_library("sqlite3"))
    sqlite.sqlite3_vfs_find.restype = POINTER(_FileLayer)
    layer = sqlite.sqlite3_vfs_find(None).contents
    disk = RecordingDisk(folder)
    real_open = _Open(ctypes.cast(layer.open, c_void_p).value or 0)
    real_delete = _Delete(ctypes.cast(layer.delete, c_void_p).value or 0)
    # SQLite keeps pointers to these: they must live as long as a file is open.
    replaced: list[object] = []

    @_Open
    def open_file(vfs: int, name: int | None, file: int, flags: int, flags_out: int) -> int:
        code = real_open(vfs, name, file, flags, flags_out)
        path = ctypes.string_at(name) if name else b""
        if code == 0 and path.startswith(bytes(folder)):
            replaced.append(_record_file(disk, path.decode(), _File.from_address(file)))
        return code

    @_Delete
    def delete_file(vfs: int, name: bytes, sync_folder: int) -> int:
        if name.startswith(bytes(folder)):
            disk.operations.append(Delete(name.decode(), bool(sync_folder)))
        return real_delete(vfs, name, sync_folder)

    layer.open, layer.delete = open_file, delete_file
    try:
        yield disk
    finally:
        layer.open, layer.delete = real_open, real_delete


def _record_file(disk: RecordingDisk, path: str, file: _File) -> object:
    """Replace the methods of an open file by ones that record; return what must be kept alive."""
    real = file.methods.contents
    methods = _FileMethods.from_buffer_copy(real)

    @_Write
    def write(handle: int, data: int, size: int, offset: int) -> int:
        disk.operations.append(Write(path, offset, ctypes.string_at(data, size)))
        return real.write(handle, data, size, offset)

    @_Truncate
    def truncate(handle: int, size: int) -> int:
        disk.operations.append(Truncate(path, size))
        return real.truncate(handle, size)

    @_Sync
    def sync(handle: int, flags: int) -> int:
        code = real.sync(handle, flags)
        disk.operations.append(Sync(path))
        return code

    methods.write, methods.truncate, methods.sync = write, truncate, sync
    file.methods = ctypes.pointer(methods)
    return methods, write, truncate, sync
