"""Encryption keys on the command line."""

import subprocess
import sys

import pytest

from antiphon.cli.serve import ServeOptions, StartupError, apply_options, serve
from antiphon.engine.sealing import new_key
from antiphon.server.settings import Settings
from tests.http_client import http_client
from tests.run_server import run_command

OLD, NEW = new_key(), new_key()


def test_keys_are_separated_by_commas_or_spaces() -> None:
    for text in (f"{NEW},{OLD}", f" {NEW} {OLD}\n"):
        assert apply_options(Settings(), ServeOptions(seal_keys=text)).seal_keys == [NEW, OLD]
    assert apply_options(Settings(seal_keys=[OLD]), ServeOptions()).seal_keys == [OLD]


@pytest.mark.parametrize("text", ["", "hunter2", f"{NEW},hunter2"], ids=["empty", "word", "two"])
def test_invalid_encryption_keys_are_rejected_without_being_shown(text: str) -> None:
    with pytest.raises(StartupError, match="Make one with: openssl rand -base64 32") as caught:
        serve(ServeOptions(seal_keys=text))
    assert "hunter2" not in str(caught.value)
    assert NEW not in str(caught.value)
    assert NEW not in repr(ServeOptions(seal_keys=NEW))


def test_keys_come_from_the_environment() -> None:
    with run_command(env={"ANTIPHON_SEAL_KEYS": OLD}) as (address, _), http_client(address) as http:
        made = http.post("/v1/responses/compact", json={"model": "demo", "input": "Hi"}).json()
    rotated = {"ANTIPHON_SEAL_KEYS": f"{NEW},{OLD}"}
    with run_command(env=rotated) as (address, _), http_client(address) as http:
        body = {"model": "demo", "input": made["output"]}
        assert http.post("/v1/responses", json=body).status_code == 200


def test_help_does_not_pay_for_cryptography() -> None:
    code = (
        "import sys; from antiphon.cli.main import app\n"
        "try: app(['serve', '--help'])\n"
        "except SystemExit: print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.endswith("False\n")
