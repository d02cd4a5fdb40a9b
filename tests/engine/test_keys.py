"""Idempotency keys of responses that are not stored."""

from antiphon.engine import keys as keys_module
from antiphon.engine.keys import IdempotencyKeys
from antiphon.store.base import IdempotencyRecord
from tests.core.making import make_response


def test_a_key_is_taken_once_and_then_leads_to_its_first_claim() -> None:
    keys = IdempotencyKeys()
    assert keys.claim(("k", "print"), "resp_0", tenant="") is None
    assert keys.claim(("k", "other"), "resp_1", tenant="") == IdempotencyRecord("print", "resp_0")
    assert keys.claim(("k2", "print"), "resp_2", tenant="") is None
    assert keys.claim(("k", "print"), "resp_3", tenant="t") is None


def test_what_a_key_led_to_is_known_when_it_has_ended() -> None:
    keys = IdempotencyKeys()
    keys.claim(("k", "print"), "resp_0", tenant="")
    assert keys.find_response("resp_0") is None
    response = make_response(status="completed")
    keys.record_response(response)
    assert keys.find_response("resp_0") is response


def test_what_no_key_led_to_is_not_kept() -> None:
    keys = IdempotencyKeys()
    keys.record_response(make_response())
    assert keys.find_response("resp_0") is None


def test_a_key_is_free_again_after_a_day() -> None:
    now = 0.0
    keys = IdempotencyKeys(lambda: now)
    keys.claim(("k", "print"), "resp_0", tenant="")
    keys.record_response(make_response())
    now = keys_module.KEY_SECONDS - 1
    assert keys.claim(("k", "print"), "resp_1", tenant="") == IdempotencyRecord("print", "resp_0")
    now = keys_module.KEY_SECONDS
    assert keys.claim(("k", "print"), "resp_1", tenant="") is None
    assert keys.find_response("resp_0") is None


def test_only_so_many_keys_are_kept_and_the_oldest_go_first() -> None:
    keys = IdempotencyKeys()
    for number in range(keys_module.MAX_KEYS + 1):
        assert keys.claim((f"k{number}", "print"), f"resp_{number}", tenant="") is None
    assert keys.claim(("k1", "print"), "resp_x", tenant="") is not None
    assert keys.claim(("k0", "print"), "resp_x", tenant="") is None
