"""The key ring and its file."""

import base64
import logging
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.sealing import SEAL_PREFIX, KeyRing, check_keys, new_key
from antiphon.protocol.errors import StoreError

OLD, NEW, OTHER = new_key(), new_key(), new_key()
CONTENT = {"summary": "We met at the harbour — ☂", "items": [1, None, True]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON.filter(lambda value: value is not None))
def test_encrypted_content_can_be_decrypted(content: object) -> None:
    seal = KeyRing([NEW])
    assert seal.decrypt(seal.encrypt(content)) == content


def test_a_seal_is_opaque_and_never_the_same_twice() -> None:
    seal = KeyRing([NEW])
    first, second = seal.encrypt(CONTENT), seal.encrypt(CONTENT)
    assert first != second
    assert first.startswith(SEAL_PREFIX)
    hidden = base64.urlsafe_b64decode(first.removeprefix(SEAL_PREFIX))
    assert b"harbour" not in hidden
    assert b"summary" not in hidden


def test_the_newest_key_encrypts_and_every_key_decrypts() -> None:
    before = KeyRing([OLD]).encrypt(CONTENT)
    rotated = KeyRing([NEW, OLD])
    assert rotated.decrypt(before) == CONTENT
    assert KeyRing([NEW]).decrypt(rotated.encrypt(CONTENT)) == CONTENT
    assert KeyRing([OLD]).decrypt(rotated.encrypt(CONTENT)) is None


def test_another_key_cannot_decrypt() -> None:
    assert KeyRing([OTHER]).decrypt(KeyRing([NEW]).encrypt(CONTENT)) is None
    assert KeyRing.ephemeral().decrypt(KeyRing.ephemeral().encrypt(CONTENT)) is None


SEALED = KeyRing([NEW]).encrypt(CONTENT)


@given(st.integers(0, len(SEALED) - 1), st.characters(max_codepoint=0x2FF))
def test_any_change_makes_a_seal_invalid(place: int, letter: str) -> None:
    changed = SEALED[:place] + letter + SEALED[place + 1 :]
    opened = KeyRing([NEW]).decrypt(changed)
    # The last letter of base64 has bits that mean nothing: such a change changes nothing.
    assert opened is None or (opened == CONTENT and same_bytes(changed, SEALED))


def same_bytes(one: str, other: str) -> bool:
    """Tell whether two seals are two spellings of the same bytes."""
    return base64.urlsafe_b64decode(one[len(SEAL_PREFIX) :]) == base64.urlsafe_b64decode(other[len(SEAL_PREFIX) :])


@pytest.mark.parametrize("sealed", ["", SEAL_PREFIX, "gAAAAABm", SEALED[:-8], f"{SEAL_PREFIX}☂", "EqQBCgIYAhIM"])
def test_foreign_content_is_not_decrypted(sealed: str) -> None:
    assert KeyRing([NEW]).decrypt(sealed) is None


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ([], "There are no keys."),
        (["a secret"], "Key 1 is not 32 bytes in base64."),
        ([NEW, base64.urlsafe_b64encode(b"short").decode()], "Key 2 is not 32 bytes"),
        ([NEW, "☂" * 44], "Key 2 is not 32 bytes"),
    ],
)
def test_an_invalid_key_is_rejected_without_being_shown(keys: list[str], reason: str) -> None:
    for make in (KeyRing, check_keys):
        with pytest.raises(ValueError, match=reason) as caught:
            make(keys)
        assert not any(key in str(caught.value) for key in keys)


def test_keys_may_be_in_either_base64_alphabet() -> None:
    raw = b"\xfb\xff" * 16
    plain, safe = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    assert plain != safe
    assert KeyRing([safe]).decrypt(KeyRing([plain]).encrypt(CONTENT)) == CONTENT


def test_a_folder_keeps_its_key(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "responses"
    sealed = KeyRing.from_folder(folder).encrypt(CONTENT)
    assert KeyRing.from_folder(folder).decrypt(sealed) == CONTENT
    assert [path.name for path in folder.iterdir()] == ["seal.keys"]
    assert (folder / "seal.keys").stat().st_mode & 0o777 == 0o600


def test_a_key_put_first_in_the_file_is_the_newest(tmp_path: Path) -> None:
    before = KeyRing.from_folder(tmp_path).encrypt(CONTENT)
    path = tmp_path / "seal.keys"
    path.write_text(f"{NEW}\n{path.read_text()}")
    rotated = KeyRing.from_folder(tmp_path)
    assert rotated.decrypt(before) == CONTENT
    assert KeyRing([NEW]).decrypt(rotated.encrypt(CONTENT)) == CONTENT


def seal_in(folder: Path) -> str:
    """Seal something, as one of many that start at once."""
    return KeyRing.from_folder(folder).encrypt(CONTENT)


def test_many_threads_that_start_at_once_share_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        seals = list(pool.map(seal_in, [tmp_path] * 32))
    assert [KeyRing.from_folder(tmp_path).decrypt(sealed) for sealed in seals] == [CONTENT] * 32


def test_two_processes_that_start_at_once_share_one_key(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        seals = list(pool.map(seal_in, [tmp_path] * 4))
    assert [KeyRing.from_folder(tmp_path).decrypt(sealed) for sealed in seals] == [CONTENT] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["seal.keys"]


def empty(path: Path) -> None:
    path.write_text("")


def garble(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


def cut(path: Path) -> None:
    path.write_text(NEW[:20])


def replace_by_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (empty, "There are no keys."),
        (garble, "it is not text"),
        (cut, "Key 1 is not 32 bytes"),
        (replace_by_folder, "directory"),
    ],
)
def test_a_damaged_key_file_is_reported_and_not_changed(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    path = tmp_path / "seal.keys"
    spoil(path)
    with pytest.raises(StoreError) as caught:
        KeyRing.from_folder(tmp_path)
    assert str(caught.value).startswith(f"The seal's keys in {path} cannot be used: ")
    assert reason.lower() in str(caught.value).lower()
    assert NEW[:20] not in str(caught.value)
    assert path.exists()


def test_an_unreadable_key_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "seal.keys").mkdir()
    with pytest.raises(StoreError, match=r"seal\.keys"):
        KeyRing.from_folder(tmp_path)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used"):
        KeyRing.from_folder(tmp_path / "file")


def test_a_key_file_that_others_can_read_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    KeyRing.from_folder(tmp_path)
    assert caplog.messages == []
    path = tmp_path / "seal.keys"
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        KeyRing.from_folder(tmp_path)
    assert caplog.messages == [f"{path} can be read by others. Try: chmod 600 {path}"]


def test_cryptography_is_imported_at_first_use() -> None:
    code = (
        "import sys; import antiphon.server.app; from antiphon.engine.sealing import KeyRing;"
        "KeyRing.ephemeral(); print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
