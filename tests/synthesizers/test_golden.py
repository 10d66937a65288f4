"""What every method sends, pays, draws and saves is what it was; golden.py says how to renew it."""

import json

import pytest

from tests.synthesizers.golden import CASES, FILE, arithmetic, golden

KEPT = json.loads(FILE.read_text())
_QUICK = ("aim", "flaim", "two_round", "gaussian_copula", "silofuse with noise")


def test_every_case_is_kept():
    assert set(KEPT) == {"arithmetic", *CASES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name.startswith(_QUICK) else pytest.mark.slow)
        for name in CASES
    ],
)
def test_a_seeded_run_is_what_it_was(name):
    if KEPT["arithmetic"] != arithmetic():
        pytest.skip("floats of this machine, or of this JAX, are not those of golden.json")
    assert golden(name) == KEPT[name]
