"""The exclusive lock on the data folder."""

from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreError
from antiphon.store.sqlite.database import FolderLock


def test_only_one_lock_on_a_folder_is_held(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "new"), FolderLock(tmp_path / "new")
    assert (first.is_held, second.is_held) == (True, False)
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()
    third = FolderLock(tmp_path / "new")
    assert third.is_held
    third.release()


def test_an_unusable_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used"):
        FolderLock(tmp_path / "file")
