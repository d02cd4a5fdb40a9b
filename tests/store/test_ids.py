"""Ids are random, unique, and not repeated by a forked process."""

import re
import subprocess
import sys

from antiphon.store.ids import new_id

FORK = """
import os
from antiphon.store.ids import new_id
new_id("resp")
if child := os.fork():
    os.waitpid(child, 0)
print(new_id("resp"), flush=True)
"""


def test_a_forked_process_does_not_repeat_the_ids_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 2


def test_ids_are_unique_and_have_160_random_bits_or_more() -> None:
    ids = [new_id("resp") for _ in range(1000)]
    assert all(re.fullmatch(r"resp_[0-9a-f]{40,}", id) for id in ids)
    assert len(set(ids)) == 1000
    tails = [int(id.removeprefix("resp_"), 16) for id in ids]
    bits = len(ids[0].removeprefix("resp_")) * 4
    for bit in range(bits):
        ones = sum(tail >> bit & 1 for tail in tails)
        assert 350 < ones < 650, f"bit {bit} is not random"
